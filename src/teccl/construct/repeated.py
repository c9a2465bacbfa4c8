"""Throughput plans: trees for a few pieces, balanced to the load bound, repeated for all pieces.

Laying trees is what costs time, and large collectives need many small pieces only to fill the
pipeline. So trees are laid for one *period* of pieces and every later period sends along the same
trees. On direct links a period's transfers get phases that repeat without collision (modulo
scheduling), which makes the steady state run at the load of the fullest link; through switches,
where a transfer holds several ports at once, all periods are scheduled serially.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from teccl.construct.instance import Instance, IntArray, without_long_ways
from teccl.construct.multicast import Tables
from teccl.construct.plan import Plan, with_starts
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    depths,
    finish_time,
    justify_serially,
    precedence,
    replay_tasks,
    task_tails,
    tasks_of_plan,
)
from teccl.construct.trees import laid_plan
from teccl.demand import Demand
from teccl.problem import Problem

# Trees in a period: enough that whole chunks balance the links to about one per cent.
PERIOD_TREES = 128
# Share of a period by which the next one is put off in serial scheduling, and how much more urgent
# the beginnings of long ways are: found by trial, the rest of the work fills the holes.
PERIOD_SHARE = 0.95
TAIL_WEIGHT = 2
JUSTIFICATIONS = 4
# Price of a hop's time against that of load when trees are laid: low balances, high keeps short.
DIRECT_LENGTH_WEIGHTS = (0.1, 1e-6)
SWITCHED_LENGTH_WEIGHTS = (0.3,)
PASSES = 20


def period_pieces(problem: Problem) -> int:
    """Pieces per block in a period, a power of two."""
    blocks = max(1, len(problem.chunks) // problem.num_chunks)
    pieces = 1
    # A switched period is not repeated in time, so that more trees cost no latency.
    trees = PERIOD_TREES * (2 if problem.topology.num_switches else 1)
    while pieces * blocks < trees:
        pieces *= 2
    return pieces


def can_repeat(problem: Problem) -> bool:
    """Whether all pieces of all blocks are alike, so that one period stands for all."""
    table, pieces = problem.chunks, problem.num_chunks
    return (
        problem.copy
        and problem.buffer is None
        and len(table.sizes) == 1
        and pieces % period_pieces(problem) == 0
        and np.array_equal(table.piece, np.arange(len(table)) % pieces)
        and not problem.topology.has_profiles
        and not any(tenant.ready for tenant in problem.demand.tenants)
    )


def repeated_plans(instance: Instance, *, target: int, seed: int = 0) -> Iterator[Plan]:
    """Yield plans that repeat one period of balanced trees."""
    instance = without_long_ways(instance)
    pieces = period_pieces(instance.problem)
    unit = _one_period(instance, pieces)
    goal = target * pieces / instance.problem.num_chunks
    tables = Tables.build(unit)
    direct = bool(np.all(np.diff(unit.routes.res_start) == 1))
    for length_weight in DIRECT_LENGTH_WEIGHTS if direct else SWITCHED_LENGTH_WEIGHTS:
        trees = laid_plan(
            unit,
            tables,
            target=max(1.0, goal),
            seed=seed,
            length_weight=length_weight,
            passes=PASSES,
        )
        if trees is None:
            return
        if direct:
            yield _in_phases(instance, unit, trees)
        else:
            yield _in_turns(instance, unit, trees, goal)


def _one_period(instance: Instance, pieces: int) -> Instance:
    """Return the instance of a demand with only the pieces of a period, on the same routes."""
    problem = instance.problem
    share = Fraction(pieces, problem.num_chunks)
    tenants = tuple(replace(t, size=t.size * share) for t in problem.demand.tenants)
    period = replace(problem, demand=Demand(tenants=tenants), num_chunks=pieces)
    return Instance.build(period, instance.grid, ways=instance.routes.ways())


def _in_phases(instance: Instance, unit: Instance, trees: Plan) -> Plan:
    """Repeat a period whose transfers have phases on their links, then close up the ends."""
    tasks = tasks_of_plan(unit, trees)
    load = np.bincount(tasks.res, tasks.res_hold, minlength=unit.num_resources)
    period = int(load.max())
    time = _phases(unit, tasks, period)
    # A tree may begin in any period: take the first that is not before the start.
    earliest = np.full(len(unit.problem.chunks), np.iinfo(np.int64).max)
    np.minimum.at(earliest, tasks.chunk, time)
    time -= earliest[tasks.chunk] // period * period
    plan = _repeat(instance, unit, trees, time, period)
    repeated = tasks_of_plan(instance, plan)
    start = replay_tasks(instance, repeated, key=repeated.start)
    return with_starts(plan, start, finish_time(repeated, start))


def _phases(unit: Instance, tasks: Tasks, period: int) -> IntArray:
    from teccl.construct.modulo import modulo_times

    order = precedence(unit, tasks)
    depth = depths(order)
    depth = np.where(tasks.reduce, depth.max(initial=0) - depth, depth)
    by_depth = np.lexsort((depth, tasks.reduce))
    # Trees turn around at times spread over the period, so that they do not crowd one another.
    chunks = len(unit.problem.chunks)
    turn = np.random.Generator(np.random.PCG64(0)).permutation(chunks)
    times: IntArray = modulo_times(
        tasks.res,
        tasks.res_hold,
        by_depth,
        tasks.reduce,
        *_incoming(order),
        order.next_start,
        order.next_task,
        order.next_lag,
        (turn * period // chunks)[tasks.chunk],
        unit.num_resources,
        period,
    )
    return times


def _incoming(order: Precedence) -> tuple[IntArray, IntArray, IntArray]:
    """Return the waits of each task: CSR list of the tasks it waits for, with their lags."""
    count = len(order.waits)
    before = np.repeat(np.arange(count), np.diff(order.next_start))
    by_task = np.argsort(order.next_task, kind="stable")
    starts = np.concatenate([[0], np.cumsum(order.waits)]).astype(np.int64)
    return starts, before[by_task], order.next_lag[by_task]


def _in_turns(instance: Instance, unit: Instance, trees: Plan, goal: float) -> Plan:
    """Schedule all periods serially, each one's long ways before the next one's, and justify."""
    time = np.zeros(len(trees.rows), dtype=np.int64)
    plan = _repeat(instance, unit, trees, time, 0)
    tasks = tasks_of_plan(instance, plan)
    chunks = len(unit.problem.chunks)
    pieces, all_pieces = unit.problem.num_chunks, instance.problem.num_chunks
    block, piece = np.divmod(tasks.chunk, all_pieces)
    turn = np.random.Generator(np.random.PCG64(0)).permutation(chunks)
    place = piece // pieces + turn[block * pieces + piece % pieces] / chunks
    key = (place * (PERIOD_SHARE * goal)).astype(np.int64)
    order = precedence(instance, tasks)
    key -= TAIL_WEIGHT * task_tails(tasks, order)
    start = justify_serially(instance, tasks, key=key, rounds=JUSTIFICATIONS, order=order)
    return with_starts(plan, start, finish_time(tasks, start))


def _repeat(instance: Instance, unit: Instance, trees: Plan, time: IntArray, period: int) -> Plan:
    """Repeat a period's rows, one transfer each, for all pieces."""
    pieces, all_pieces = unit.problem.num_chunks, instance.problem.num_chunks
    copies = all_pieces // pieces
    number = np.repeat(np.arange(copies), len(trees.rows))
    rows = np.tile(trees.rows, (copies, 1))
    block, piece = np.divmod(rows[:, 0], pieces)
    rows[:, 0] = block * all_pieces + number * pieces + piece
    rows[:, 2] = np.tile(time, copies) + number * period
    rows[:, 3] = np.arange(len(rows))
    reduce = None if trees.reduce is None else np.tile(trees.reduce, copies)
    return Plan(rows=rows, reduce=reduce)
