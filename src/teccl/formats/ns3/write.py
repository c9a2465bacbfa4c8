"""ns-3's topology text: counts, switches, and one line for each wire."""

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from teccl.errors import ExportError
from teccl.formats.shared.exports import Export, OutputFile
from teccl.topology import Link, Topology
from teccl.units import format_bandwidth, format_duration


class Ns3Wire(NamedTuple):
    """Both directions between two nodes, by their numbers in the file."""

    one: int
    other: int
    link: Link

    def line(self) -> str:
        """Return ends, rate, delay and rate of errors as ns-3 reads them."""
        gigabits = self.link.bandwidth * 8 / 10**9
        milliseconds = self.link.alpha * 1000
        return f"{self.one} {self.other} {_plain(gigabits)}Gbps {_plain(milliseconds)}ms 0"


def _plain(value: Fraction) -> str:
    """Return a number without an exponent, which ns-3's units do not know."""
    return f"{float(value):.9f}".rstrip("0").rstrip(".")


def wires(topology: Topology, number: dict[int, int], target: str) -> list[Ns3Wire]:
    """Return the links in pairs, one for each direction.

    Raises
    ------
    ExportError
        If a link has no counterpart of the same rate and latency, or more than these two.
    """
    waiting: dict[tuple[int, int], list[Link]] = {}
    found = []
    for link in topology.links:
        if link.shares or link.profile or link.overhead:
            raise ExportError(
                f"{target}: the link from {topology.nodes[link.src].name} to "
                f"{topology.nodes[link.dst].name} shares a capacity or has a profile or an "
                "overhead; the format cannot say that"
            )
        back = waiting.get((link.dst, link.src), [])
        match = next(
            (b for b in back if (b.bandwidth, b.alpha) == (link.bandwidth, link.alpha)), None
        )
        if match is None:
            waiting.setdefault((link.src, link.dst), []).append(link)
        else:
            back.remove(match)
            found.append(Ns3Wire(number[match.src], number[match.dst], match))
    alone = next((link for links in waiting.values() for link in links), None)
    if alone is not None:
        raise ExportError(
            f"{target}: the link from {topology.nodes[alone.src].name} to "
            f"{topology.nodes[alone.dst].name}, {format_bandwidth(alone.bandwidth)} and "
            f"{format_duration(alone.alpha)}, has no equal one back; its wires are two-way"
        )
    return sorted(found, key=lambda wire: wire[:2])


def numbered(topology: Topology, switches: list[int]) -> dict[int, int]:
    """Return numbers of nodes: GPUs by rank, then switches in the given order."""
    return {node: i for i, node in enumerate((*topology.gpus.tolist(), *switches))}


def text_of(header: str, topology: Topology, cables: list[Ns3Wire]) -> str:
    """Return the file: a header, the numbers of the switches, the wires."""
    switches = " ".join(str(i) for i in range(topology.num_gpus, topology.num_nodes))
    return "\n".join((header, switches, *(wire.line() for wire in cables))) + "\n"


def render_topology(topology: Topology, path: Path) -> Export:
    """Make the topology file of a topology."""
    switches = [i for i, node in enumerate(topology.nodes) if node.is_switch]
    cables = wires(topology, numbered(topology, switches), "ns3")
    header = f"{topology.num_nodes} {topology.num_switches} {len(cables)}"
    return Export(
        target="ns3",
        files=(OutputFile(path=path, content=text_of(header, topology, cables)),),
        facts={"nodes": topology.num_nodes, "wires": len(cables)},
        notes=("GPUs have the numbers of their ranks, switches follow",),
    )
