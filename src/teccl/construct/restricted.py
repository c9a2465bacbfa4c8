"""Problems with fewer freedoms: no copying anywhere, or a limit on what may wait in a GPU."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray, concatenated_ranges, in_own_time
from teccl.construct.params import PATH_UNITS, STEEPNESS, WORK_LEFT
from teccl.construct.paths import Paths, laid_paths
from teccl.construct.plan import Plan, single_rows
from teccl.footprint import num_deliveries
from teccl.problem import ChunkTable, Problem


def only_combines(problem: Problem) -> bool:
    """Whether nothing but sums is asked for, each by one GPU: trees of those copy nothing."""
    table = problem.chunks
    return bool(table.reduce.all()) and all(len(nodes) == 1 for nodes in goal_sets(table))


def goal_sets(table: ChunkTable) -> list[IntArray]:
    """Return the sets of GPUs that want something."""
    return [table.sets[i] for i in np.unique(table.destination_set)]


def delivery_paths(
    instance: Instance, *, target: float, steepness: float, seed: int
) -> Paths | None:
    """Lay a path for every (chunk, destination) from the chunk's first source."""
    return laid_paths(
        instance, _deliveries(instance), target=target, steepness=steepness, seed=seed
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


def path_plan(paths: Paths) -> Plan:
    """Return the paths as a plan without times, in which every leg waits for the one before."""
    count = np.diff(paths.start)
    rows = single_rows(np.repeat(paths.chunk, count), paths.route)
    feeder = np.arange(len(rows)) - 1
    feeder[paths.start[:-1]] = -1
    return Plan(rows=rows, feeder=feeder)


def rigid_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans in which every relay passes data on the instant it arrives.

    They keep to any buffer limit, because nothing ever waits.
    """
    work = PATH_UNITS * num_deliveries(instance.problem)
    for steepness in (STEEPNESS, 0.0):
        goal.begin(work)
        paths = delivery_paths(
            instance, target=float(max(goal.target, 1)), steepness=steepness, seed=goal.seed
        )
        if paths is None:
            return
        legs = np.diff(paths.start)
        rows = single_rows(np.repeat(paths.chunk, legs), paths.route)
        plan = Plan(rows=rows, path=np.repeat(np.arange(len(legs)), legs))
        yield place_paths(instance, plan, key=None)


def place_paths(instance: Instance, plan: Plan, *, key: IntArray | None) -> Plan:
    """Give every path of a rigid plan a start, all its legs following at once.

    Parameters
    ----------
    instance
        Whose routes the plan takes.
    plan
        Its rows' starts are replaced.
    key
        Order in which paths are placed; None lets whatever is ready go, the longest first.
    """
    from teccl.construct.kernels import replay
    from teccl.construct.listing import list_schedule

    assert plan.path is not None
    instance, rows = in_own_time(instance, plan.rows)
    routes, problem = instance.routes, instance.problem
    length = routes.length[rows[:, 1]]
    first = np.searchsorted(plan.path, np.arange(int(plan.path.max(initial=-1)) + 1))
    total = np.concatenate([[0], np.cumsum(length)])
    offset = total[:-1] - total[first][plan.path]
    low, high = routes.res_start[rows[:, 1]], routes.res_start[rows[:, 1] + 1]
    entry = concatenated_ranges(low, high)
    owner = np.repeat(np.arange(len(rows)), high - low)
    columns = (
        np.searchsorted(plan.path[owner], np.arange(len(first) + 1)),
        routes.res[entry],
        routes.res_offset[entry] + offset[owner],
        routes.res_hold[entry],
    )
    none = np.zeros(len(first) + 1, dtype=np.int64)
    arcs = (none[:-1], none, none[:0], none[:0])
    release = instance.ready[problem.chunks.tenant[rows[first, 0]], routes.src[rows[first, 1]]]
    slot_start = np.concatenate([[0], np.cumsum(instance.slots)]).astype(np.int64)
    slots = (slot_start, np.zeros(int(slot_start[-1]), dtype=np.int64))
    if key is None:
        whole = np.add.reduceat(length, first)
        start = list_schedule(*columns, *arcs, release, -whole, WORK_LEFT, *slots)
    else:
        start = replay(*columns, *arcs, release, np.argsort(key, kind="stable"), *slots)
    placed = plan.rows.copy()
    placed[:, 2] = start[plan.path] + offset
    return replace(plan, rows=placed, finish=int((placed[:, 2] + length).max(initial=0)))
