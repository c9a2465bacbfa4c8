"""The numbers bounds are made of: exact rates, latencies, distances and classes of chunks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl._graphs import least_sums
from teccl.bounds.windows import FAR, Gate, IntArray, Steps, fastest_of
from teccl.demand import Collective
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.timegrid import TimeGrid
from teccl.topology import Link, Topology
from teccl.units import PICOSECONDS


class Origin(NamedTuple):
    """Nodes that hold or contribute a chunk, and when each one's data is ready."""

    nodes: IntArray
    ready: IntArray


class NodeSets:
    """Sets of nodes end to end, to be counted together."""

    def __init__(self, sets: Sequence[IntArray]) -> None:
        self.size = np.array([len(nodes) for nodes in sets], dtype=np.int64)
        self._nodes = np.concatenate([*sets, np.empty(0, dtype=np.int64)]).astype(np.int64)
        self._ends = np.cumsum(self.size)

    def count(self, mask: npt.NDArray[np.bool_]) -> IntArray:
        """Return how many nodes of each set a mask has."""
        total = np.concatenate([[0], np.cumsum(mask[self._nodes])])
        return total[self._ends] - total[self._ends - self.size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Chunks that a bound cannot tell apart, one array entry a class.

    Parameters
    ----------
    origins, goals
        The different sets of sources and of destinations.
    origin, goal
        Which of them each class has.
    reduce
        Whether the sources' contributions are combined.
    amount, count, blocks
        Bytes and chunks of the class, and transfers that carry it at least, however it is cut.
    origin_sets, goal_sets
        The nodes of `origins` and `goals`, for counting.
    """

    origins: tuple[Origin, ...]
    goals: tuple[IntArray, ...]
    origin: IntArray
    goal: IntArray
    reduce: npt.NDArray[np.bool_]
    amount: tuple[Fraction, ...]
    count: IntArray
    blocks: IntArray
    origin_sets: NodeSets
    goal_sets: NodeSets

    def __len__(self) -> int:
        return len(self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A problem as bounds see it: in picoseconds (fluid or whole chunks) or in epochs.

    Parameters
    ----------
    rate
        Bytes per picosecond of each link, the largest a profile ever gives.
    steps
        Bytes per picosecond of each link over time.
    step
        Time a chunk needs from the start on a link until it is usable at the far end, at least;
        the latency alone where data is fluid.
    onward
        Time from the start on a link until the next link of the way may start: the step or, in a
        circuit, the latency.
    hold
        Time one whole chunk takes of a link, at least; zero where data is fluid.
    slots
        Chunks a link can take within one holding time.
    distance
        Least time from node to node.
    approach
        Least time from a node's data until it may start to cross a link that leaves another node.
    crossing
        Least time from the start on a link until the chunk may leave at the far end, its own
        holding time included.
    pools
        Links that share a capacity.
    toll
        Bytes that could pass a link in the overhead of one transfer more, at least.
    """

    problem: Problem
    fluid: bool
    on_grid: bool
    rate: tuple[Fraction, ...]
    steps: tuple[Steps, ...]
    step: IntArray
    onward: IntArray
    hold: IntArray
    slots: IntArray
    distance: IntArray
    approach: IntArray
    crossing: IntArray
    classes: Classes
    pools: tuple[Gate, ...]
    toll: tuple[Fraction, ...]

    @property
    def has_circuits(self) -> bool:
        """Whether data begins to leave a switch before it has arrived completely."""
        return _has_circuits(self.problem)

    def gates(self, links: IntArray) -> list[Gate]:
        """Some links as gates; those that share a capacity are one where that is the less."""
        left = set(links.tolist())
        gates = []
        for pool in self.pools:
            inside = [int(e) for e in pool.links if int(e) in left]
            if len(inside) > 1 and pool.rate < sum(self.rate[e] for e in inside):
                left -= set(inside)
                gates.append(pool._replace(links=np.array(inside)))
        for e in sorted(left):
            hold, slots = int(self.hold[e]), int(self.slots[e])
            gates.append(Gate(np.array([e]), self.steps[e], hold, slots, self.toll[e]))
        return gates

    @staticmethod
    def build(problem: Problem, *, grid: TimeGrid | None = None, fluid: bool = False) -> "Network":
        """Collect the numbers; `fluid` allows any chunking."""
        topology = problem.topology
        latency, bytes_take, slots = _link_times(problem, grid, fluid=fluid)
        # On the grid an overhead lies in kappa.
        overhead = np.zeros_like(latency) if grid else _whole(topology, lambda e: e.overhead)
        if grid is not None and problem.switch is SwitchMode.HYPER_EDGE:
            # The sum of a hyper-edge's latencies is rounded up, each of them here down.
            latency = np.where(_touches_switch(problem), np.maximum(latency - 1, 0), latency)
        step = _least_steps(problem, latency, overhead + bytes_take)
        distance = all_distances(problem, step)
        paid = overhead if fluid else _paid(problem, overhead)
        approach, crossing = _crossings(problem, distance, latency, paid + bytes_take)
        return Network(
            problem=problem,
            fluid=fluid,
            on_grid=grid is not None,
            rate=tuple(topology.each_link(lambda e: _fastest(topology, e) / PICOSECONDS)),
            steps=tuple(topology.each_link(lambda e: _steps(topology, e))),
            step=step,
            onward=latency if _has_circuits(problem) else step,
            hold=bytes_take if fluid else paid + bytes_take,
            slots=slots,
            distance=distance,
            approach=approach,
            crossing=crossing,
            classes=_classes(problem, grid),
            pools=_pools(problem, grid, fluid=fluid),
            toll=_tolls(problem, overhead),
        )


def _fastest(topology: Topology, link: Link) -> Fraction:
    """Bytes per second, the most that a link's profile ever gives."""
    return max(rate for _, rate in topology.rate_steps(link))


def _steps(topology: Topology, link: Link) -> Steps:
    """Bytes per picosecond over time that a transfer begun then sends, in picoseconds.

    The bytes follow the overhead, so a link's rate counts for what begins as much earlier.
    """
    known: dict[Fraction, Fraction] = {}
    for at, rate in topology.rate_steps(link):
        known[max(Fraction(0), at - link.overhead) * PICOSECONDS] = rate / PICOSECONDS
    return tuple(known.items())


def _whole(topology: Topology, seconds: Callable[[Link], Fraction]) -> IntArray:
    """A time of each link in whole picoseconds, rounded down."""
    times = topology.each_link(lambda link: int(seconds(link) * PICOSECONDS))
    return np.array(times, dtype=np.int64)


def _link_times(
    problem: Problem, grid: TimeGrid | None, *, fluid: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Latency, time for the bytes and slots of each link, each rounded so that bounds stay valid.

    On the grid the time is kappa, which includes the overhead.
    """
    topology = problem.topology
    if grid is not None:
        latency = topology.each_link(lambda e: grid.epochs_of_latency(e.alpha))
        hold = topology.each_link(lambda e: grid.epochs_to_send(_fastest(topology, e), e.overhead))
        slots = topology.each_link(
            lambda e: grid.chunks_per_epoch(_fastest(topology, e), e.overhead)
        )
    else:
        least = 0 if fluid else min(problem.chunks.sizes) * PICOSECONDS
        latency = topology.each_link(lambda e: int(e.alpha * PICOSECONDS))
        hold = topology.each_link(lambda e: int(least / _fastest(topology, e)))
        slots = [1] * topology.num_links
    return (
        np.array(latency, dtype=np.int64),
        np.array(hold, dtype=np.int64),
        np.array(slots, dtype=np.int64),
    )


def _touches_switch(problem: Problem) -> npt.NDArray[np.bool_]:
    topology = problem.topology
    return topology.is_switch[topology.link_src] | topology.is_switch[topology.link_dst]


def _has_circuits(problem: Problem) -> bool:
    """Whether data begins to leave a switch before it has arrived completely."""
    one_go = problem.switch is SwitchMode.HYPER_EDGE or problem.transit is Transit.CUT_THROUGH
    return one_go and problem.topology.num_switches > 0


def _paid(problem: Problem, overhead: IntArray) -> IntArray:
    """Least time of a link that the overhead of one whole chunk takes.

    A circuit holds its links at the rate of its slowest one, others may use the rest meanwhile.
    """
    topology = problem.topology
    shared = problem.transit is Transit.CUT_THROUGH and problem.switch is not SwitchMode.HYPER_EDGE
    touches = _touches_switch(problem)
    if not shared or not touches.any():
        return overhead
    rates = topology.rates
    slowest = min(rates[e] for e in np.flatnonzero(touches))
    parts = [int(o * min(Fraction(1), slowest / r)) for o, r in zip(overhead, rates, strict=True)]
    return np.where(touches, np.array(parts, dtype=np.int64), overhead)


def _tolls(problem: Problem, overhead: IntArray) -> tuple[Fraction, ...]:
    """Bytes that could pass in one transfer's overhead; none where others pass meanwhile."""
    topology = problem.topology
    slowest = topology.each_link(lambda e: min(rate for _, rate in _steps(topology, e)))
    alone = _paid(problem, overhead) == overhead
    return tuple(
        rate * int(o) if is_alone else Fraction(0)
        for rate, o, is_alone in zip(slowest, overhead, alone, strict=True)
    )


def _least_steps(problem: Problem, latency: IntArray, hold: IntArray) -> IntArray:
    """Least time that each link adds to a way; in a circuit only the first link adds its hold."""
    if not _has_circuits(problem):
        return latency + hold
    leaves_switch = problem.topology.is_switch[problem.topology.link_src]
    return np.where(leaves_switch, latency, latency + hold)


def _crossings(
    problem: Problem, distance: IntArray, latency: IntArray, hold: IntArray
) -> tuple[IntArray, IntArray]:
    """When a link may begin to carry a chunk, and how long after that the chunk is beyond it.

    A circuit's later links begin before the chunk has arrived at their switch: after the latencies
    on the way there or, in a hyper-edge, together with the first link.
    """
    if not _has_circuits(problem):
        return distance, latency + hold
    topology = problem.topology
    # Ways from a GPU to a switch that pass nothing but switches.
    lead = all_distances(problem, latency, only=topology.is_switch[topology.link_dst])
    approach, crossing = distance.copy(), latency + hold
    for switch in np.flatnonzero(topology.is_switch):
        before = lead[topology.gpus, switch]
        if problem.switch is SwitchMode.HYPER_EDGE:
            crossing[topology.link_src == switch] += min(before.min(), FAR)
            before = np.where(before < FAR, 0, FAR)
        ways = distance[:, topology.gpus] + before
        approach[:, switch] = np.minimum(ways.min(axis=1), FAR)
    return approach, crossing


def all_distances(
    problem: Problem, weights: IntArray, *, only: npt.NDArray[np.bool_] | None = None
) -> IntArray:
    """All-pairs least sums of whole weights over links, relays included; `FAR` when unreachable.

    `only` is a mask of the links that may be used.
    """
    topology = problem.topology
    n = topology.num_nodes
    used = np.ones(topology.num_links, dtype=bool) if only is None else only
    # A weight of zero would vanish from a sparse matrix, so hops are counted in the last digits.
    total = (weights.astype(np.float64) * n + 1)[used]
    found = least_sums(n, topology.link_src[used], topology.link_dst[used], total)
    # Floats are exact up to 2**53; beyond, every hop rounds, and rounding down keeps bounds valid.
    found = np.where(found < 2**53, found, found * (1 - (n + 1) * 2.0**-52))
    reachable = np.isfinite(found)
    return np.where(reachable, np.floor(np.where(reachable, found, 0) / n).astype(np.int64), FAR)


def _classes(problem: Problem, grid: TimeGrid | None) -> Classes:
    """Group chunks with the same sources, destinations and release times."""
    table = problem.chunks
    keys = np.stack(
        [table.source_set, table.tenant, table.destination_set, table.reduce.astype(np.int64)]
    )
    unique, index = np.unique(keys, axis=1, return_inverse=True)
    index = index.reshape(-1)
    pairs, counts = np.unique(np.stack([index, table.size_index]), axis=1, return_counts=True)
    amounts: dict[int, Fraction] = {}
    # Of many classes few differ in their bytes; one object serves those that do not.
    known: dict[tuple[int, int], Fraction] = {}
    for (group, size), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        if (size, count) not in known:
            known[size, count] = table.sizes[size] * count
        amount = known[size, count]
        amounts[group] = amounts[group] + amount if group in amounts else amount
    sources, origin = np.unique(unique[:2], axis=1, return_inverse=True)
    ready = _ready_times(problem, grid)
    origins = tuple(
        Origin(table.sets[nodes], ready[tenant, table.sets[nodes]])
        for nodes, tenant in sources.T.tolist()
    )
    return Classes(
        origins=origins,
        goals=table.sets,
        origin=origin.reshape(-1),
        goal=unique[2],
        reduce=unique[3].astype(bool),
        amount=tuple(amounts[group] for group in range(unique.shape[1])),
        count=np.bincount(index),
        blocks=_blocks(problem, index),
        origin_sets=NodeSets([origin.nodes for origin in origins]),
        goal_sets=NodeSets(table.sets),
    )


def _blocks(problem: Problem, index: IntArray) -> IntArray:
    """Blocks of each class, which no transfer carries two of; an AllReduce may be one whole."""
    table = problem.chunks
    blocks = np.unique(np.stack([index, table.tenant, table.block]), axis=1)
    whole = np.array([t.collective is Collective.ALLREDUCE for t in problem.demand.tenants])
    is_whole = whole[blocks[1]]
    count = np.bincount(blocks[0, ~is_whole], minlength=int(index.max()) + 1)
    count[np.unique(blocks[0, is_whole])] += 1
    return count


def _ready_times(problem: Problem, grid: TimeGrid | None) -> IntArray:
    """When each tenant's data is ready at each node, never later than it really is."""
    topology = problem.topology
    table = np.zeros((len(problem.demand.tenants), topology.num_nodes), dtype=np.int64)
    for number, tenant in enumerate(problem.demand.tenants):
        for rank, time in tenant.ready.items():
            exact = int(time * PICOSECONDS)
            table[number, topology.gpus[rank]] = exact if grid is None else grid.ready_epoch(time)
    return table


def _pools(problem: Problem, grid: TimeGrid | None, *, fluid: bool) -> tuple[Gate, ...]:
    """Links of each shared capacity as one gate."""
    pools = []
    topology = problem.topology
    for name, capacity in topology.shared.items():
        members = [i for i, link in enumerate(topology.links) if name in link.shares]
        if len(members) < 2:
            continue
        toll = Fraction(0)
        if grid is not None:
            # The grid limits starts within a window of the shared rate, whatever the links' own.
            steps: Steps = ((Fraction(0), capacity / PICOSECONDS),)
            hold, slots = grid.shared_epochs(name)
        else:
            # They take turns, each at its own rate, so the fastest of them limits the pool too.
            steps = fastest_of([_steps(topology, topology.links[i]) for i in members])
            least = min(topology.links[i].overhead for i in members) * PICOSECONDS
            fastest = max(rate for _, rate in steps)
            if len(steps) > 1 and any(topology.links[i].overhead for i in members):
                # Overheads of some may pass while the rates of others change.
                steps = ((Fraction(0), fastest),)
            hold = 0 if fluid else int(least + min(problem.chunks.sizes) / fastest)
            slots, toll = 1, least * min(rate for _, rate in steps)
        pools.append(Gate(np.array(members), steps, hold, slots, toll))
    return tuple(pools)
