"""Problems with fewer freedoms: no copying anywhere, or a limit on what may wait in a GPU."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.multicast import Tables
from teccl.construct.plan import Plan, single_rows

@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """One path of routes per delivery, first to last."""

    chunk: IntArray
    start: IntArray
    route: IntArray


def delivery_paths(
    instance: Instance, tables: Tables, *, target: float, steepness: float, seed: int
) -> Paths | None:
    """Lay a path for every (chunk, destination) from the chunk's first source."""
    from teccl.construct.routing import lay_trees

    problem, routes = instance.problem, instance.routes
    n = problem.topology.num_nodes
    chunk, src, dst = _deliveries(instance)
    by_dst = np.argsort(routes.dst, kind="stable")
    trees, _, peak = lay_trees(
        src,
        dst,
        np.eye(n, dtype=bool),
        ~problem.topology.is_switch,
        True,
        False,
        routes.src,
        routes.dst,
        routes.length,
        routes.res_start,
        routes.res,
        routes.res_hold,
        instance.slots,
        tables.out_start,
        tables.out_routes,
        np.searchsorted(routes.dst[by_dst], np.arange(n + 1)),
        by_dst,
        1.0,
        1e-3,
        target,
        steepness,
        6,
        seed,
    )
    if not np.isfinite(peak):
        return None
    legs = [_walk(tree[0], routes.src, s, d) for tree, s, d in zip(trees, src, dst, strict=True)]
    return Paths(
        chunk=chunk,
        start=np.concatenate([[0], np.cumsum([len(leg) for leg in legs])]).astype(np.int64),
        route=np.array([r for leg in legs for r in leg], dtype=np.int64),
    )


def _deliveries(instance: Instance) -> tuple[IntArray, IntArray, IntArray]:
    """Chunk, first source and destination of everything that must be delivered."""
    table = instance.problem.chunks
    found = [
        (k, int(table.sources(k)[0]), int(node))
        for k in range(len(table))
        for node in table.destinations(k)
        if node not in table.sources(k)
    ]
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _walk(via: IntArray, route_src: IntArray, source: int, destination: int) -> list[int]:
    """Routes of a path, from its source to its destination."""
    legs, node = [], destination
    while node != source:
        legs.append(int(via[node]))
        node = int(route_src[via[node]])
    return legs[::-1]


def path_plan(paths: Paths) -> Plan:
    """Return the paths as a plan without times, in which every leg waits for the one before."""
    count = np.diff(paths.start)
    rows = single_rows(np.repeat(paths.chunk, count), paths.route)
    feeder = np.arange(len(rows)) - 1
    feeder[paths.start[:-1]] = -1
    return Plan(rows=rows, feeder=feeder)


def rigid_plans(
    instance: Instance, tables: Tables, *, target: int, seed: int
) -> Iterator[Plan]:
    """Yield plans in which every relay passes data on the instant it arrives.

    They keep to any buffer limit, because nothing ever waits.
    """
    for steepness in (30.0, 0.0):
        paths = delivery_paths(
            instance, tables, target=float(max(target, 1)), steepness=steepness, seed=seed
        )
        if paths is None:
            return
        start = _rigid_starts(instance, paths)
        offsets = _leg_offsets(instance, paths)
        leg_start = np.repeat(start, np.diff(paths.start)) + offsets
        rows = single_rows(np.repeat(paths.chunk, np.diff(paths.start)), paths.route, leg_start)
        finish = int((leg_start + instance.routes.length[paths.route]).max(initial=0))
        yield Plan(rows=rows, finish=finish)


def _leg_offsets(instance: Instance, paths: Paths) -> IntArray:
    """When each leg starts after its path does."""
    length = instance.routes.length[paths.route]
    total = np.concatenate([[0], np.cumsum(length)])
    first = np.repeat(total[paths.start[:-1]], np.diff(paths.start))
    return total[:-1] - first


def _rigid_starts(instance: Instance, paths: Paths) -> IntArray:
    """List-schedule whole paths, each holding its resources at fixed offsets; longest first."""
    from teccl.construct.listing import list_schedule

    routes, problem = instance.routes, instance.problem
    offsets = _leg_offsets(instance, paths)
    low, high = routes.res_start[paths.route], routes.res_start[paths.route + 1]
    counts = high - low
    ends = np.cumsum(counts)
    entry = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(low - (ends - counts), counts)
    per_path = np.add.reduceat(counts, paths.start[:-1]) if len(counts) else counts
    number = len(paths.chunk)
    nothing = np.zeros(number + 1, dtype=np.int64)
    empty = np.zeros(0, dtype=np.int64)
    first_leg = paths.route[paths.start[:-1]]
    release = instance.ready[problem.chunks.tenant[paths.chunk], routes.src[first_leg]]
    length = np.add.reduceat(routes.length[paths.route], paths.start[:-1])
    slot_start = np.concatenate([[0], np.cumsum(instance.slots)]).astype(np.int64)
    starts: IntArray = list_schedule(
        np.concatenate([[0], np.cumsum(per_path)]).astype(np.int64),
        routes.res[entry],
        routes.res_offset[entry] + np.repeat(offsets, counts),
        routes.res_hold[entry],
        nothing[:-1],
        nothing,
        empty,
        empty,
        release,
        -length,
        0.3,
        slot_start,
        np.zeros(int(slot_start[-1]), dtype=np.int64),
    )
    return starts
