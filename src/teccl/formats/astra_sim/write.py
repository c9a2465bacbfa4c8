"""ASTRA-sim's files: the network of a topology, and what it takes to run a custom collective.

The analytical network of ASTRA-sim knows a ring, a full connection and a switch, all of whose
links are alike. What it counts is whole nanoseconds, and a GB is 2^30 bytes.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl.demand import Collective
from teccl.formats.shared import chakra_messages as messages
from teccl.formats.shared.exports import Export, OutputFile
from teccl.schedule import Schedule
from teccl.topology import Topology

GIGABYTE = 2**30
PICOSECONDS_PER_NANOSECOND = 1000
# Keys of the system file under which ASTRA-sim looks for a custom collective, and its numbers of
# collectives in Chakra's schema.
KEYS = {
    Collective.ALLGATHER: ("all-gather-implementation-custom", 2),
    Collective.ALLREDUCE: ("all-reduce-implementation-custom", 0),
    Collective.REDUCESCATTER: ("reduce-scatter-implementation-custom", 7),
    Collective.ALLTOALL: ("all-to-all-implementation-custom", 6),
}
_COLLECTIVE_NODE = 7
# The group of a collective on some of the GPUs; 0 means all of them.
_GROUP = "1"


class NetworkShape(StrEnum):
    """A network that ASTRA-sim can build."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


def shape_of(topology: Topology) -> NetworkShape | None:
    """Return which of ASTRA-sim's networks a topology is, None if it is another."""
    if not _is_uniform(topology):
        return None
    ends = _ends(topology)
    count = topology.num_gpus
    everybody = {(i, j) for i in range(count) for j in range(count) if i != j}
    neighbours = {(i, (i + step) % count) for i in range(count) for step in (1, -1)}
    spokes = {pair for i in range(count) for pair in ((i, count), (count, i))}
    if topology.num_switches == 0 and ends == everybody:
        return NetworkShape.FULLY_CONNECTED
    if topology.num_switches == 0 and ends == neighbours:
        return NetworkShape.RING
    return NetworkShape.SWITCH if topology.num_switches == 1 and ends == spokes else None


def shape_for_schedules(topology: Topology) -> NetworkShape | None:
    """Return a network on which schedules for a topology run as they do on it.

    Between GPUs that are linked directly, data takes that link and no other, and links that a
    schedule does not use change nothing. So a full connection serves wherever links are alike.
    """
    shape = shape_of(topology)
    if shape is None and topology.num_switches == 0 and _is_uniform(topology):
        return NetworkShape.FULLY_CONNECTED
    return shape


def _is_uniform(topology: Topology) -> bool:
    """Whether links are alike, and at most one leads from a node to another."""
    kinds = {replace(link, src=0, dst=1) for link in topology.links}
    pairs = {(link.src, link.dst) for link in topology.links}
    return (
        len(kinds) == 1
        and len(pairs) == len(topology.links)
        and not topology.links[0].shares
        and not topology.links[0].profile
        and not topology.links[0].overhead
    )


def _ends(topology: Topology) -> set[tuple[int, int]]:
    number = device_numbers(topology)
    return {(number[link.src], number[link.dst]) for link in topology.links}


def device_numbers(topology: Topology) -> dict[int, int]:
    """Return ASTRA-sim's number of each node: GPUs by rank, then switches."""
    gpus = topology.gpus.tolist()
    switches = [i for i, node in enumerate(topology.nodes) if node.is_switch]
    return {node: number for number, node in enumerate((*gpus, *switches))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """In which units a simulation is told sizes and times.

    Parameters
    ----------
    tick_ps
        Picoseconds that what ASTRA-sim calls a nanosecond stands for.
    parts
        Units of size that a byte has.
    """

    tick_ps: int = PICOSECONDS_PER_NANOSECOND
    parts: int = 1

    def bandwidth(self, value: Fraction) -> float:
        """Return bytes per second as the network file has them."""
        factor = Fraction(self.parts * self.tick_ps, PICOSECONDS_PER_NANOSECOND * GIGABYTE)
        return float(value * factor)

    def latency(self, value: Fraction) -> float:
        """Return seconds as the network file has them."""
        return float(value * 10**12 / self.tick_ps)


PLAIN = Scale()


def network_text(topology: Topology, shape: NetworkShape | None, scale: Scale = PLAIN) -> str:
    """Return the network file: one of ASTRA-sim's networks, or else a list of links."""
    if shape is not None:
        link = topology.links[0]
        return (
            f"topology: [ {shape.value} ]\n"
            f"npus_count: [ {topology.num_gpus} ]\n"
            f"bandwidth: [ {scale.bandwidth(link.bandwidth)!r} ]  # GB/s, a GB is 2^30 bytes\n"
            f"latency: [ {scale.latency(link.alpha)!r} ]  # ns\n"
        )
    number = device_numbers(topology)
    lines = [
        "# ASTRA-sim reads Ring, FullyConnected and Switch only; this describes another network.",
        "topology: [ Graph ]",
        f"npus_count: [ {topology.num_gpus} ]",
        f"devices_count: [ {topology.num_nodes} ]",
        "links:  # source and destination, GB/s (2^30 bytes), ns",
    ]
    lines += [
        f"- [ {number[link.src]}, {number[link.dst]}, {scale.bandwidth(link.bandwidth)!r}, "
        f"{scale.latency(link.alpha)!r} ]"
        for link in topology.links
    ]
    return "\n".join(lines) + "\n"


def render_topology(topology: Topology, path: Path) -> Export:
    """Make the network file of a topology."""
    shape = shape_of(topology)
    notes = ["a GB is 2^30 bytes"]
    if shape is None:
        notes.append(
            "ASTRA-sim reads Ring, FullyConnected and Switch with equal links only; this is "
            "another network, which a topology class of your own would have to build"
        )
    return Export(
        target="astra-sim",
        files=(OutputFile(path=path, content=network_text(topology, shape)),),
        facts={"network": shape.value if shape else "Graph", "links": topology.num_links},
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The files around the traces of a custom collective, and how to run them."""

    files: tuple[OutputFile, ...]
    arguments: tuple[str, ...]
    shape: NetworkShape | None


def configure(schedule: Schedule, system: Path, scale: Scale = PLAIN) -> Configuration:
    """Make all files that ASTRA-sim needs beside the traces of a schedule.

    Parameters
    ----------
    schedule
        Of one tenant, whose collective is in `KEYS`.
    system
        The system file; the others, and the traces, lie beside it by its name.
    scale
        Units of the network file.
    """
    prefix = system.with_name(system.name.removesuffix(system.suffix))
    topology = schedule.problem.topology
    tenant = schedule.problem.demand.tenants[0]
    # ASTRA-sim finds positions in the sorted group, and ranks of positions in the group as given.
    members = sorted(tenant.members(topology.num_gpus))
    shape = shape_for_schedules(topology)
    network = prefix.with_name(f"{prefix.name}.network.yml")
    memory = prefix.with_name(f"{prefix.name}.memory.json")
    workload = prefix.with_name(f"{prefix.name}.workload")
    files = [
        OutputFile(path=system, content=_system_text(tenant.collective, prefix)),
        OutputFile(path=network, content=network_text(topology, shape, scale)),
        OutputFile(path=memory, content='{"memory-type": "NO_MEMORY_EXPANSION"}\n'),
        *_workload(schedule, members, workload),
    ]
    arguments = [
        f"--workload-configuration={workload}",
        f"--system-configuration={system}",
        f"--network-configuration={network}",
        f"--remote-memory-configuration={memory}",
    ]
    if len(members) < topology.num_gpus:
        groups = prefix.with_name(f"{prefix.name}.groups.json")
        files.append(
            OutputFile(path=groups, content=json.dumps({_GROUP: members}, indent=2) + "\n")
        )
        arguments.append(f"--comm-group-configuration={groups}")
    return Configuration(files=tuple(files), arguments=tuple(arguments), shape=shape)


def system_key(collective: Collective, prefix: Path) -> dict[str, Any]:
    """Return the entry of the system file that names the traces."""
    return {KEYS[collective][0]: [str(prefix)]}


def _system_text(collective: Collective, prefix: Path) -> str:
    # Without one split only, the collective would be cut and run several times over.
    document = {
        "scheduling-policy": "FIFO",
        "preferred-dataset-splits": 1,
        **system_key(collective, prefix),
    }
    return json.dumps(document, indent=2) + "\n"


def _workload(schedule: Schedule, members: Iterable[int], prefix: Path) -> list[OutputFile]:
    """Return a workload of one collective for its members, and of nothing for other GPUs."""
    problem, taking_part = schedule.problem, set(members)
    tenant = problem.demand.tenants[0]
    is_group = len(taking_part) < problem.topology.num_gpus
    files = []
    for rank in range(problem.topology.num_gpus):
        if rank in taking_part:
            node = messages.Node(id=0, name=tenant.collective.value, type=_COLLECTIVE_NODE)
            node.attr.add(name="comm_type", int64_val=KEYS[tenant.collective][1])
            node.attr.add(name="comm_size", int64_val=max(1, round(tenant.size)))
            if is_group:
                node.attr.add(name="pg_name", string_val=_GROUP)
        else:
            node = messages.Node(id=0, name="idle", type=messages.COMPUTE)
        node.attr.add(name="is_cpu_op", bool_val=False)
        trace = messages.delimited([messages.GlobalMetadata(version=messages.VERSION), node])
        files.append(OutputFile(path=prefix.with_name(f"{prefix.name}.{rank}.et"), content=trace))
    return files
