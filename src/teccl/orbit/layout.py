"""Layout: an order of the GPUs in which shifts of ranks are symmetries, found from the links.

Switches of one colour, with those below them, part the GPUs: into chassis, racks, pods, rails or
planes. A part is named by a number inside the parts around it, unless several of these together say
which one it is: a chassis and a rail have one GPU in common. Parts that GPUs of several are linked
to each other get the coordinates of `teccl.orbit.steps` in place of any numbers. The numbers are
the axes; the last ones are those of parts that differ in colour, since no symmetry joins these.

Nothing here is proven: whether shifts are symmetries is seen when links are compared.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from teccl._arrays import BoolArray, IntArray
from teccl.orbit.lattice import Lattice, Moduli
from teccl.orbit.steps import Graph, coordinates
from teccl.topology import Topology

# Partitions that are looked at; a cluster of four tiers has ten.
_PARTITIONS = 32
# Orders of the axes that are tried: all of three.
_ORDERS = 6


class NodeOrder(NamedTuple):
    """An order of nodes.

    Parameters
    ----------
    gpus
        GPUs in the order in which they are shifted.
    place
        By node, what switches that are linked alike are ordered by.
    sizes
        Of the axes that the layout has, outermost first; empty where none are known.
    """

    gpus: IntArray
    place: IntArray
    sizes: Moduli = ()

    @staticmethod
    def of(topology: Topology) -> "NodeOrder":
        """The order that a topology lists its nodes in."""
        return NodeOrder(topology.gpus, np.arange(topology.num_nodes))


def layouts(topology: Topology, colour: IntArray) -> Iterator[NodeOrder]:
    """Yield layouts in which shifts may be symmetries, the likeliest first."""
    place = _switch_places(topology, colour)
    axes = _axes(topology, colour)
    turning = [turn for turn, _ in axes if turn.max() > 0]
    rest = [left for _, left in axes if left.max() > 0]
    for chosen in itertools.islice(itertools.permutations(turning), _ORDERS):
        keys = [*chosen, *rest, np.arange(topology.num_gpus)]
        sizes = tuple(int(turn.max()) + 1 for turn in chosen)
        yield NodeOrder(topology.gpus[np.lexsort(keys[::-1])], place, sizes)


def _switch_places(topology: Topology, colour: IntArray) -> IntArray:
    """Number nodes by colour and by what those of their level and above join.

    So the first switch of each pod is linked to the same switches above, and so on.
    """
    src, dst, level = topology.link_src, topology.link_dst, levels(topology)
    keys = [np.arange(topology.num_nodes), colour]
    for height in np.unique(level)[::-1].tolist():
        high = (level[src] >= height) & (level[dst] >= height)
        joined = connected(topology.num_nodes, src[high], dst[high])
        keys.append(np.where(level >= height, joined, -1))
    place = np.empty(topology.num_nodes, dtype=np.int64)
    place[np.lexsort(keys)] = np.arange(topology.num_nodes)
    return place


def _axes(topology: Topology, colour: IntArray) -> list[Sequence[IntArray]]:
    """By GPU its place along each axis, and what is left of a place that no shift changes."""
    gpus, axes = colour[topology.gpus], list[Sequence[IntArray]]()
    every = [*_partitions(topology, colour), np.arange(topology.num_gpus)]
    for i, parts in enumerate(every):
        around = [other for other in every[:i] if _is_finer(parts, other)]
        group = _met(around) if around else np.zeros_like(parts)
        if group.max() < parts.max():
            axes += list(_numbers(topology, gpus, parts, group))
    return axes


def _partitions(topology: Topology, colour: IntArray) -> list[IntArray]:
    """Parts of GPUs, by each colour of switches and links and by all of several, largest first."""
    found: dict[bytes, IntArray] = {}
    for parts in _joined_by_colour(topology, colour):
        found.setdefault(parts.tobytes(), parts)
    queue = list(found.values())
    while queue and len(found) < _PARTITIONS:
        parts = queue.pop(0)
        for other in list(found.values()):
            both = _joined(parts, other)
            if both.tobytes() not in found:
                found[both.tobytes()] = both
                queue.append(both)
    proper = [x for x in found.values() if 0 < x.max() < topology.num_gpus - 1]
    return sorted(proper, key=lambda parts: int(parts.max()))


def _joined_by_colour(topology: Topology, colour: IntArray) -> Iterator[IntArray]:
    """Yield the parts that switches of each colour join with those below, and links of GPUs."""
    src, dst = topology.link_src, topology.link_dst
    level = levels(topology)
    is_direct = (level[src] == 0) & (level[dst] == 0)
    sort = np.stack([colour[src], colour[dst], topology.link_kind])[:, is_direct]
    if sort.size:
        names = np.unique(sort, axis=1, return_inverse=True)[1].ravel()
        for name in range(min(names.max() + 1, _PARTITIONS)):
            chosen = np.flatnonzero(is_direct)[names == name]
            yield _components(topology, src[chosen], dst[chosen])
    for inside in _whole(topology, _below(topology, colour, level)):
        chosen = np.flatnonzero(inside[src] & inside[dst] & ~is_direct)
        yield _components(topology, src[chosen], dst[chosen])


def _below(topology: Topology, colour: IntArray, level: IntArray) -> Iterator[BoolArray]:
    """Yield the switches of each colour, lower ones first, with all nodes below them."""
    src, dst = topology.link_src, topology.link_dst
    is_switch = topology.is_switch
    pairs = np.unique(np.stack([level[is_switch], colour[is_switch]]), axis=1)
    for each in pairs[1, :_PARTITIONS].tolist():
        inside = colour == each
        while True:
            down = (inside[src] & (level[dst] < level[src])) | (
                inside[dst] & (level[src] < level[dst])
            )
            below = inside.copy()
            below[src[down]] = below[dst[down]] = True
            if np.array_equal(below, inside):
                break
            inside = below
        yield inside


def _whole(topology: Topology, every: Iterable[BoolArray]) -> Iterator[BoolArray]:
    """Yield sets of nodes with all GPUs, of several that have different ones where need be.

    Chassis of two kinds have switches of two colours, which part the GPUs together.
    """
    partial: list[BoolArray] = []
    for inside in every:
        gpus = inside[topology.gpus]
        fits = [x for x in partial if not (x[topology.gpus] & gpus).any()]
        both = inside | fits[0] if fits else inside
        partial = [x for x in partial if not fits or x is not fits[0]]
        if both[topology.gpus].all():
            yield both
        else:
            partial.append(both)


def levels(topology: Topology) -> IntArray:
    """By node, its distance from GPUs, whichever way links lead."""
    src, dst, count = topology.link_src, topology.link_dst, topology.num_nodes
    level = np.where(topology.is_switch, count, 0)
    while True:
        lower = level.copy()
        np.minimum.at(lower, dst, level[src] + 1)
        np.minimum.at(lower, src, level[dst] + 1)
        if np.array_equal(lower, level):
            return level
        level = lower


def _components(topology: Topology, src: IntArray, dst: IntArray) -> IntArray:
    """By rank, the part that some links join."""
    return renumbered(connected(topology.num_nodes, src, dst)[topology.gpus])


def connected(count: int, src: IntArray, dst: IntArray) -> IntArray:
    """By node of a graph, the component that it is in."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(src)), (src, dst)), shape=(count, count))
    labels: IntArray = connected_components(graph, directed=False)[1].astype(np.int64)
    return labels


def renumbered(parts: IntArray) -> IntArray:
    """Number parts in the order in which they first occur."""
    _, first, inverse = np.unique(parts, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[inverse]


def _joined(parts: IntArray, other: IntArray) -> IntArray:
    """The finest parts of which those of both are subsets."""
    count = int(parts.max()) + 1
    labels = connected(count + int(other.max()) + 1, parts, other + count)
    return renumbered(labels[parts])


def _met(every: list[IntArray]) -> IntArray:
    """What several partitions have in common."""
    whole = every[0]
    for parts in every[1:]:
        whole = renumbered(whole * (int(parts.max()) + 1) + parts)
    return renumbered(whole)


def _is_finer(parts: IntArray, other: IntArray) -> bool:
    """Whether every part is inside one of the other's."""
    pairs = np.unique(parts * (int(other.max()) + 1) + other)
    return len(pairs) == int(parts.max()) + 1


def _numbers(
    topology: Topology, colour: IntArray, parts: IntArray, group: IntArray
) -> Iterator[Sequence[IntArray]]:
    """Yield places of parts inside the groups of parts that they are in."""
    own = group[np.unique(parts, return_index=True)[1]]
    kind = _colours_of(parts, colour)
    members = np.split(np.argsort(own, kind="stable"), np.cumsum(np.bincount(own))[:-1])
    around = _neighbours(topology, parts, group)
    walks = [_walk(around, each, kind) for each in members if around]
    shapes = {None if walk is None else walk[0].moduli for walk in walks}
    if None in shapes or len(shapes) != 1:
        yield tuple(_counted(members, kind)[:, parts])
        return
    table = np.zeros((len(next(iter(shapes)) or ()) + 1, len(own)), dtype=np.int64)
    for each, walk in zip(members, walks, strict=True):
        assert walk is not None
        table[:-1, each], table[-1, each] = walk[0].digits(walk[1][0]), walk[1][1]
    still = np.zeros_like(parts)
    for row in table[:-1]:
        yield row[parts], still
    yield still, table[-1][parts]


def _counted(members: list[IntArray], kind: IntArray) -> IntArray:
    """Number parts of each group in any order, as far as there are equally many of all kinds.

    Row 0 has numbers that a shift may change, row 1 what is left of them.
    """
    places = np.zeros((2, len(kind)), dtype=np.int64)
    for each in members:
        names, counts = np.unique(kind[each], return_counts=True)
        shared, before = math.gcd(*counts.tolist()), 0
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            chosen, place = each[kind[each] == name], np.arange(count)
            places[0, chosen], places[1, chosen] = place % shared, before + place // shared
            before += count // shared
    return places


def _walk(
    around: list[dict[int, int]], members: IntArray, kind: IntArray
) -> tuple[Lattice, IntArray] | None:
    """Coordinates of parts that are linked to each other, see `coordinates`; None without any."""
    number = {part: i for i, part in enumerate(members.tolist())}
    links = [{number[y]: k for y, k in around[x].items()} for x in number]
    colour = kind[members].tolist()
    kinds = {k for each in links for k in each.values()}
    if len(kinds) == 1 and len(set(colour)) == 1 and all(len(x) == len(links) - 1 for x in links):
        # Each is linked to each: any order will do.
        return Lattice((len(links),)), np.stack([np.arange(len(links)), np.zeros_like(members)])
    if not all(links):
        return None
    lattice, places = coordinates(Graph(links, colour))
    return (lattice, places) if lattice.order > 1 else None


def _colours_of(parts: IntArray, colour: IntArray) -> IntArray:
    """By part a number for the colours of its GPUs."""
    order = np.lexsort((colour, parts))
    cuts = np.cumsum(np.bincount(parts))[:-1]
    seen: dict[bytes, int] = {}
    pieces = np.split(colour[order], cuts)
    return np.array([seen.setdefault(each.tobytes(), len(seen)) for each in pieces])


def _neighbours(topology: Topology, parts: IntArray, group: IntArray) -> list[dict[int, int]]:
    """By part, those of its group that links of GPUs lead to or from, and a number for their kinds.

    Empty if there are none at all.
    """
    rank = np.full(topology.num_nodes, -1)
    rank[topology.gpus] = np.arange(topology.num_gpus)
    src, dst = rank[topology.link_src], rank[topology.link_dst]
    chosen = np.flatnonzero((src >= 0) & (dst >= 0))
    src, dst, kind = src[chosen], dst[chosen], 2 * topology.link_kind[chosen]
    chosen = np.flatnonzero((group[src] == group[dst]) & (parts[src] != parts[dst]))
    a, b, kind = parts[src[chosen]], parts[dst[chosen]], kind[chosen]
    if not len(a):
        return []
    rows = np.stack([np.append(a, b), np.append(b, a), np.append(kind, kind + 1)])
    rows = rows[:, np.lexsort(rows[::-1])]
    cuts = np.flatnonzero(np.diff(rows[:2]).any(axis=0)) + 1
    around: list[dict[int, int]] = [{} for _ in range(int(parts.max()) + 1)]
    seen: dict[bytes, int] = {}
    for kinds, first in zip(np.split(rows[2], cuts), [0, *cuts.tolist()], strict=True):
        near, far = rows[:2, first].tolist()
        around[near][far] = seen.setdefault(kinds.tobytes(), len(seen))
    return around
