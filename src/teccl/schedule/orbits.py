"""Orbits: a schedule that shifts of the fabric repeat, as the sends of one chunk of each orbit.

A *shift* is a permutation of the nodes. It takes a link to the link between its ends' images and a
chunk to the one with the images of its sources and destinations. All products of powers of the
shifts, which commute, make the whole schedule from the sends of one chunk of each orbit: on a torus
of 4096 GPUs those are 4095 sends in place of 16.8 million.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.schedule.sends import SEND_DTYPE, IntArray, Schedule, SendArray

# Sends that a file may stand for: those of 8192 GPUs.
MAX_SENDS = 2**26
# Columns that two schedules with the same sends agree on; transfers are only names.
_COMPARED = ("start_ps", "link", "chunk", "epoch", "reduce")


def folded(schedule: Schedule) -> SendArray | None:
    """Return the sends of one chunk per orbit, None if the shifts do not give the others from them.

    Parameters
    ----------
    schedule
        With the shifts that are said to repeat it.
    """
    problem = schedule.problem
    images = _Images(problem)
    if not images.are_distinct:
        return None
    orbit = np.arange(len(problem.chunks))
    for shift in schedule.shifts:
        chunk = images.chunks(shift, np.arange(len(orbit)))
        if chunk is None:
            return None
        least, power = orbit, orbit[chunk]
        while not np.array_equal(power, orbit):
            least, power = np.minimum(least, power), power[chunk]
        orbit = least
    sends: SendArray = schedule.sends[orbit[schedule.sends["chunk"]] == schedule.sends["chunk"]]
    sends = sends.copy()
    sends["transfer"] = np.unique(sends["transfer"], return_inverse=True)[1]
    try:
        whole = unfolded(problem, schedule.shifts, sends)
    except ScheduleError:
        return None
    if len(whole) != len(schedule.sends):
        return None
    whole = Schedule(problem=problem, sends=whole).sends
    same = all(np.array_equal(whole[name], schedule.sends[name]) for name in _COMPARED)
    tied = _first_seen(whole["transfer"]), _first_seen(schedule.sends["transfer"])
    return sends if same and np.array_equal(*tied) else None


def unfolded(problem: Problem, shifts: Sequence[IntArray], sends: SendArray) -> SendArray:
    """Repeat sends by every product of powers of the shifts.

    Raises
    ------
    ScheduleError
        If the shifts do not take links to links and chunks to chunks, or repeat too much.
    """
    images = _Images(problem)
    chunks, index = np.unique(sends["chunk"], return_inverse=True)
    links = sends["link"]
    names, transfer = np.unique(sends["transfer"], return_inverse=True)
    copies = math.prod(_order(shift) for shift in shifts)
    # Shifts that move every GPU have no more products than there are GPUs.
    if copies > problem.topology.num_gpus or copies * len(sends) > MAX_SENDS:
        raise ScheduleError(f"shifts repeat {len(sends)} sends {copies} times, which is too much")
    if not images.are_distinct:
        raise ScheduleError("some chunks are alike, so that no shift says which goes where")
    whole = np.empty(copies * len(sends), dtype=SEND_DTYPE)
    for i, nodes in enumerate(products(shifts, problem.topology.num_nodes)):
        chunk_image, link_image = images.chunks(nodes, chunks), images.links(nodes)
        if chunk_image is None or link_image is None:
            raise ScheduleError("a shift takes some link or chunk to none")
        part = whole[i * len(sends) : (i + 1) * len(sends)]
        part[:] = sends
        part["chunk"] = chunk_image[index]
        part["link"] = link_image[links]
        part["transfer"] = transfer + i * len(names)
    return whole


def products(shifts: Sequence[IntArray], num_nodes: int) -> Iterator[IntArray]:
    """Yield every product of powers of commuting permutations, the identity first."""
    identity = np.arange(num_nodes)
    powers = []
    for shift in shifts:
        powers.append([identity])
        while not np.array_equal(power := shift[powers[-1][-1]], identity):
            powers[-1].append(power)
    for factors in product(*powers):
        nodes = identity
        for factor in factors:
            nodes = factor[nodes]
        yield nodes


def _order(shift: IntArray) -> int:
    """How often a permutation is applied until everything is back in its place."""
    left, lengths = np.ones(len(shift), dtype=bool), set()
    for first in range(len(shift)):
        node, length = first, 0
        while left[node]:
            left[node] = False
            node, length = int(shift[node]), length + 1
        lengths.add(max(length, 1))
    return math.lcm(*lengths)


class _Images:
    """Where a permutation of the nodes takes links and chunks."""

    def __init__(self, problem: Problem) -> None:
        topology, table = problem.topology, problem.chunks
        self.num_nodes = topology.num_nodes
        self.src, self.dst = topology.link_src, topology.link_dst
        self.by_ends = np.lexsort((self.dst, self.src))
        self.ends = self._pair(self.src, self.dst)[self.by_ends]
        self.sets = table.sets
        self.number = {nodes.tobytes(): i for i, nodes in enumerate(table.sets)}
        self.single = np.full(self.num_nodes, -1, dtype=np.int64)
        for i, nodes in enumerate(table.sets):
            if len(nodes) == 1:
                self.single[nodes[0]] = i
        self.sources, self.destinations = table.source_set, table.destination_set
        rest = np.stack([table.tenant, table.piece, table.size_index, table.reduce], axis=1)
        self.rest = np.unique(rest, axis=0, return_inverse=True)[1].reshape(-1)
        self.num_rest = int(self.rest.max(initial=0)) + 1
        keys = self._keys(self.sources, self.destinations, self.rest)
        self.by_key = np.argsort(keys, kind="stable")
        self.keys = keys[self.by_key]
        self.are_distinct = bool((np.diff(self.keys) > 0).all())

    def links(self, nodes: IntArray) -> IntArray | None:
        """Image of every link; parallel links keep their order."""
        ends = self._pair(nodes[self.src], nodes[self.dst])
        order = np.argsort(ends, kind="stable")
        if not np.array_equal(ends[order], self.ends):
            return None
        image = np.empty(len(ends), dtype=np.int64)
        image[order] = self.by_ends
        return image

    def chunks(self, nodes: IntArray, chunks: IntArray) -> IntArray | None:
        """Image of some chunks."""
        sources = self._set_images(nodes, self.sources[chunks])
        destinations = self._set_images(nodes, self.destinations[chunks])
        if sources.min(initial=0) < 0 or destinations.min(initial=0) < 0:
            return None
        wanted = self._keys(sources, destinations, self.rest[chunks])
        found = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        if not np.array_equal(self.keys[found], wanted):
            return None
        return self.by_key[found]

    def _set_images(self, nodes: IntArray, sets: IntArray) -> IntArray:
        """Number of each set's image, -1 where that is no set of the table."""
        used, index = np.unique(sets, return_inverse=True)
        image = np.empty(len(used), dtype=np.int64)
        for i, number in enumerate(used.tolist()):
            members = self.sets[number]
            if len(members) == 1:
                image[i] = self.single[nodes[members[0]]]
            else:
                image[i] = self.number.get(np.sort(nodes[members]).tobytes(), -1)
        return image[index]

    def _pair(self, src: IntArray, dst: IntArray) -> IntArray:
        return src * self.num_nodes + dst

    def _keys(self, sources: IntArray, destinations: IntArray, rest: IntArray) -> IntArray:
        return (sources * len(self.sets) + destinations) * self.num_rest + rest


def _first_seen(names: npt.NDArray[np.int32]) -> IntArray:
    """Names as numbers in the order in which they first appear."""
    _, first, index = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[index]
