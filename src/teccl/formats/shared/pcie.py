"""PCIe inside a machine: bridges and processors as switches, for GPUs that no faster link joins."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from teccl.formats.shared.cluster import Wire
from teccl.units import format_bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieHop:
    """A device on the way from a processor down to a GPU.

    Parameters
    ----------
    key
        What tells devices apart.
    rate
        Bytes per second of its link towards the processor, None if unknown.
    """

    key: Hashable
    rate: Fraction | None = None


def is_connected(num_gpus: int, wires: Sequence[Wire]) -> bool:
    """Whether every GPU reaches every other over the given links."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = max([num_gpus, *(max(wire.src, wire.dst) + 1 for wire in wires)])
    src, dst = [wire.src for wire in wires], [wire.dst for wire in wires]
    graph = coo_array((np.ones(len(wires)), (src, dst)), shape=(size, size))
    _, labels = connected_components(graph, directed=True, connection="strong")
    return len(set(labels[:num_gpus].tolist())) == 1


def pcie_wires(
    chains: Sequence[Sequence[PcieHop]],
    *,
    first_switch: int,
    default: Fraction,
    socket: Fraction | None,
    notes: list[str],
) -> tuple[list[Wire], list[str]]:
    """Return links along a tree of PCIe devices and the names of the switches they need.

    A device becomes a switch where ways to several GPUs part; a way without partings is one link
    at its slowest rate. Processors are joined with each other.

    Parameters
    ----------
    chains
        For each GPU the devices from its processor down to its own.
    first_switch
        Number of the first switch in the machine.
    default
        Rate of links whose rate is unknown.
    socket
        Rate between two processors, None for that of the slowest link below them.
    notes
        Gets a sentence for each assumption.
    """
    kept = _partings(chains)
    numbers = {key: first_switch + i for i, key in enumerate(kept)}
    links, unknown = _tree_links(chains, numbers, default)
    sockets = [key for key in dict.fromkeys(chain[0].key for chain in chains) if key in numbers]
    between = socket or min(links.values(), default=default)
    if len({chain[0].key for chain in chains}) > 1:
        links |= {(numbers[a], numbers[b]): between for a, b in combinations(sockets, 2)}
        notes.append(f"processors are joined at {format_bandwidth(between)} (--socket-bandwidth)")
    notes.append("no faster links join all GPUs, so PCIe does: bridges and processors are switches")
    if unknown:
        notes.append(f"PCIe links carry {format_bandwidth(default)} (--pcie-bandwidth)")
    wires = [
        Wire(src=s, dst=d, bandwidth=rate)
        for (a, b), rate in links.items()
        for s, d in ((a, b), (b, a))
    ]
    return wires, [f"{'cpu' if key in sockets else 'pcie'}{i}" for i, key in enumerate(kept)]


def _tree_links(
    chains: Sequence[Sequence[PcieHop]], numbers: Mapping[Hashable, int], default: Fraction
) -> tuple[dict[tuple[int, int], Fraction], bool]:
    """Return the rates between each GPU or switch and the switch above, and if any was unknown."""
    links: dict[tuple[int, int], Fraction] = {}
    unknown = False
    for gpu, chain in enumerate(chains):
        below = gpu
        slowest: Fraction | None = None
        for hop in reversed(chain):
            if hop.key in numbers:
                unknown |= slowest is None
                links.setdefault((below, numbers[hop.key]), slowest or default)
                below, slowest = numbers[hop.key], None
            if hop.rate is not None:
                slowest = hop.rate if slowest is None else min(slowest, hop.rate)
    return links, unknown


def _partings(chains: Sequence[Sequence[PcieHop]]) -> list[Hashable]:
    """Return the devices below which ways part, and all processors if there are several."""
    below: dict[Hashable, set[Hashable]] = {}
    for gpu, chain in enumerate(chains):
        for i, hop in enumerate(chain):
            # Two GPUs on one device part there, too, so the GPU itself ends its way.
            child = chain[i + 1].key if i + 1 < len(chain) else ("gpu", gpu)
            below.setdefault(hop.key, set()).add(child)
    sockets = {chain[0].key for chain in chains}
    return [
        key
        for key, children in below.items()
        if len(children) > 1 or (key in sockets and len(sockets) > 1)
    ]
