"""Which partitions to evaluate for an AllReduce: GPUs, groups, merged neighbours, narrow cuts."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.network import Network
from teccl.bounds.windows import IntArray
from teccl.topology.clusters import partings

Mask = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

# Kinds of groups that are split at most, those that gain most.
MOST_SPLITS = 8
# Merged partitions and sets of narrow cuts that are evaluated.
MOST_MERGED = 3
MOST_SETS = 16
# Nodes beyond which merging, whose work grows with their cube, is left out.
MAX_MERGED_GPUS = 256


class Partition(NamedTuple):
    """Part number of every node, -1 outside all parts, and what to call the parts."""

    part: IntArray
    label: str


def candidate_partitions(
    network: Network, members: IntArray, narrow: Sequence[Mask] = ()
) -> Iterator[Partition]:
    """Yield partitions without repeats.

    Parameters
    ----------
    network
        Where an AllReduce takes place.
    members
        GPUs that take part.
    narrow
        Sets of nodes with little capacity into or out of them, the narrowest first.
    """
    seen = set()
    partitions = [
        Partition(_numbered(network, [[m] for m in members.tolist()]), "each gpu"),
        *_grouped(network, members),
        *_merged(network, members),
        *_around(network, members, narrow),
    ]
    for partition in partitions:
        for part in (partition.part, _narrowed(network, partition.part)):
            if part.tobytes() not in seen:
                seen.add(part.tobytes())
                yield Partition(part, partition.label)


def _narrowed(network: Network, part: IntArray) -> IntArray:
    """Take switches into the parts that less comes into with them than from them alone."""
    if len(part) > MAX_MERGED_GPUS:
        return part
    part, (between, adds) = part.copy(), _capacities(network)
    numbers = np.arange(part.max() + 1)
    while True:
        inside = (part[:, None] == numbers).astype(float)
        gives, takes = between @ inside, between.T @ inside
        gain = gives - (between.sum(axis=0)[:, None] - takes)
        best = gain.argmax(axis=1)
        gains = gain[np.arange(len(part)), best]
        narrows = (part < 0) & ~adds & (gains > 1e-9 * between.max())
        if not narrows.any():
            return part
        # One at a time: the next one may be narrower with it.
        switch = int(np.where(narrows, gains, -np.inf).argmax())
        part[switch] = best[switch]


def _grouped(network: Network, members: IntArray) -> Iterator[Partition]:
    """Groups, of which some are split into their members.

    Splitting a group adds parts and, as capacity into them, that between its own nodes. The most
    parts for the capacity come first; of groups that are alike all are split or none.
    """
    for label in partings(network.problem.topology):
        groups = _by_label(label, range(len(label)))
        inside = _by_label(label, members.tolist())
        if -1 in inside or not 1 < len(inside) < len(members):
            continue
        gain = {name: _gain_by_splitting(network, groups[name], inside[name]) for name in inside}
        for least in (math.inf, *sorted(set(gain.values()), reverse=True)[:MOST_SPLITS]):
            split = [name for name in inside if gain[name] >= least]
            whole = [groups[name] for name in inside if gain[name] < least]
            single = [[m] for name in split for m in inside[name]]
            if whole:
                yield Partition(_numbered(network, [*single, *whole]), _describe(len(split)))


def _by_label(label: IntArray, nodes: Iterable[int]) -> dict[int, list[int]]:
    """Return nodes by their label."""
    groups: dict[int, list[int]] = {}
    for node in nodes:
        groups.setdefault(int(label[node]), []).append(node)
    return groups


def _numbered(network: Network, parts: Iterable[list[int]]) -> IntArray:
    """Part number of each node, -1 outside all parts."""
    part = np.full(network.problem.topology.num_nodes, -1)
    for number, nodes in enumerate(parts):
        part[nodes] = number
    return part


def _gain_by_splitting(network: Network, group: list[int], members: list[int]) -> float:
    """Parts that splitting a group adds, for the capacity between its nodes that then counts."""
    topology = network.problem.topology
    is_inside = np.isin(topology.link_src, group) & np.isin(topology.link_dst, members)
    links = np.flatnonzero(is_inside)
    capacity = sum(float(network.rate[link]) for link in links)
    if len(members) == 1:
        return 0.0
    return (len(members) - 1) / capacity if capacity else math.inf


def _describe(num_split: int) -> str:
    if num_split == 0:
        return "each group"
    return f"each gpu of {num_split} groups and each other group"


def _merged(network: Network, members: IntArray) -> list[Partition]:
    """Neighbours merged one pair after the other, those with most capacity between them first.

    Merging takes that capacity out of the account, and one part; a relay is merged for nothing. The
    merged partitions with most parts for the capacity that is left are kept.
    """
    topology = network.problem.topology
    between, adds = _capacities(network)
    nodes = np.flatnonzero(adds)
    if len(nodes) > MAX_MERGED_GPUS:
        return []
    between = between[np.ix_(nodes, nodes)] + between[np.ix_(nodes, nodes)].T
    rates = np.array([float(rate) for rate in network.rate])
    left = float(rates[adds[topology.link_dst] & (topology.link_src != topology.link_dst)].sum())
    has_member = np.isin(nodes, members)
    label = np.arange(len(nodes))
    found: list[tuple[float, IntArray]] = []
    for free in (True, False):
        while True:
            pairs = between > 0
            pairs &= ~(has_member[:, None] & has_member) if free else has_member[:, None]
            if not pairs.any() or has_member.sum() <= 2 - free:
                break
            a, b = np.unravel_index(int(np.where(pairs, between, 0).argmax()), between.shape)
            left -= float(between[a, b])
            label[label == b] = a
            has_member[a] |= has_member[b]
            has_member[b] = False
            between[a] += between[b]
            between[:, a] += between[:, b]
            between[b] = between[:, b] = between[a, a] = 0
            found.append(((int(has_member.sum()) - 1) / max(left, 1e-30), label.copy()))
    found.sort(key=lambda entry: -entry[0])
    return [
        Partition(_renumbered(network, nodes, label, members), "each set of neighbours")
        for _, label in found[:MOST_MERGED]
    ]


def _capacities(network: Network) -> tuple[FloatArray, Mask]:
    """Bytes per picosecond from node to node, and the nodes that can add up."""
    topology = network.problem.topology
    between = np.zeros((topology.num_nodes, topology.num_nodes))
    rates = [float(rate) for rate in network.rate]
    np.add.at(between, (topology.link_src, topology.link_dst), rates)
    adds = np.array([not node.is_switch or node.reduce for node in topology.nodes])
    return between, adds


def _renumbered(network: Network, nodes: IntArray, label: IntArray, members: IntArray) -> IntArray:
    """Part numbers from labels of some nodes; sets without a member stay outside."""
    parts: dict[int, list[int]] = {}
    for node, name in zip(nodes.tolist(), label.tolist(), strict=True):
        parts.setdefault(name, []).append(node)
    inside = set(members.tolist())
    return _numbered(network, [part for part in parts.values() if inside & set(part)])


def _around(network: Network, members: IntArray, narrow: Sequence[Mask]) -> Iterator[Partition]:
    """Disjoint sets behind narrow cuts, or before them, and every other member by itself."""
    taken = np.zeros(network.problem.topology.num_nodes, dtype=bool)
    parts: list[list[int]] = []
    for inside in narrow[:MOST_SETS]:
        count = int(inside[members].sum())
        small = inside if 2 * count <= len(members) else ~inside
        if small[members].sum() > 1 and not (small & taken).any():
            taken |= small
            parts.append(np.flatnonzero(small).tolist())
    if parts:
        single = [[m] for m in members.tolist() if not taken[m]]
        label = f"{len(parts)} sets behind narrow cuts and each other gpu"
        yield Partition(_numbered(network, [*parts, *single]), label)
