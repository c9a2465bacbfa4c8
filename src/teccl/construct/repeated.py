"""Throughput plans: trees for a few pieces, balanced to the load bound, repeated for all pieces.

Laying trees is what costs time, and large collectives need many small pieces only to fill the
pipeline. So trees are laid for one *period* of pieces and every later period sends along the same
trees. On direct links a period's transfers get phases that repeat without collision (modulo
scheduling), which makes the steady state run at the load of the fullest link; through switches,
where a transfer holds several ports at once, all periods are scheduled serially.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple, TypeVar

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
from teccl.construct.trees import laid_plan, plan_across
from teccl.demand import Demand
from teccl.problem import Problem

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

# Trees in a period: enough that whole chunks balance the links to about one per cent. A switched
# period is not repeated in time, so that more trees cost no latency.
PERIOD_TREES = 128
SWITCHED_PERIOD_TREES = 512
# How much more urgent the beginnings of long ways are in serial scheduling than later pieces.
TAIL_WEIGHT = 2
# Parts of the time by one of which results are given out later than their sums are begun; fewer
# where there are fewer pieces.
GATHERED = (64, 16)
JUSTIFICATIONS = 3


class _Laying(NamedTuple):
    """How trees are laid: the price of a hop's time, how steep that of load is, what to aim at.

    A low price of time balances well, a high one keeps trees short; `aim` is a share of the bound
    and `stretch` how much longer than the longest of the shortest trees others may be.
    """

    length_weight: float
    steepness: float = 30.0
    aim: float = 1.0
    stretch: float = np.inf


# Found by trial: aiming below the bound takes up trees again that are good enough already, and
# long trees fill and empty the pipeline slowly, but may be what it takes to balance the links.
DIRECT_LAYINGS = (_Laying(0.1), _Laying(1e-6))
SWITCHED_LAYINGS = (_Laying(0.3, 60.0, 0.98, 1.2), _Laying(0.3, 60.0, 0.98, 1.5))
LONG_LAYING = _Laying(0.3, 60.0, 0.98)
# A gap with which no further trees are scheduled.
GOOD_GAP = 0.015
# Load above the bound with which other trees are laid instead, through switches.
BALANCED = 1.03
# Routes that are looked at in all passes over the trees, and the fewest and most passes.
LAYING_WORK = 12_000_000
PASSES = (8, 40)
# How trees are laid in which no passage serves several outputs, and a load at which they are good.
ACROSS = {False: _Laying(0.3, 60.0, 0.98), True: _Laying(3.0, 60.0, 0.98)}
ACROSS_PASSES = 8
ENOUGH = 1.003
# GPUs from which on every passage has one output: those of several must find all of them free at
# once, which is the harder the more there are. With fewer GPUs sums that go back out are better off
# with several. The other kind is tried too where such a gap is left, of copies and of these sums.
MANY_GPUS = 64
OTHER_GAPS = (0.02, 0.1)
# Loads that are added up at most to put trees in order.
SPREAD_WORK = 3_000_000_000


def period_pieces(problem: Problem) -> int:
    """Pieces per block in a period, a power of two; on direct links at most half of all."""
    blocks = max(1, len(problem.chunks) // problem.num_chunks)
    pieces = 1
    is_switched = problem.topology.num_switches > 0
    trees, periods = (SWITCHED_PERIOD_TREES, 1) if is_switched else (PERIOD_TREES, 2)
    trees *= 1 + (problem.topology.num_gpus >= MANY_GPUS)
    while pieces * blocks < trees and 2 * periods * pieces <= problem.num_chunks:
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
    if bool(np.all(np.diff(unit.routes.res_start) == 1)):
        for laying in DIRECT_LAYINGS:
            trees = _trees(unit, tables, laying, goal, seed)
            if trees is not None:
                yield _in_phases(instance, unit, trees)
        return
    kinds = [_plan_across, _switched_plan]
    is_large = instance.problem.topology.num_gpus >= MANY_GPUS
    goes_back = _goes_back(instance.problem)
    if goes_back and not is_large:
        kinds.reverse()
    for kind in kinds:
        plan = kind(instance, unit, tables, goal, seed)
        if plan is not None:
            yield plan
            if is_large or plan.finish <= target * (1 + OTHER_GAPS[goes_back]):
                return


def _goes_back(problem: Problem) -> bool:
    """Whether there are sums that several want, so that they go back out."""
    table = problem.chunks
    ends = np.unique(table.destination_set[table.reduce])
    return any(len(table.sets[end]) > 1 for end in ends)


def _plan_across(
    instance: Instance, unit: Instance, tables: Tables, goal: float, seed: int
) -> Plan | None:
    """Repeat trees in which every passage has one output."""
    del tables
    laying = ACROSS[_goes_back(unit.problem)]
    trees = plan_across(
        unit,
        target=max(1.0, laying.aim * goal),
        seed=seed,
        steepness=laying.steepness,
        passes=ACROSS_PASSES,
        length_weight=laying.length_weight,
        enough=ENOUGH * goal,
    )
    return None if trees is None else _in_turns(instance, unit, trees, goal)


def _switched_plan(
    instance: Instance, unit: Instance, tables: Tables, goal: float, seed: int
) -> Plan | None:
    """Repeat trees that balance well; of several that do, those that are scheduled best."""

    def lay(laying: _Laying) -> tuple[float, Plan] | None:
        trees = _trees(unit, tables, laying, goal, seed)
        return None if trees is None else (_fullest(unit, trees), trees)

    found = [each for each in _side_by_side(lay, SWITCHED_LAYINGS) if each is not None]
    if not found:
        return None
    balanced = [trees for load, trees in found if load <= BALANCED * goal]
    if not balanced:
        longer = lay(LONG_LAYING)
        found += [] if longer is None else [longer]
        balanced = [min(found, key=lambda each: each[0])[1]]
    goes_back = _goes_back(instance.problem)
    best: tuple[int, Plan, int] | None = None
    for trees in balanced if goes_back else balanced[:1]:

        def schedule(gathered: int, trees: Plan = trees) -> tuple[int, Plan, int]:
            plan = _in_turns(instance, unit, trees, goal, gathered=gathered, rounds=1)
            return plan.finish, trees, gathered

        tries = _side_by_side(schedule, GATHERED if goes_back else GATHERED[:1])
        best = min([*tries, *([] if best is None else [best])], key=lambda one: one[0])
        if best[0] <= (1 + GOOD_GAP) * goal * instance.problem.num_chunks / unit.problem.num_chunks:
            break
    assert best is not None
    return _in_turns(instance, unit, best[1], goal, gathered=best[2])


def _side_by_side(function: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
    """Call a function that spends its time in compiled code for several arguments, on two cores."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(function, given))


def _trees(unit: Instance, tables: Tables, laying: _Laying, goal: float, seed: int) -> Plan | None:
    work = LAYING_WORK // (len(unit.problem.chunks) * len(unit.routes))
    return laid_plan(
        unit,
        tables,
        target=max(1.0, laying.aim * goal),
        seed=seed,
        steepness=laying.steepness,
        passes=min(max(work, PASSES[0]), PASSES[1]),
        length_weight=laying.length_weight,
        join=True,
        stretch=laying.stretch,
    )


def _fullest(unit: Instance, trees: Plan) -> float:
    """Time for which all trees together hold the resource that they hold longest."""
    tasks = tasks_of_plan(unit, trees)
    return float(np.bincount(tasks.res, tasks.res_hold / unit.slots[tasks.res]).max())


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


def _in_turns(
    instance: Instance,
    unit: Instance,
    trees: Plan,
    goal: float,
    *,
    gathered: int = GATHERED[0],
    rounds: int = JUSTIFICATIONS,
) -> Plan:
    """Schedule all periods serially, one tree's beginnings before the next one's, and justify."""
    time = np.zeros(len(trees.rows), dtype=np.int64)
    plan = _repeat(instance, unit, trees, time, 0)
    tasks = tasks_of_plan(instance, plan)
    chunks = len(unit.problem.chunks)
    pieces, all_pieces = unit.problem.num_chunks, instance.problem.num_chunks
    block, piece = np.divmod(tasks.chunk, all_pieces)
    turn = _spread(unit, trees)
    place = piece // pieces + turn[block * pieces + piece % pieces] / chunks
    if _goes_back(instance.problem):
        # Sums are made throughout and results given out a little later: first come first served
        # would let GPUs wait that gather one sum after another.
        parts, periods = min(all_pieces / 2, gathered), all_pieces / pieces
        place = (place * parts + periods * ~tasks.reduce) / (1 + parts)
    order = precedence(instance, tasks)
    key = (place * goal).astype(np.int64) - TAIL_WEIGHT * task_tails(tasks, order)
    start = justify_serially(instance, tasks, key=key, rounds=rounds, order=order)
    return with_starts(plan, start, finish_time(tasks, start))


def _spread(unit: Instance, trees: Plan) -> IntArray:
    """Place of each tree in an order every stretch of which loads all resources in proportion.

    Of very many any order does that about as well.
    """
    count = len(unit.problem.chunks)
    if count**2 * unit.num_resources > SPREAD_WORK:
        return np.random.Generator(np.random.PCG64(0)).permutation(count)
    tasks = tasks_of_plan(unit, trees)
    owner = np.repeat(tasks.chunk, np.diff(tasks.res_start))
    load = np.zeros((count, unit.num_resources))
    np.add.at(load, (owner, tasks.res), tasks.res_hold / unit.slots[tasks.res])
    share = load.sum(axis=0) / count
    place = np.full(count, -1)
    # What a tree adds to the squared distance from the share, but for what all of them add.
    own = (load**2).sum(axis=1)
    ahead = -share
    for number in range(count):
        distance = own + 2 * (load @ ahead)
        best = int(np.argmin(np.where(place < 0, distance, np.inf)))
        place[best] = number
        ahead += load[best] - share
    return place


def _repeat(instance: Instance, unit: Instance, trees: Plan, time: IntArray, period: int) -> Plan:
    """Repeat a period's rows for all pieces."""
    pieces, all_pieces = unit.problem.num_chunks, instance.problem.num_chunks
    copies = all_pieces // pieces
    number = np.repeat(np.arange(copies), len(trees.rows))
    rows = np.tile(trees.rows, (copies, 1))
    block, piece = np.divmod(rows[:, 0], pieces)
    rows[:, 0] = block * all_pieces + number * pieces + piece
    rows[:, 2] = np.tile(time, copies) + number * period
    rows[:, 3] += number * (1 + int(trees.rows[:, 3].max()))
    reduce = None if trees.reduce is None else np.tile(trees.reduce, copies)
    return Plan(rows=rows, reduce=reduce)
