"""Flows over time on a grid of intervals, whose dual prices links at every moment.

Sources that look alike share one flow, and from a source nodes and links that look alike are one
class each, with what all of them carry together. Looks are colours: two nodes of one colour have
equally many links of each kind to nodes of each colour. For networks of few colours the flow is
tiny whatever their size.
"""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from teccl._graphs import stable_colours
from teccl.bounds.lengths import RESOLUTION, Pairs
from teccl.bounds.network import Network, all_distances
from teccl.bounds.patience import solver_limit_s
from teccl.bounds.windows import FAR, FloatArray, IntArray, carried


class Course(NamedTuple):
    """What has to move, how long each hop takes, and when links can be of use.

    Parameters
    ----------
    network, pairs
        Where, and what.
    starts, row
        Sources with the times at which their data is ready, and which of them each pair has.
    onward, distance
        Least time of each hop and between nodes.
    head, tail
        Least time before each link, and from its start on, over all pairs.
    """

    network: Network
    pairs: Pairs
    starts: IntArray
    row: IntArray
    onward: IntArray
    distance: IntArray
    head: IntArray
    tail: IntArray

    @staticmethod
    def of(network: Network, pairs: Pairs) -> "Course":
        """Collect distances and windows."""
        topology, onward = network.problem.topology, network.onward
        distance = all_distances(network.problem, onward)
        starts, row = np.unique(np.stack([pairs.source, pairs.ready]), axis=1, return_inverse=True)
        before = (distance[starts[0]] + starts[1][:, None]).min(axis=0)
        after = distance[:, np.unique(pairs.target)].min(axis=1)
        head = np.minimum(before[topology.link_src], FAR)
        tail = np.minimum(after[topology.link_dst] + onward, FAR)
        return Course(network, pairs, starts, row.reshape(-1), onward, distance, head, tail)

    @property
    def longest(self) -> int:
        """Least time of the pair that takes longest."""
        times = self.distance[self.pairs.source, self.pairs.target] + self.pairs.ready
        return int(times.max())


class Intervals(NamedTuple):
    """Intervals of equal length from nought to a time T that is to be judged."""

    interval: int
    until: int

    @property
    def number(self) -> int:
        """How many there are; the last may be cut short."""
        return -(-self.until // self.interval)

    def first(self, since: IntArray) -> IntArray:
        """Return the intervals in which times lie."""
        return since // self.interval

    def last(self, tail: IntArray) -> IntArray:
        """Return the last intervals in which something may begin that takes so long."""
        return -((tail - self.until) // self.interval) - 1


class _Arcs(NamedTuple):
    """A source that stands for several alike, with the classes of nodes and links seen from it.

    Parameters
    ----------
    alike
        Sources that it stands for.
    origin, ready, wanted
        Class of the source, when its data is ready, and what each class of nodes wants of it.
    tail, head
        Classes of nodes that each class of links connects.
    kind, onward
        Kind of its links, and the time that they take.
    opens, closes
        Least time before a link of each class, and from its start on.
    """

    alike: int
    origin: int
    ready: int
    wanted: FloatArray
    tail: IntArray
    head: IntArray
    kind: IntArray
    onward: IntArray
    opens: IntArray
    closes: IntArray

    def windows(self, grid: Intervals) -> tuple[IntArray, IntArray]:
        """First interval of each class of links, and in how many it can be of use."""
        first = grid.first(self.opens)
        return first, np.maximum(0, grid.last(self.closes) - first + 1)


class TimedFlow(NamedTuple):
    """The flow over time of all pairs.

    Parameters
    ----------
    course
        What has to move.
    kind, sample, size
        Kind of each link, one link of each kind, and how many there are.
    arcs
        Sources that look different.
    """

    course: Course
    kind: IntArray
    sample: IntArray
    size: IntArray
    arcs: list[_Arcs]

    @staticmethod
    def of(course: Course, *, most: int) -> "TimedFlow | None":
        """Find what looks alike; None where more than so many classes are left."""
        topology = course.network.problem.topology
        colour = _node_colours(course)
        ends = np.stack([_link_kinds(course), colour[topology.link_src], colour[topology.link_dst]])
        _, sample, kind, size = np.unique(
            ends, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        kind = kind.reshape(-1)
        looks = np.stack([colour[course.starts[0]], course.starts[1]])
        _, chosen, counts = np.unique(looks, axis=1, return_index=True, return_counts=True)
        flow = TimedFlow(course, kind, sample, size, [])
        for start, count in zip(chosen.tolist(), counts.tolist(), strict=True):
            flow.arcs.append(_seen_from(course, colour, kind, start, count))
            if flow.columns > most:
                return None
        return flow

    @property
    def columns(self) -> int:
        """Columns of the flow for each interval."""
        return sum(len(arcs.tail) + len(arcs.wanted) for arcs in self.arcs)

    def prices(self, grid: Intervals) -> tuple[float, IntArray] | None:
        """Return the share of the data that can flow by the end, and whole prices that show it.

        Prices are for each link and interval; None if there is no such flow, or no time to
        find it.
        """
        # Of many prices that are as good, commands and the library must take the same ones.
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        model = _Model.of(self.arcs, grid)
        places, row = np.unique(model.place, return_inverse=True)
        kinds, number = np.divmod(places, grid.number)
        cost = np.zeros(model.width)
        cost[0] = -1.0
        shape = len(places), model.width
        load: Any = coo_array((model.weight, (row.reshape(-1), model.column)), shape=shape)
        balance: Any = coo_array(model.balance, shape=(model.height, model.width))
        result = linprog(
            cost,
            A_ub=load.tocsr(),
            b_ub=self._room(grid, kinds, number) / model.unit,
            A_eq=balance.tocsr(),
            b_eq=np.zeros(model.height),
            method="highs",
            options={"time_limit": solver_limit_s()},
        )
        if result.status != 0:
            return None
        price = np.maximum(-result.ineqlin.marginals, 0)
        whole = np.zeros((len(self.size), grid.number), dtype=np.int64)
        if price.max(initial=0) > 0:
            whole[kinds, number] = np.round(price / price.max() * RESOLUTION)
        return -float(result.fun or 0), whole[self.kind]

    def _room(self, grid: Intervals, kinds: IntArray, number: IntArray) -> FloatArray:
        """Bytes that all links of each kind take in during an interval, up to the end of use."""
        course = self.course
        links = self.sample[kinds]
        opened = np.maximum(number * grid.interval, course.head[links])
        closed = np.minimum((number + 1) * grid.interval, grid.until - course.tail[links])
        steps = [course.network.steps[link] for link in links.tolist()]
        room = [
            float(carried(each, since, max(since, till)))
            for each, since, till in zip(steps, opened.tolist(), closed.tolist(), strict=True)
        ]
        return np.array(room) * self.size[kinds]


class _Model(NamedTuple):
    """The flow as a linear program: column 0 is the share of the data that flows.

    Parameters
    ----------
    unit
        Bytes that amounts are counted in.
    width, height
        Columns, and rows of balance.
    balance
        What columns bring to classes of nodes in intervals, and take from them.
    column, place, weight
        Which columns load a kind of links in an interval, and for how many sources.
    """

    unit: float
    width: int
    height: int
    balance: tuple[FloatArray, tuple[IntArray, IntArray]]
    column: IntArray
    place: IntArray
    weight: FloatArray

    @staticmethod
    def of(sources: list[_Arcs], grid: Intervals) -> "_Model":
        """Lay out columns and rows, source by source."""
        width, height, count = 1, 0, grid.number
        unit = max(float(arcs.wanted.max()) for arcs in sources)
        entries: list[tuple[IntArray, IntArray, FloatArray]] = []
        loads: list[tuple[IntArray, IntArray, FloatArray]] = []
        for arcs in sources:
            opens, times = arcs.windows(grid)
            each = np.repeat(np.arange(len(times)), times)
            number = np.arange(len(each)) - np.repeat(np.cumsum(times) - times, times) + opens[each]
            column = width + np.arange(len(each))
            leaves = height + arcs.tail[each] * count + number
            comes = height + arcs.head[each] * count + number + grid.first(arcs.onward)[each]
            entries += [(leaves, column, -np.ones(len(each))), (comes, column, np.ones(len(each)))]
            loads.append((column, arcs.kind[each] * count + number, np.full(len(each), arcs.alike)))
            width += len(each)
            # What waits from one interval to the next.
            nodes = len(arcs.wanted)
            stays = (height + np.arange(nodes)[:, None] * count + np.arange(count - 1)).ravel()
            column = width + np.arange(len(stays))
            entries += [
                (stays, column, -np.ones(len(stays))),
                (stays + 1, column, np.ones(len(stays))),
            ]
            width += len(stays)
            ends = height + np.arange(nodes) * count + count - 1
            begin = np.array([height + arcs.origin * count + arcs.ready // grid.interval])
            share = arcs.wanted / unit
            entries += [
                (ends, np.zeros(nodes, dtype=np.int64), -share),
                (begin, np.zeros(1, dtype=np.int64), share.sum(keepdims=True)),
            ]
            height += nodes * count
        rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        column, place, weight = (np.concatenate(parts) for parts in zip(*loads, strict=True))
        return _Model(unit, width, height, (values, (rows, columns)), column, place, weight)


def _node_colours(course: Course) -> IntArray:
    """Numbers for nodes that look different, also when each of them in turn is singled out.

    Looks are made of links and of what nodes want and have. In a regular graph all nodes look
    alike at first; from each by itself the rest does not.
    """
    topology, pairs = course.network.problem.topology, course.pairs
    links = _link_kinds(course)
    amount = _numbered(pairs.amount)
    wants = np.unique(np.stack([amount, pairs.ready]), axis=1, return_inverse=True)[1].reshape(-1)
    arcs = (
        np.concatenate([topology.link_src, pairs.source]),
        np.concatenate([topology.link_dst, pairs.target]),
        np.concatenate([links, wants + len(links)]),
    )
    alike = stable_colours(*arcs, topology.is_switch.astype(np.uint64))
    apart = np.zeros_like(alike)
    for node in range(topology.num_nodes):
        single = alike.copy()
        single[node] += np.uint64(1)
        seen = stable_colours(topology.link_src, topology.link_dst, links, single)
        apart[node] = np.sort(seen).dot(np.arange(1, len(seen) + 1, dtype=np.uint64))
    colour = stable_colours(*arcs, apart)
    return np.unique(colour, return_inverse=True)[1].reshape(-1)


def _numbered(values: Iterable[Hashable]) -> IntArray:
    """Return equal numbers for equal values."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def _link_kinds(course: Course) -> IntArray:
    """Numbers for links that differ in rate or latency."""
    return _numbered(zip(course.network.steps, course.onward.tolist(), strict=True))


def _seen_from(course: Course, colour: IntArray, kind: IntArray, start: int, alike: int) -> _Arcs:
    """Return the classes of nodes and links as seen from one source."""
    topology, pairs = course.network.problem.topology, course.pairs
    source, ready = course.starts[:, start].tolist()
    wanted = np.zeros(topology.num_nodes)
    mine = np.flatnonzero(course.row == start)
    np.add.at(wanted, pairs.target[mine], [float(pairs.amount[i]) for i in mine.tolist()])
    own = np.stack([colour, _numbered(wanted.tolist()), np.arange(len(wanted)) == source])
    looks = np.unique(own, axis=1, return_inverse=True)[1].reshape(-1)
    hashes = stable_colours(topology.link_src, topology.link_dst, kind, looks.astype(np.uint64))
    looks = np.unique(hashes, return_inverse=True)[1].reshape(-1)
    ends = np.stack([looks[topology.link_src], looks[topology.link_dst], kind])
    (tail, head, kinds), sample = np.unique(ends, axis=1, return_index=True)
    onward = course.onward[sample]
    away = course.distance[:, pairs.target[mine]].min(axis=1)
    closes = np.minimum(away[topology.link_dst[sample]] + onward, FAR)
    opens = np.minimum(course.distance[source, topology.link_src[sample]] + ready, FAR)
    # What comes back to its source has gone in vain.
    is_used = topology.link_dst[sample] != source
    return _Arcs(
        alike=alike,
        origin=int(looks[source]),
        ready=ready,
        wanted=np.bincount(looks, wanted).astype(float),
        tail=tail[is_used],
        head=head[is_used],
        kind=kinds[is_used],
        onward=onward[is_used],
        opens=opens[is_used],
        closes=closes[is_used],
    )
