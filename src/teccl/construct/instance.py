"""Instance: a problem as integer arrays, the same shape in picoseconds and in epochs.

The schedulers work on *routes*: one hop from GPU to GPU, either a link or a passage through
switches. Whatever the transit mode, a route is a list of resources (links and shared capacities),
each held for some time from some offset, and an arrival after a fixed length. Continuous time and
the paper's grid differ in these numbers only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from teccl._graphs import strong_components
from teccl.construct.ways import connect_all, ways_of
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.timegrid import TimeGrid
from teccl.topology import Topology

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Ways from GPU to GPU without another GPU between them.

    Parameters
    ----------
    src, dst
        Nodes at the two ends.
    length
        Time from the start to the arrival.
    link_start, links
        CSR list of each route's links, first to last.
    res_start, res, res_offset, res_hold
        CSR list of the resources each route holds: which, from when, for how long.
    """

    src: IntArray
    dst: IntArray
    length: IntArray
    link_start: IntArray
    links: IntArray
    link_offset: IntArray
    res_start: IntArray
    res: IntArray
    res_offset: IntArray
    res_hold: IntArray

    def __len__(self) -> int:
        return len(self.src)

    def ways(self) -> list[tuple[int, ...]]:
        """Links of each route, first to last."""
        links, starts = self.links.tolist(), self.link_start.tolist()
        return [tuple(links[a:b]) for a, b in pairwise(starts)]

    def are_staged(self) -> bool:
        """Whether some lead through several switches."""
        return bool(np.diff(self.link_start).max(initial=0) > 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A problem in integer time.

    Parameters
    ----------
    hold, latency
        Per link: time one chunk occupies it, and time added until it is at the far end.
    slots
        Per resource (links first, then shared capacities): chunks that may be held at once.
    ready
        Per tenant and node: when own data may be sent.
    routes
        All passages between GPUs.
    """

    problem: Problem
    grid: TimeGrid | None
    hold: IntArray
    latency: IntArray
    slots: IntArray
    ready: IntArray
    routes: Routes

    @staticmethod
    def build(
        problem: Problem,
        grid: TimeGrid | None = None,
        *,
        ways: Sequence[tuple[int, ...]] | None = None,
    ) -> "Instance":
        """Express a problem in picoseconds or, with a grid, in epochs.

        Parameters
        ----------
        problem
            What is to be scheduled; its links must be those of the grid's problem, either way
            round.
        grid
            Epochs to count in.
        ways
            Passages to use instead of those found here, timed for the largest chunks.
        """
        topology = problem.topology
        if grid is None:
            hold, latency = problem.hold_ps[:, 0], topology.alpha_ps
            slots = np.ones(topology.num_links + len(topology.shared), dtype=np.int64)
            ready = problem.ready_ps()
        else:
            hold, latency = _longest_kappa(problem, grid), grid.delta
            shared = [grid.shared_epochs(name)[1] for name in topology.shared]
            slots = np.concatenate(
                [_least_capacity(problem, grid), np.array(shared, dtype=np.int64)]
            )
            ready = _ready_epochs(problem, grid)
        ways = ways or ways_of(problem)
        start = _starts([len(way) for way in ways])
        links = np.fromiter(chain.from_iterable(ways), dtype=np.int64, count=int(start[-1]))
        timing = _Timing(problem, grid, hold[links], latency[links])
        return Instance(
            problem=problem,
            grid=grid,
            hold=hold,
            latency=latency,
            slots=slots,
            ready=ready,
            routes=_pack_routes(problem, start, links, timing),
        )

    @property
    def num_resources(self) -> int:
        """Links and shared capacities."""
        return len(self.slots)


def in_own_time(instance: Instance, rows: IntArray) -> tuple[Instance, IntArray]:
    """Return an instance with a route for each chunk size that takes it, and rows that name those.

    Where a grid counts, or all chunks have one size, nothing needs to change.

    Parameters
    ----------
    instance
        Its routes are timed for the largest chunks.
    rows
        Of a plan: chunk and route come first.
    """
    problem = instance.problem
    if instance.grid is not None or len(problem.chunks.sizes) == 1:
        return instance, rows
    taken = rows[:, 1] * len(problem.chunks.sizes) + problem.chunks.size_index[rows[:, 0]]
    pairs, number = np.unique(taken, return_inverse=True)
    route, size = np.divmod(pairs, len(problem.chunks.sizes))
    rows = rows.copy()
    rows[:, 1] = number
    return replace(instance, routes=timed_routes(instance, route, size)), rows


def timed_routes(instance: Instance, route: IntArray, size: IntArray) -> Routes:
    """Return some of an instance's routes in picoseconds, each timed for one chunk size."""
    problem, routes = instance.problem, instance.routes
    low, high = routes.link_start[route], routes.link_start[route + 1]
    links = routes.links[concatenated_ranges(low, high)]
    hold = problem.hold_ps[links, np.repeat(size, high - low)]
    timing = _Timing(problem, None, hold, problem.topology.alpha_ps[links])
    return _pack_routes(problem, _starts(high - low), links, timing)


def without_long_ways(instance: Instance) -> Instance:
    """Return the instance without passages through several switches, where it can do without."""
    ways = instance.routes.ways()
    short = [way for way in ways if len(way) <= 2]
    if len(short) == len(ways) or not connect_all(instance.problem.topology, short):
        return instance
    return Instance.build(instance.problem, instance.grid, ways=short)


def is_joined_by_single_switches(topology: Topology) -> bool:
    """Whether GPUs reach each other by direct links and passages through one switch each."""
    linked = np.unique(np.concatenate([topology.link_src, topology.link_dst]))
    is_switch = topology.is_switch
    kept = ~(is_switch[topology.link_src] & is_switch[topology.link_dst])
    component = strong_components(
        topology.num_nodes, topology.link_src[kept], topology.link_dst[kept]
    )
    return len(np.unique(component[linked[~is_switch[linked]]])) == 1


def _longest_kappa(problem: Problem, grid: TimeGrid) -> IntArray:
    """Kappa of each link at the lowest rate its profile ever gives."""
    if not problem.topology.has_profiles:
        return grid.kappa
    slowest = [grid.epochs_to_send(*cost) for cost in _lowest_rates(problem)]
    return np.array(slowest, dtype=np.int64)


def _least_capacity(problem: Problem, grid: TimeGrid) -> IntArray:
    """Chunks that may start at once on each link, also at the lowest rate its profile ever gives.

    Of a link that is fast at first several may start in an epoch, and only one when it is slow.
    """
    if not problem.topology.has_profiles:
        return grid.capacity
    slowest = [grid.chunks_per_epoch(*cost) for cost in _lowest_rates(problem)]
    return np.array(slowest, dtype=np.int64)


def _lowest_rates(problem: Problem) -> list[tuple[Fraction, Fraction]]:
    """Return the lowest rate that each link ever has, and its overhead."""
    topology = problem.topology
    return [
        (min(rate for _, rate in topology.rate_steps(link)), link.overhead)
        for link in topology.links
    ]


def _ready_epochs(problem: Problem, grid: TimeGrid) -> IntArray:
    table = np.zeros((len(problem.demand.tenants), problem.topology.num_nodes), dtype=np.int64)
    for t, tenant in enumerate(problem.demand.tenants):
        for rank, time in tenant.ready.items():
            table[t, problem.topology.gpus[rank]] = grid.ready_epoch(time)
    return table


class _Timing:
    """Offsets, holding times and arrivals of ways under the problem's transit mode.

    Holding time and latency are given for each link of each way.
    """

    def __init__(
        self, problem: Problem, grid: TimeGrid | None, hold: IntArray, latency: IntArray
    ) -> None:
        self.grid, self.hold, self.latency = grid, hold, latency
        # What a circuit pays once; on the grid it lies in kappa.
        overhead = problem.topology.overhead_ps
        self.overhead = np.zeros_like(overhead) if grid else overhead
        self.alphas = problem.topology.each_link(lambda link: link.alpha)
        self.hyper = problem.switch is SwitchMode.HYPER_EDGE
        self.cut = problem.transit is Transit.CUT_THROUGH

    def __call__(self, start: IntArray, links: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return offset and holding time of each link of the ways, and the ways' lengths."""
        hold, latency = self.hold, self.latency
        count = np.diff(start)
        overhead = self.overhead[links]
        slowest = np.maximum.reduceat(overhead, start[:-1])
        slowest += np.maximum.reduceat(hold - overhead, start[:-1])
        if self.hyper:
            length = slowest + self._summed_latency(start, links)
            return np.zeros_like(hold), np.repeat(slowest, count), length
        # In a circuit the next link begins when the first bit is there, else when all is.
        step = latency if self.cut else latency + hold
        before = np.cumsum(step) - step
        offset = before - np.repeat(before[start[:-1]], count)
        length = np.add.reduceat(step, start[:-1])
        if self.cut:
            return offset, np.repeat(slowest, count), length + slowest
        return offset, hold, length

    def _summed_latency(self, start: IntArray, links: IntArray) -> IntArray:
        if self.grid is None:
            summed: IntArray = np.add.reduceat(self.latency, start[:-1])
            return summed
        each = links.tolist()
        sums = [sum((self.alphas[e] for e in each[a:b]), Fraction(0)) for a, b in pairwise(start)]
        return np.array([self.grid.epochs_of_latency(alpha) for alpha in sums], dtype=np.int64)


def _pack_routes(problem: Problem, start: IntArray, links: IntArray, timing: _Timing) -> Routes:
    topology = problem.topology
    none = np.zeros(0, dtype=np.int64)
    offset, hold, length = timing(start, links) if len(links) else (none, none, none)
    number = {name: topology.num_links + i for i, name in enumerate(topology.shared)}
    held = [[e, *(number[name] for name in link.shares)] for e, link in enumerate(topology.links)]
    held_start = _starts([len(each) for each in held])
    low, high = held_start[links], held_start[links + 1]
    total = np.concatenate([[0], np.cumsum(high - low)])
    resource = concatenated_ranges(low, high)
    return Routes(
        src=topology.link_src[links[start[:-1]]],
        dst=topology.link_dst[links[start[1:] - 1]],
        length=length,
        link_start=start,
        links=links,
        link_offset=offset,
        res_start=total[start],
        res=np.array(list(chain.from_iterable(held)), dtype=np.int64)[resource],
        res_offset=np.repeat(offset, high - low),
        res_hold=np.repeat(hold, high - low),
    )


def concatenated_ranges(low: IntArray, high: IntArray) -> IntArray:
    """Concatenate the integer ranges low[i]..high[i]."""
    counts = high - low
    ends = np.cumsum(counts)
    offsets = np.repeat(low - (ends - counts), counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + offsets


def starts_of(owner: IntArray, count: int) -> IntArray:
    """Where the entries of each of so many owners begin once they are sorted by owner."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])


def _starts(counts: "list[int] | IntArray") -> IntArray:
    return np.concatenate([[0], np.cumsum(np.array(counts, dtype=np.int64))]).astype(np.int64)
