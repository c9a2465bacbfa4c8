"""A machine as one dump describes it, and clusters of such machines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from teccl.errors import TopologyError
from teccl.formats.shared.imports import FABRICS, Imported, ImportOptions
from teccl.topology.presets._wiring import Wiring, check_size
from teccl.units import format_bandwidth, format_duration, parse_duration

# Dumps hold no latencies. These are the typical orders that the vendor presets use, too.
DIRECT_ALPHA = parse_duration("0.7us")
PORT_ALPHA = parse_duration("0.35us")
NIC_ALPHA = parse_duration("0.65us")
SPINE_ALPHA = parse_duration("0.15us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One direction between two nodes of a machine: GPUs first, then its switches."""

    src: int
    dst: int
    bandwidth: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network card and the GPUs that send through it; without a rate if the file has none."""

    gpus: tuple[int, ...]
    bandwidth: Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine.

    Parameters
    ----------
    name
        What the topology is called.
    num_gpus
        GPUs, numbered from 0.
    switches
        Names of its switches, numbered on from there.
    wires
        Links inside it.
    nics
        Network cards in rail order; empty where the file knows none.
    """

    name: str
    num_gpus: int
    switches: tuple[str, ...]
    wires: tuple[Wire, ...]
    nics: tuple[Nic, ...] = ()


def assign_nics(num_gpus: int, distances: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Give each GPU its nearest NIC, spread evenly where several are equally near.

    Parameters
    ----------
    num_gpus
        Number of GPUs.
    distances
        For each NIC its distance to each GPU, in any unit.

    Returns
    -------
    list of tuple of int
        For each NIC the GPUs that use it.

    Examples
    --------
    >>> assign_nics(4, [[0, 0, 9, 9], [9, 9, 0, 0]])
    [(0, 1), (2, 3)]
    """
    sharing: dict[tuple[int, ...], list[int]] = {}
    for gpu in range(num_gpus if distances else 0):
        nearest = min(row[gpu] for row in distances)
        near = tuple(nic for nic, row in enumerate(distances) if row[gpu] == nearest)
        sharing.setdefault(near, []).append(gpu)
    users: list[list[int]] = [[] for _ in distances]
    for near, gpus in sharing.items():
        for i in range(max(len(near), len(gpus))):
            nic = near[i * len(near) // len(gpus)] if len(gpus) > len(near) else near[i]
            gpu = gpus[i] if len(gpus) > len(near) else gpus[i * len(gpus) // len(near)]
            users[nic].append(gpu)
    return [tuple(sorted(gpus)) for gpus in users]


def compose(machine: Host, options: ImportOptions, assumptions: Sequence[str]) -> Imported:
    """Build the topology of one machine or, with `nodes`, of a cluster of them.

    Raises
    ------
    TopologyError
        If the machines cannot be joined because no rate of a NIC is known, or are too many.
    """
    nodes = options.nodes or 1
    notes = [*assumptions]
    nics = _fabric_nics(machine, options, notes) if nodes > 1 else ()
    per_node = machine.num_gpus + len(machine.switches)
    num_links = nodes * (len(machine.wires) + 2 * sum(len(nic.gpus) for nic in nics))
    check_size("import", nodes=nodes * per_node, links=num_links, lower="--nodes")
    wiring = Wiring(options.name or machine.name)
    gpus = [_add_machine(wiring, machine, options, c if nodes > 1 else None) for c in range(nodes)]
    notes.append(_alpha_note(machine, options))
    if nodes > 1:
        _add_fabric(wiring, gpus, nics, options)
        notes.append(_fabric_note(nics, options))
    return Imported(topology=wiring.topology(), assumptions=tuple(notes))


def _fabric_nics(machine: Host, options: ImportOptions, notes: list[str]) -> tuple[Nic, ...]:
    """Return the NICs that join machines, each with its rate."""
    nics = machine.nics
    if not nics:
        nics = tuple(Nic(gpus=(gpu,)) for gpu in range(machine.num_gpus))
        notes.append("the file names no NIC, so every GPU has one of its own")
    unused = sum(not nic.gpus for nic in nics)
    if unused:
        notes.append(f"NICs that are nearest to no GPU are left out: {unused}")
    if options.nic_bandwidth is not None:
        nics = tuple(replace(nic, bandwidth=options.nic_bandwidth) for nic in nics)
    if any(nic.bandwidth is None for nic in nics):
        raise TopologyError(
            "the file has no rate for a NIC; give --nic-bandwidth, for example 400Gb/s"
        )
    return tuple(nic for nic in nics if nic.gpus)


def _add_machine(
    wiring: Wiring, machine: Host, options: ImportOptions, number: int | None
) -> list[int]:
    """Add one machine's nodes and links and return its GPUs."""
    if number is None:
        gpus, prefix, group = wiring.gpus(machine.num_gpus), "", None
    else:
        gpus = wiring.chassis_gpus(number, machine.num_gpus)
        prefix, group = f"c{number}/", f"c{number}"
    nodes = gpus + [wiring.switch(prefix + name, group=group) for name in machine.switches]
    for wire in machine.wires:
        is_port = max(wire.src, wire.dst) >= machine.num_gpus
        wiring.link(nodes[wire.src], nodes[wire.dst], wire.bandwidth, _alpha(options, is_port))
    return gpus


def _alpha(options: ImportOptions, is_port: bool) -> Fraction:
    """Latency of a link inside a machine: a way through a switch takes two of them."""
    if options.alpha is None:
        return PORT_ALPHA if is_port else DIRECT_ALPHA
    return options.alpha / 2 if is_port else options.alpha


def _alpha_note(machine: Host, options: ImportOptions) -> str:
    direct, port = _alpha(options, is_port=False), _alpha(options, is_port=True)
    kinds = []
    if any(max(wire.src, wire.dst) < machine.num_gpus for wire in machine.wires):
        kinds.append(f"{format_duration(direct)} between two GPUs")
    if machine.switches:
        kinds.append(f"{format_duration(port)} into and out of a switch")
    source = "given" if options.alpha is not None else "the file has none (--alpha)"
    return f"latencies, {source}: {', '.join(kinds) or 'there are no links'}"


def _add_fabric(
    wiring: Wiring, gpus: Sequence[Sequence[int]], nics: Sequence[Nic], options: ImportOptions
) -> None:
    """Join machines: NIC r of each on leaf r and the leaves on a spine, or all on one switch."""
    if (options.fabric or FABRICS[0]) == "flat":
        leaves = [wiring.switch("fabric")] * len(nics)
    else:
        leaves = [wiring.switch(f"leaf{rail}") for rail in range(len(nics))]
        if len(leaves) > 1:
            spine = wiring.switch("spine")
            for leaf, nic in zip(leaves, nics, strict=True):
                assert nic.bandwidth is not None
                wiring.wire(leaf, spine, len(gpus) * nic.bandwidth, SPINE_ALPHA)
    alpha = NIC_ALPHA if options.nic_alpha is None else options.nic_alpha
    for c, members in enumerate(gpus):
        for rail, (leaf, nic) in enumerate(zip(leaves, nics, strict=True)):
            users = [members[gpu] for gpu in nic.gpus]
            _add_nic(wiring, f"c{c}/nic{rail}", nic, users, leaf=leaf, alpha=alpha)


def _add_nic(
    wiring: Wiring, name: str, nic: Nic, gpus: Sequence[int], *, leaf: int, alpha: Fraction
) -> None:
    """Link GPUs with a leaf through one NIC, whose rate they share if they are several."""
    assert nic.bandwidth is not None
    out: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    if len(gpus) > 1:
        out = (wiring.share(f"{name}/out", nic.bandwidth),)
        back = (wiring.share(f"{name}/in", nic.bandwidth),)
    for gpu in gpus:
        wiring.link(gpu, leaf, nic.bandwidth, alpha, shares=out)
        wiring.link(leaf, gpu, nic.bandwidth, alpha, shares=back)


def _fabric_note(nics: Sequence[Nic], options: ImportOptions) -> str:
    rates = sorted({nic.bandwidth for nic in nics if nic.bandwidth is not None})
    rate = " and ".join(format_bandwidth(r) for r in rates)
    fabric = options.fabric or FABRICS[0]
    shape = (
        "a leaf switch for each NIC position and a spine that is not oversubscribed"
        if fabric == "rail"
        else "one switch"
    )
    return (
        f"fabric {fabric} ({'given' if options.fabric else '--fabric'}): NICs of {rate} in "
        f"{len(nics)} positions of each machine, on {shape}"
    )
