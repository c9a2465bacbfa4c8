"""The numbers bounds are made of: exact rates, latencies, distances and classes of chunks."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.problem import Problem, SwitchMode, Transit
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS

IntArray = npt.NDArray[np.int64]
FAR = np.int64(2**60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkClass:
    """Chunks with the same sources, destinations and release times."""

    sources: IntArray
    destinations: IntArray
    ready: IntArray
    reduce: bool
    amount: Fraction
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A problem as bounds see it: in picoseconds (fluid or whole chunks) or in epochs.

    Parameters
    ----------
    rate
        Bytes per picosecond of each link, the largest a profile ever gives.
    step
        Time a chunk needs from the start on a link until it is usable at the far end, at least;
        the latency alone where data is fluid.
    hold
        Time one whole chunk occupies a link, at least; zero where data is fluid.
    slots
        Chunks a link can take within one holding time.
    distance
        Least time from node to node.
    pools
        Links that share a capacity, with its rate, hold and slots.
    """

    problem: Problem
    fluid: bool
    on_grid: bool
    rate: tuple[Fraction, ...]
    step: IntArray
    hold: IntArray
    slots: IntArray
    distance: IntArray
    classes: tuple[ChunkClass, ...]
    pools: tuple[tuple[IntArray, Fraction, int, int], ...]

    @staticmethod
    def build(problem: Problem, *, grid: TimeGrid | None = None, fluid: bool = False) -> "Network":
        """Collect the numbers; `fluid` allows any chunking."""
        topology = problem.topology
        rates = [max(r for _, r in topology.rate_steps(link)) for link in topology.links]
        latency, hold, slots = _link_times(problem, grid, rates, fluid=fluid)
        step = _least_steps(problem, grid, latency, hold)
        return Network(
            problem=problem,
            fluid=fluid,
            on_grid=grid is not None,
            rate=tuple(rate / PICOSECONDS for rate in rates),
            step=step,
            hold=hold,
            slots=slots,
            distance=_distances(problem, step),
            classes=_classes(problem, grid),
            pools=_pools(problem, grid, fluid=fluid),
        )


def _link_times(
    problem: Problem, grid: TimeGrid | None, rates: list[Fraction], *, fluid: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Latency, holding time and slots of each link, each rounded so that bounds stay valid."""
    links = problem.topology.links
    if grid is not None:
        latency = [grid.epochs_of_latency(link.alpha) for link in links]
        hold = [grid.epochs_to_send(rate) for rate in rates]
        slots = [grid.chunks_per_epoch(rate) for rate in rates]
    else:
        smallest = min(problem.chunks.sizes)
        latency = [int(link.alpha * PICOSECONDS) for link in links]
        hold = [0 if fluid else int(smallest / rate * PICOSECONDS) for rate in rates]
        slots = [1] * len(links)
    return (
        np.array(latency, dtype=np.int64),
        np.array(hold, dtype=np.int64),
        np.array(slots, dtype=np.int64),
    )


def _least_steps(
    problem: Problem, grid: TimeGrid | None, latency: IntArray, hold: IntArray
) -> IntArray:
    """Least time from a send's start on a link until the chunk may leave at the far end.

    In a circuit only the first link is sure to add its holding time, and a hyper-edge rounds the
    sum of its latencies on a grid, which may be less than the sum of the rounded ones.
    """
    step = latency + hold
    topology = problem.topology
    leaves_switch = topology.is_switch[topology.link_src]
    touches_switch = leaves_switch | topology.is_switch[topology.link_dst]
    if problem.switch is SwitchMode.HYPER_EDGE:
        if grid is not None:
            step = np.where(touches_switch, hold, step)
            latency = np.zeros_like(latency)
        return np.where(leaves_switch, latency, step)
    if problem.transit is Transit.CUT_THROUGH:
        return np.where(leaves_switch, latency, step)
    return step


def _distances(problem: Problem, step: IntArray) -> IntArray:
    """All-pairs least times over links, relays included."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    topology = problem.topology
    n = topology.num_nodes
    if topology.num_links == 0:
        distance = np.full((n, n), FAR)
        np.fill_diagonal(distance, 0)
        return distance
    # A zero weight would read as "no edge", so every step is one longer; hops are counted out
    # again by encoding time * n + hops in one number.
    weights = step.astype(np.float64) * n + 1
    order = np.lexsort((weights, topology.link_dst, topology.link_src))
    src, dst, weights = topology.link_src[order], topology.link_dst[order], weights[order]
    fresh = np.ones(len(src), dtype=bool)
    fresh[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    graph = coo_array((weights[fresh], (src[fresh], dst[fresh])), shape=(n, n)).tocsr()
    total = dijkstra(graph)
    # Floats are exact up to 2**53; beyond, rounding down by one unit keeps the bound valid.
    slack = np.where(total < 2**53, 0.0, total * 2.0**-52)
    reachable = np.isfinite(total)
    safe = np.where(reachable, total - slack, 0)
    return np.where(reachable, np.floor(safe / n).astype(np.int64), FAR)


def _classes(problem: Problem, grid: TimeGrid | None) -> tuple[ChunkClass, ...]:
    """Group chunks that a bound cannot tell apart."""
    table = problem.chunks
    keys = np.stack(
        [table.source_set, table.destination_set, table.tenant, table.reduce.astype(np.int64)]
    )
    unique, index = np.unique(keys, axis=1, return_inverse=True)
    index = index.reshape(-1)
    amounts = [Fraction(0)] * unique.shape[1]
    pairs, counts = np.unique(
        np.stack([index, table.size_index]), axis=1, return_counts=True
    )
    for (group, size), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        amounts[group] += table.sizes[size] * count
    ready = problem.ready_ps() if grid is None else None
    members = np.bincount(index)
    return tuple(
        ChunkClass(
            sources=table.sets[source],
            destinations=table.sets[destination],
            ready=_ready(problem, grid, ready, tenant, table.sets[source]),
            reduce=bool(reduce),
            amount=amounts[group],
            count=int(members[group]),
        )
        for group, (source, destination, tenant, reduce) in enumerate(unique.T.tolist())
    )


def _ready(
    problem: Problem, grid: TimeGrid | None, ready: IntArray | None, tenant: int, nodes: IntArray
) -> IntArray:
    if ready is not None:
        # Rounded up by the problem; one picosecond less keeps the bound below the exact time.
        return np.maximum(ready[tenant][nodes] - 1, 0)
    assert grid is not None
    times = problem.demand.tenants[tenant].ready
    rank = {int(node): r for r, node in enumerate(problem.topology.gpus)}
    epochs = [grid.ready_epoch(times.get(rank[int(node)], Fraction(0))) for node in nodes]
    return np.array(epochs, dtype=np.int64)


def _pools(
    problem: Problem, grid: TimeGrid | None, *, fluid: bool
) -> tuple[tuple[IntArray, Fraction, int, int], ...]:
    """Links of each shared capacity with its rate in bytes per picosecond, hold and slots."""
    pools = []
    for name, rate in problem.topology.shared.items():
        members = [i for i, link in enumerate(problem.topology.links) if name in link.shares]
        if len(members) < 2:  # noqa: PLR2004, sharing needs two
            continue
        if grid is not None:
            hold, slots = grid.epochs_to_send(rate), grid.chunks_per_epoch(rate)
        else:
            smallest = min(problem.chunks.sizes)
            hold, slots = (0 if fluid else int(smallest / rate * PICOSECONDS)), 1
        pools.append((np.array(members), rate / PICOSECONDS, hold, slots))
    return tuple(pools)
