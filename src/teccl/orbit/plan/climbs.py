"""Climbs: link orbits from GPUs up to switches of some level, or down from there, and who meets.

The *level* of a switch is its distance from GPUs. Two GPUs meet above where both can climb to one
switch. If they are in different blocks, which nothing below that level joins, then the switches of
one climb are not those of the other, so that the way passes each switch once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from teccl._arrays import BoolArray, IntArray
from teccl.orbit.fabric import Fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """Link orbits between GPUs and the switches of a level, from the GPUs on.

    Parameters
    ----------
    orbits
        One for each level.
    places
        Node orbits of the switches, one for each level.
    is_fall
        Whether the links lead to the GPUs.
    tables
        By level and node there, the link that is taken, -1 where none.
    """

    orbits: tuple[int, ...]
    places: tuple[int, ...]
    is_fall: bool
    tables: tuple[IntArray, ...] = ()

    @property
    def apex(self) -> int:
        """Orbit of the highest switches."""
        return self.places[-1]

    def ends(self, fabric: Fabric, links: IntArray) -> tuple[IntArray, IntArray]:
        """Ends of links near the GPUs and away from them."""
        src, dst = fabric.link_ends(links)
        return (dst, src) if self.is_fall else (src, dst)

    def links(self, fabric: Fabric, ranks: IntArray) -> Iterator[IntArray]:
        """Yield the links of each level for some ranks."""
        nodes = ranks
        for table in self.tables:
            links = table[nodes]
            yield links
            nodes = self.ends(fabric, links)[1]

    def switches(self, fabric: Fabric) -> IntArray:
        """By rank, the first switch, counted without the GPUs; -1 where none."""
        found = np.full(fabric.num_gpus, -1, dtype=np.int64)
        near, far = self.ends(fabric, fabric.links_of(self.orbits[0]))
        found[near] = far - fabric.num_gpus
        return found

    def towards(self, fabric: Fabric, goals: BoolArray) -> "Climb":
        """Return the climb with tables of links that lead to some of the highest switches."""
        tables = []
        for orbit in reversed(self.orbits):
            links = fabric.links_of(orbit)
            near, far = self.ends(fabric, links)
            kept = np.flatnonzero(goals[far])[::-1]
            table = np.full(fabric.num_nodes, -1, dtype=np.int64)
            table[near[kept]] = links[kept]
            tables.append(table)
            goals = table >= 0
        return replace(self, tables=tuple(tables[::-1]))


def climbs(fabric: Fabric, free: list[int], *, is_fall: bool) -> list[Climb]:
    """List all climbs over some link orbits that go up by a level with each."""
    level = _levels(fabric, free)
    ends = {
        i: (fabric.links[i].dst, fabric.links[i].src)
        if is_fall
        else (fabric.links[i].src, fabric.links[i].dst)
        for i in free
    }
    upward = [i for i, (near, far) in ends.items() if level[far] == level[near] + 1]
    found = [
        Climb(orbits=(i,), places=(ends[i][1],), is_fall=is_fall)
        for i in upward
        if level[ends[i][0]] == 0
    ]
    everybody = np.ones(fabric.num_nodes, dtype=bool)
    latest = found = [climb.towards(fabric, everybody) for climb in found]
    while latest:
        latest = [
            replace(climb, orbits=(*climb.orbits, i), places=(*climb.places, ends[i][1]), tables=())
            for climb in latest
            for i in upward
            if ends[i][0] == climb.apex
        ]
        found = [*found, *latest]
    return found


def _levels(fabric: Fabric, free: list[int]) -> dict[int, int]:
    """By node orbit, links from GPUs on, far away where it cannot be reached."""
    level = {i: 0 if not node.is_switch else 2**30 for i, node in enumerate(fabric.nodes)}
    changed = True
    while changed:
        changed = False
        for i in free:
            a, b = fabric.links[i].src, fabric.links[i].dst
            for near, far in ((a, b), (b, a)):
                if level[near] + 1 < level[far]:
                    level[far] = level[near] + 1
                    changed = True
    return level


class Hubs:
    """Blocks of GPUs that switches of each level join, found once for each choice of switches."""

    def __init__(self, fabric: Fabric, free: list[int]) -> None:
        self.fabric = fabric
        self._free = free
        self._labels: dict[frozenset[int], IntArray] = {}
        self._first: dict[frozenset[int], int] = {}
        self._following = fabric.num_switches

    def of(self, rise: Climb, fall: Climb) -> tuple[Climb, Climb, IntArray, IntArray] | None:
        """Return a rise and a fall that meet in one switch a hub, and by rank hub and block.

        None where the blocks are not joined, or somebody in a hub cannot climb to its switch.
        """
        fabric = self.fabric
        inner = frozenset((*rise.places[:-1], *fall.places[:-1]))
        outer = inner | {rise.apex}
        label, block = self._joined(outer), self._joined(inner)
        ranks = np.arange(fabric.num_gpus)
        if len(np.unique(label[ranks])) == len(np.unique(block[ranks])):
            return None
        apex = fabric.nodes_of(rise.apex)
        goals = np.zeros(fabric.num_nodes, dtype=bool)
        goals[apex[np.unique(label[apex], return_index=True)[1]]] = True
        climbing = [climb.towards(fabric, goals) for climb in (rise, fall)]
        for climb in climbing:
            near = climb.ends(fabric, fabric.links_of(climb.orbits[0]))[0]
            if (climb.tables[0][near] < 0).any():
                return None
        if outer not in self._first:
            self._first[outer] = self._following
            self._following += int(label[ranks].max()) + 1
        return *climbing, self._first[outer] + label[ranks], block[ranks]  # type: ignore[return-value]

    def _joined(self, places: frozenset[int]) -> IntArray:
        """By node, the part that some orbits of switches join with the GPUs."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        if places not in self._labels:
            fabric, ends = self.fabric, [np.empty((2, 0), dtype=np.int64)]
            for i in self._free:
                link = fabric.links[i]
                both = [fabric.nodes[end].is_switch for end in (link.src, link.dst)]
                inside = all(
                    not is_switch or end in places
                    for is_switch, end in zip(both, (link.src, link.dst), strict=True)
                )
                if any(both) and inside:
                    ends.append(np.stack(fabric.link_ends(fabric.links_of(i))))
            src, dst = np.concatenate(ends, axis=1)
            count = fabric.num_nodes
            graph = coo_array((np.ones(len(src)), (src, dst)), shape=(count, count))
            labels = connected_components(graph, directed=False)[1]
            self._labels[places] = labels.astype(np.int64)
        return self._labels[places]
