r"""The timed length bound: links have prices that change over time, and data must pay its way.

Give every link e a price :math:`y_e(t) \ge 0` for each byte that enters it at time t. A byte of
pair k pays at least :math:`D_k(T)` on any way that begins when it is ready and ends by T, waiting
included, and links take in no more than their rates. So if all is over by T,

.. math:: \sum_e \int C_e(t) \, y_e(t) \, dt \ge \sum_k b_k \, D_k(T) .

Prices are constant on intervals of a grid. Ways are looked for from interval to interval, a hop
taking its latency rounded down, so that they may come out cheaper than they are, never dearer.
Where latency and bandwidth weigh alike this shows what lengths that stay as they are do not: a
relay cannot fill its links before anything has come to it, and no long way may begin late.

Any prices will do. Good ones are the dual of a flow over time in which nodes that look alike are
one; they are rounded to whole numbers and judged exactly.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teccl.bounds.lengths import RESOLUTION, Mask, cost_of, unicast_load
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.timed_flow import Course, Intervals, TimedFlow
from teccl.bounds.windows import FAR, Change, IntArray, least_time
from teccl.keywords import SwitchMode
from teccl.units import display_time

# Intervals of the grid, and the fewest that are worth a look.
INTERVALS, FEWEST = 128, 16
# Columns of the flow, and looks at links for the cheapest ways.
MAX_COLUMNS, MAX_LOOKS = 12_000, 20_000_000
# Flows that are solved for one bound.
MAX_FLOWS = 4
# A longest way that takes less than this part of the time leaves next to nothing to gain.
SHORT_WAY = 100


def timed_length_bounds(network: Network, least: int) -> list[Bound]:
    """Return the bound for unicasts if it is above what is known, for fluid data.

    Parameters
    ----------
    least
        The best bound that is known.
    """
    is_joined = network.problem.switch is SwitchMode.HYPER_EDGE
    is_joined &= network.problem.topology.num_switches > 0
    load = None if not network.fluid or is_joined else unicast_load(network)
    if load is None or min(map(len, map(np.unique, load.pairs[:2]))) < 2:
        # What comes from one place, or to one, has a quickest flow that is exact.
        return []
    course = Course.of(network, load.pairs)
    if not 0 < course.longest < least < SHORT_WAY * course.longest:
        return []
    value = _best(course, least)
    text = (
        "no flow over time has all pairs served sooner: relays wait for what they pass on, and "
        f"the longest way takes {display_time(course.longest / 1e12)}"
    )
    return [Bound(kind="timed-lengths", value=value, certificate=text)] if value > least else []


def _best(course: Course, least: int) -> int:
    """Return the latest time that prices prove, sought by the share of the data that flows by T."""
    flow = TimedFlow.of(course, most=MAX_COLUMNS // FEWEST)
    interval = None if flow is None else _interval(course, least, flow.columns)
    if flow is None or interval is None:
        return 0
    until, best = least, 0
    time, before = course.longest, 0.0
    for _ in range(MAX_FLOWS):
        grid = Intervals(interval, until)
        found = flow.prices(grid)
        if found is None:
            return best
        share, prices = found
        best = max(best, _proven(course, grid, prices))
        # The share grows about evenly with time.
        slope = (share - before) / (until - time) if until != time else 0.0
        time, before = until, share
        following = until + int((1 - share) / slope) if slope > 0 else 0
        if abs(following - until) * RESOLUTION <= until * 1000 or following <= best:
            return best
        until = following
    return best


def _interval(course: Course, until: int, columns: int) -> int | None:
    """Return an interval that divides latencies with little loss; None if none is fine enough."""
    count = min(INTERVALS, MAX_COLUMNS // max(1, columns))
    looks = len(np.unique(course.pairs.source)) * len(course.onward)
    count = min(count, MAX_LOOKS // looks)
    if count < FEWEST:
        return None
    least = -(-until // count)
    kinds, weight = np.unique(course.onward[course.onward > 0], return_counts=True)
    tries = {least, *(int(kind) // part for kind in kinds for part in (1, 2, *_parts(kind, least)))}
    fine = [each for each in tries if least <= each <= until // FEWEST]
    return min(fine, key=lambda each: ((kinds % each * weight).sum(), each), default=least)


def _parts(latency: int, least: int) -> Iterator[int]:
    """Yield into how many intervals of a least length a latency may be cut, most first."""
    most = int(latency) // least
    yield from range(most, max(0, most - FEWEST), -1)


def _proven(course: Course, grid: Intervals, prices: IntArray) -> int:
    """Return the latest time at which not all can have been paid for, at most the grid's end."""
    cost = _least_costs(course, grid, prices)
    paid = cost[course.pairs.target, course.row]
    work = cost_of(course.pairs, paid)
    if (paid >= FAR).any() or not work:
        return 0
    return min(grid.until, least_time(_room(course, grid, prices), work))


def _room(course: Course, grid: Intervals, prices: IntArray) -> Iterator[Change]:
    """Yield how what links can be paid grows with T: every interval until T less the link's tail.

    Links of a kind are alike at every moment, so that few changes stand for many links.
    """
    totals: dict[tuple[int, int, int, int], int] = {}
    steps = {id(each): each for each in course.network.steps}
    for link, number in np.argwhere(prices > 0).tolist():
        key = (
            id(course.network.steps[link]),
            number,
            int(course.head[link]),
            int(course.tail[link]),
        )
        totals[key] = totals.get(key, 0) + int(prices[link, number])
    for (kind, number, head, tail), price in totals.items():
        opened, closed = max(number * grid.interval, head), (number + 1) * grid.interval
        ends = [*(start for start, _ in steps[kind][1:]), Fraction(int(FAR))]
        for (start, rate), end in zip(steps[kind], ends, strict=True):
            since, till = max(start, Fraction(opened)), min(end, Fraction(closed))
            if since < till:
                yield since + tail, rate * price
                yield till + tail, -rate * price


def _least_costs(course: Course, grid: Intervals, prices: IntArray) -> IntArray:
    """Return what the cheapest ways to every node cost from each source, if they end in time."""
    topology = course.network.problem.topology
    count, lag = grid.number, grid.first(course.onward)
    cost = np.full((count, topology.num_nodes, course.starts.shape[1]), FAR)
    for row, (source, ready) in enumerate(course.starts.T.tolist()):
        cost[ready // grid.interval :, source, row] = 0
    opens, closes = grid.first(course.head), grid.last(course.tail)
    groups = [
        _Group.of(np.flatnonzero(lag == each), int(each), topology.link_dst)
        for each in np.unique(lag)
    ]
    for number in range(count):
        if number:
            np.minimum(cost[number], cost[number - 1], out=cost[number])
        is_open = (opens <= number) & (number <= closes)
        # Hops that take no interval may follow one another; others come after all of these.
        for group in groups:
            while group.relax(cost, number, prices, is_open, topology.link_src) and not group.lag:
                pass
    return cost[-1]


class _Group(NamedTuple):
    """Links whose hops take equally many intervals, by where they lead to."""

    links: IntArray
    nodes: IntArray
    begins: IntArray
    lag: int

    @staticmethod
    def of(links: IntArray, lag: int, heads: IntArray) -> "_Group":
        links = links[np.argsort(heads[links], kind="stable")]
        nodes, begins = np.unique(heads[links], return_index=True)
        return _Group(links, nodes, begins, lag)

    def relax(
        self, cost: IntArray, number: int, prices: IntArray, is_open: Mask, tails: IntArray
    ) -> bool:
        """Try all hops that begin in an interval; whether one made a way cheaper."""
        if number + self.lag >= len(cost):
            return False
        ways = cost[number, tails[self.links]] + prices[self.links, number, None]
        ways[~is_open[self.links]] = FAR
        least = np.minimum.reduceat(ways, self.begins, axis=0)
        there = cost[number + self.lag]
        is_better = bool((least < there[self.nodes]).any())
        there[self.nodes] = np.minimum(there[self.nodes], least)
        return is_better
