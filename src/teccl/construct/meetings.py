"""Meetings: passages in which contributions are added in a switch, which copies the sum at once.

In-network sums (SHARP, NVLS) need not end at a GPU: what comes together in a switch that reduces
may leave it on several links. Ways lead up to a meeting point and down from it, through switches
alone; each switch is crossed once, since it holds nothing and one transfer passes it once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from teccl.construct.instance import IntArray
from teccl.construct.params import NEVER
from teccl.topology import Topology


class Meeting(NamedTuple):
    """Links with when each is entered, and GPUs with when they have what comes."""

    hops: list[tuple[int, int]]
    outs: list[tuple[int, int]]


class Meetings:
    """Finds passages over switches that reduce, by turns where there are several.

    Parameters
    ----------
    topology
        The network.
    hold, latency
        For how long each link is held, and what it adds to that until a chunk is over it.
    """

    def __init__(self, topology: Topology, hold: IntArray, latency: IntArray) -> None:
        self._topology = topology
        self._length = hold + latency
        self._hold = hold
        self._load = np.zeros(topology.num_links, dtype=np.int64)
        nodes = enumerate(topology.nodes)
        self._points = [number for number, node in nodes if node.is_switch and node.reduce]
        self._ways = {point: self._ways_of(point) for point in self._points}

    def _ways_of(self, point: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        src, dst = self._topology.link_src, self._topology.link_dst
        up = _nearest(self._topology, self._length, point, dst, src)
        down = _nearest(self._topology, self._length, point, src, dst)
        return *up, *down

    def passage(self, sources: Sequence[int], goals: Sequence[int]) -> Meeting | None:
        """Return the passage whose links are free soonest; None where no switch can serve."""
        found = [self._through(point, sources, goals) for point in self._points]
        possible = [each for each in found if each is not None]
        if not possible:
            return None
        links = [np.array([link for link, _ in each.hops]) for each in possible]
        ends = [
            max(when for _, when in each.outs) + int(self._load[used].max())
            for each, used in zip(possible, links, strict=True)
        ]
        best = int(np.argmin(ends))
        self._load[links[best]] += self._hold[links[best]]
        return possible[best]

    def _through(self, point: int, sources: Sequence[int], goals: Sequence[int]) -> Meeting | None:
        """Return the passage that meets in a switch; None where ways meet otherwise, too."""
        topology = self._topology
        until, onward, since, entry = self._ways[point]
        if until[list(sources)].max() >= NEVER or since[list(goals)].max() >= NEVER:
            return None
        src, dst = topology.link_src, topology.link_dst
        up = _followed(sources, onward, dst, point)
        down = _followed(goals, entry, src, point)
        joints, count = np.unique(dst[up], return_counts=True)
        reduces = all(topology.nodes[node].reduce for node in joints[count > 1].tolist())
        if not reduces or set(dst[up].tolist()) & set(src[down].tolist()) != {point}:
            return None
        shared = [name for link in (*up, *down) for name in topology.links[link].shares]
        if len(set(shared)) < len(shared):
            return None
        meet = int(until[list(sources)].max())
        hops = [(link, meet - int(until[src[link]])) for link in up]
        hops += [(link, meet + int(since[src[link]])) for link in down]
        return Meeting(hops, [(node, meet + int(since[node])) for node in goals])


def _nearest(
    topology: Topology, length: IntArray, point: int, near: IntArray, far: IntArray
) -> tuple[IntArray, IntArray]:
    """Return how far nodes are from a switch through switches alone, and each one's link there.

    `near` and `far` are the ends of links towards the switch and away from it.
    """
    distance = np.full(topology.num_nodes, NEVER)
    distance[point] = 0
    usable = np.flatnonzero(topology.is_switch[near])
    while True:
        found = distance.copy()
        np.minimum.at(found, far[usable], distance[near[usable]] + length[usable])
        if np.array_equal(found, distance):
            break
        distance = found
    tight = usable[distance[near[usable]] + length[usable] == distance[far[usable]]]
    link_of = np.full(topology.num_nodes, -1)
    # The first of equals: later ones are overwritten by it.
    link_of[far[tight[::-1]]] = tight[::-1]
    return distance, link_of


def _followed(nodes: Sequence[int], link_of: IntArray, end: IntArray, point: int) -> list[int]:
    """Return the links on the ways between nodes and a switch, each once."""
    used: dict[int, None] = {}
    for node in nodes:
        here = node
        while here != point and int(link_of[here]) not in used:
            used[int(link_of[here])] = None
            here = int(end[link_of[here]])
    return list(used)
