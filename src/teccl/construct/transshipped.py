"""Paths of what comes from one GPU, or goes to one, by a maximum flow over time in whole chunks.

All chunks that one GPU sends are alike until they arrive, so that a flow from it to all who want
some says where and when each goes; mirrored, so does one to a GPU that receives everything. Greedy
ways, each the quickest past those before it, may take what only others could have used; a flow
takes no such thing. It is made on intervals of time for the least horizon in which it brings all,
followed hop by hop, and its order is kept where transfers then begin as early as links allow.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.jobs import Jobs
from teccl.construct.params import NEVER, PART, PYTHON_UNITS, TREE_UNITS
from teccl.construct.paths import Paths
from teccl.construct.plan import Plan, with_starts
from teccl.construct.restricted import path_plan
from teccl.construct.route_first import listing_work, starts_by_key
from teccl.construct.tasks import finish_time, precedence, tasks_of_plan
from teccl.footprint import num_deliveries
from teccl.topology import Topology

# Intervals that a horizon is cut into.
INTERVALS = PART * PART


def has_one_end(instance: Instance) -> bool:
    """Whether everything comes from one GPU or goes to one, from one to one, in equal chunks."""
    table = instance.problem.chunks
    ends = [[table.sets[i] for i in np.unique(which)] for which in _ends(instance)]
    is_single = all(len(nodes) == 1 for side in ends for nodes in side)
    is_plain = instance.grid is None and not table.reduce.any() and len(table.sizes) == 1
    return is_plain and is_single and 1 in map(len, ends)


def _ends(instance: Instance) -> tuple[IntArray, IntArray]:
    """Sets of sources and of destinations of the chunks that move."""
    table = instance.problem.chunks
    moves = table.source_set != table.destination_set
    return table.source_set[moves], table.destination_set[moves]


def flow_work(instance: Instance) -> int:
    """Units of a few flows over time, of following one, and of scheduling it."""
    count = num_deliveries(instance.problem)
    return 2 * _flow_work(instance) + PYTHON_UNITS * count + listing_work(count, 1.0)


def _flow_work(instance: Instance) -> int:
    topology = instance.problem.topology
    return TREE_UNITS * INTERVALS * (topology.num_links + topology.num_nodes)


def flow_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans along the flow of the least horizon, scheduled in its order."""
    network = _FlowNetwork.of(instance)
    hops = _least_flow(network, goal)
    if hops is None:
        return
    goal.begin(PYTHON_UNITS * num_deliveries(instance.problem))
    found = _followed(instance, network, hops)
    if found is None:
        return
    paths, key = found
    plan = path_plan(paths)
    tasks = tasks_of_plan(instance, plan)
    order, best = precedence(instance, tasks), NEVER
    goal.begin(listing_work(len(tasks), len(tasks.hop_link) / max(1, len(tasks))))
    jobs = Jobs.of(instance, tasks, order)
    for start in starts_by_key(instance, tasks, order, key, 0.0, jobs=jobs):
        finish = finish_time(tasks, start)
        if finish < best:
            best = finish
            yield with_starts(plan, start, finish)


class _FlowNetwork(NamedTuple):
    """What flows: chunks of each GPU, when they are ready, and how links take them.

    Parameters
    ----------
    tail, head, hold, length
        Links: their ends, for how long a chunk holds them, and until it is at the far end.
    waits
        Nodes at which chunks may wait.
    source, ready, supply
        Where chunks come from, since when, and how many.
    target, wanted
        Where they go to, and how many.
    size
        Number of nodes.
    """

    tail: IntArray
    head: IntArray
    hold: IntArray
    length: IntArray
    waits: IntArray
    source: IntArray
    ready: IntArray
    supply: IntArray
    target: IntArray
    wanted: IntArray
    size: int

    @staticmethod
    def of(instance: Instance) -> "_FlowNetwork":
        topology, table = instance.problem.topology, instance.problem.chunks
        (source, supply), (target, wanted) = (
            np.unique([table.sets[i][0] for i in sets], return_counts=True)
            for sets in _ends(instance)
        )
        return _FlowNetwork(
            tail=topology.link_src,
            head=topology.link_dst,
            hold=instance.hold,
            length=instance.hold + instance.latency,
            waits=topology.gpus,
            source=source,
            ready=instance.ready[0, source],
            supply=supply,
            target=target,
            wanted=wanted,
            size=topology.num_nodes,
        )


class _Hops(NamedTuple):
    """How many chunks enter each link in each interval, in the order of time."""

    link: IntArray
    interval: IntArray
    number: IntArray
    lag: IntArray


def _least_flow(network: _FlowNetwork, goal: Goal) -> _Hops | None:
    """Return the flow of a horizon in which all arrives, about the least one.

    What is missing at the end of a horizon says how much longer the next one is.
    """
    low, high, best = float(max(goal.target, 1)), 0.0, None
    work = TREE_UNITS * INTERVALS * (len(network.tail) + network.size)
    horizon, total = low, int(network.supply.sum())
    while True:
        goal.begin(work)
        hops, value = _flow(network, horizon)
        if value == total:
            high, best = horizon, hops
        else:
            low = horizon
        is_over = best is not None and (high - low) * INTERVALS <= 2 * high
        known = goal.known if best is None else min(goal.known, int(high))
        if is_over or not goal.is_worth(known, work):
            return best
        horizon = (low + high) / 2 if best else low * (2 - max(value, 1) / max(total, 2))


def _flow(network: _FlowNetwork, horizon: float) -> tuple[_Hops, int]:
    """Return a maximum flow that is over at a horizon, as hops, and how many chunks it brings."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_flow

    interval, count = horizon / INTERVALS, INTERVALS
    lag = np.rint(network.length / interval).astype(np.int64)
    place = np.arange(count + 1)
    # Whole chunks that may have entered a link by the end of each interval.
    entered = np.floor(place * interval / np.maximum(network.hold, 1)[:, None] + 1 / count)
    room = np.diff(entered, axis=1).astype(np.int64)
    link, begin = np.nonzero((room > 0) & (place[:-1] + lag[:, None] < count))
    waits, since = (part.ravel() for part in np.meshgrid(network.waits, place[: count - 1]))
    origin, sink = network.size * count, network.size * count + 1
    ready = np.minimum(network.ready / interval, count - 1).astype(np.int64)
    total = int(network.supply.sum())
    arcs = [
        (network.tail[link] * count + begin, network.head[link] * count + begin + lag[link]),
        (waits * count + since, waits * count + since + 1),
        (np.full(len(ready), origin), network.source * count + ready),
        (network.target * count + count - 1, np.full(len(network.target), sink)),
    ]
    limits = [room[link, begin], np.full(len(waits), total), network.supply, network.wanted]
    tail, head = (np.concatenate(part) for part in zip(*arcs, strict=True))
    limit = np.minimum(np.concatenate(limits), total).astype(np.int32)
    graph = coo_array((limit, (tail, head)), shape=(sink + 1, sink + 1)).tocsr()
    found = maximum_flow(graph, origin, sink)
    taken = _taken(tail[: len(link)], head[: len(link)], limit[: len(link)], found.flow)
    order = np.lexsort((link, begin))
    order = order[taken[order] > 0]
    return _Hops(link[order], begin[order], taken[order], lag), int(found.flow_value)


def _taken(tail: IntArray, head: IntArray, limit: IntArray, flow: Any) -> IntArray:
    """Return how much each arc carries; of several side by side the first are filled first."""
    table, width = flow.tocoo(), flow.shape[1]
    key, known = tail * width + head, table.row.astype(np.int64) * width + table.col
    by_key = np.argsort(known)
    places = by_key[np.minimum(np.searchsorted(known, key, sorter=by_key), len(known) - 1)]
    sums = np.where(known[places] == key, table.data[places], 0).astype(np.int64)
    order = np.argsort(key, kind="stable")
    before = np.cumsum(limit[order], dtype=np.int64) - limit[order]
    first = np.searchsorted(key[order], key[order])
    taken = np.empty_like(sums)
    taken[order] = np.clip(sums[order] - (before - before[first]), 0, limit[order])
    return taken


def _followed(
    instance: Instance, network: _FlowNetwork, hops: _Hops
) -> tuple[Paths, IntArray] | None:
    """Return a path for every chunk, and the intervals in which its legs begin.

    At every node those that came first go on first. None where a passage is no route.
    """
    waiting: list[deque[_Walk]] = [deque() for _ in range(network.size)]
    for node, count in zip(network.source.tolist(), network.supply.tolist(), strict=True):
        waiting[node].extend(_Walk(node, (), ()) for _ in range(count))
    coming: dict[int, list[_Walk]] = {}
    by_interval = np.searchsorted(hops.interval, np.arange(INTERVALS + 1))
    for number in range(INTERVALS):
        for walk in coming.pop(number, ()):
            waiting[walk.node].append(walk)
        rows = range(int(by_interval[number]), int(by_interval[number + 1]))
        left = {row: int(hops.number[row]) for row in rows}
        # Hops that take no interval may bring what others of the same interval pass on.
        is_moving = True
        while left and is_moving:
            is_moving = False
            for row in list(left):
                link = int(hops.link[row])
                lag, queue = int(hops.lag[link]), waiting[int(network.tail[link])]
                while left[row] and queue:
                    walk = queue.popleft().extended(int(network.head[link]), link, number)
                    place = waiting[walk.node] if not lag else coming.setdefault(number + lag, [])
                    place.append(walk)
                    left[row] -= 1
                    is_moving = True
                if not left[row]:
                    del left[row]
    return _routed(instance, [walk for queue in waiting for walk in queue])


class _Walk(NamedTuple):
    """The way of a chunk so far: where it is, over which links, entered when."""

    node: int
    links: tuple[int, ...]
    begun: tuple[int, ...]

    def extended(self, node: int, link: int, interval: int) -> "_Walk":
        """Return the walk with one more link."""
        return _Walk(node, (*self.links, link), (*self.begun, interval))


def _routed(instance: Instance, walks: list[_Walk]) -> tuple[Paths, IntArray] | None:
    """Return walks as paths of routes, each for a chunk from its source to its end."""
    topology, table = instance.problem.topology, instance.problem.chunks
    route_of = {way: number for number, way in enumerate(instance.routes.ways())}
    chunks: dict[tuple[int, int], list[int]] = {}
    for number in np.flatnonzero(table.source_set != table.destination_set).tolist():
        ends = int(table.sources(number)[0]), int(table.destinations(number)[0])
        chunks.setdefault(ends, []).append(number)
    chunk, start, route, begun = [], [0], [], []
    for walk in walks:
        legs = _legs(topology, walk)
        if not legs:
            continue
        for links, interval in legs:
            if links not in route_of:
                return None
            route.append(route_of[links])
            begun.append(interval)
        source = int(topology.link_src[legs[0][0][0]])
        chunk.append(chunks[source, walk.node].pop())
        start.append(len(route))
    paths = Paths(chunk=np.array(chunk), start=np.array(start), route=np.array(route))
    return paths, np.array(begun)


def _legs(topology: Topology, walk: _Walk) -> list[tuple[tuple[int, ...], int]]:
    """Return the passages of a walk from GPU to GPU and when they begin, without detours."""
    legs: list[tuple[tuple[int, ...], int]] = []
    links: tuple[int, ...] = ()
    since = 0
    for link, begun in zip(walk.links, walk.begun, strict=True):
        since = since if links else begun
        links = (*links, link)
        node = int(topology.link_dst[link])
        if topology.is_switch[node]:
            continue
        legs.append((links, since))
        links = ()
        # Whatever led from here back to here was in vain.
        for place, (way, _) in enumerate(legs):
            if int(topology.link_src[way[0]]) == node:
                del legs[place:]
                break
    return legs
