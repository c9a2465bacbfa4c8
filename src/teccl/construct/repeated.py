"""Throughput plans: trees for a few pieces, balanced to the load bound, repeated for all pieces.

Laying trees is what costs time, and large collectives need many small pieces only to fill the
pipeline. So trees are laid for one *period* of pieces and every later period sends along the same
trees. On direct links a period's transfers get phases that repeat without collision (modulo
scheduling), which makes the steady state run at the load of the fullest link; through switches,
where a transfer holds several ports at once, all periods are scheduled serially.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray, without_long_ways
from teccl.construct.jobs import due_times, justify_serially, schedule_scarce_first
from teccl.construct.multicast import Tables
from teccl.construct.params import JUSTIFICATIONS, MANY_GPUS
from teccl.construct.plan import Plan, with_starts
from teccl.construct.side_by_side import side_by_side
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    depths,
    finish_time,
    precedence,
    replay_tasks,
    task_tails,
    tasks_of_plan,
)
from teccl.construct.trees import laid_plan, plan_across
from teccl.demand import Demand
from teccl.problem import Problem

# Trees in a period: enough that whole chunks balance the links to about one per cent. A switched
# period is not repeated in time, so that more trees cost no latency, and the more GPUs the better.
PERIOD_TREES = 128
SWITCHED_PERIOD_TREES = (512, 1024)
# The fewest and most passes over the trees.
PASSES = (8, 40)
# How much more urgent the beginnings of long ways are in serial scheduling than later pieces.
TAIL_WEIGHT = 2
# Into so many parts the time is cut, by one of which results go out later than their sums begin.
GATHERED = (64, 16)


class _Laying(NamedTuple):
    """How trees are laid: the price of a hop's time, how steep that of load is, what to aim at.

    A low price of time balances well, a high one keeps trees short; `aim` is a share of the bound,
    with `enough` of which passes end, and `stretch` how much longer than the longest of the
    shortest trees others may be.
    """

    length_weight: float
    steepness: float = 30.0
    aim: float = 1.0
    stretch: float = np.inf
    passes: int = PASSES[0]
    enough: float = 1.003


# Found by trial: aiming below the bound takes up trees again that are good enough already, and
# long trees fill and empty the pipeline slowly, but may be what it takes to balance the links.
DIRECT_LAYINGS = (_Laying(0.1), _Laying(1e-6))
LONG_LAYING = _Laying(0.3, 60.0, 0.98)
SWITCHED_LAYINGS = tuple(LONG_LAYING._replace(aim=aim, stretch=1.2) for aim in (0.97, 0.99))
# Load above the bound with which other trees are laid instead, through switches.
BALANCED = 1.03
# Routes that are looked at in all passes over the trees.
LAYING_WORK = 12_000_000
# How trees are laid in which no passage serves several outputs, those that go back out otherwise.
ACROSS = {False: LONG_LAYING, True: _Laying(30.0, 200.0, 0.98, passes=3, enough=1.007)}
# How they are laid too where such a share of the members are slow, which hang near the roots then.
FEW_SLOW = 0.125
SHORT_ACROSS = ACROSS[True]._replace(length_weight=300.0)
# Other trees, and the other kind of passages, are tried too where such a gap is left, of copies and
# of sums that go back out.
OTHER_GAPS = (0.02, 0.1)
# Share of the time for which a GPU may have to send its own before sums and results overlap, and
# which share of it then either lasts. Branches may then take such a part of it one after another.
OVERLAPPING = 0.55
OVERLAP = 0.95
PATIENCE = 0.01
# Up to so many tasks other trees are laid too.
FEW_TASKS = 600_000
# Loads that are added up at most to put trees in order.
SPREAD_WORK = 3_000_000_000


def period_pieces(problem: Problem) -> int:
    """Pieces per block in a period, a power of two; on direct links at most half of all."""
    blocks = max(1, len(problem.chunks) // problem.num_chunks)
    pieces = 1
    trees, periods = PERIOD_TREES, 2
    if problem.topology.num_switches:
        is_large = problem.topology.num_gpus >= MANY_GPUS and not _goes_back(problem)
        trees, periods = SWITCHED_PERIOD_TREES[is_large], 1
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


def repeated_plans(
    instance: Instance, *, target: int, seed: int = 0, checkpoint: Callable[[], None] = lambda: None
) -> Iterator[Plan]:
    """Yield plans that repeat one period of balanced trees.

    Parameters
    ----------
    instance
        What is to be scheduled.
    target
        A lower bound.
    seed
        Of all random choices.
    checkpoint
        Called between steps that take long; may raise to end the search.
    """
    instance = without_long_ways(instance)
    pieces = period_pieces(instance.problem)
    goal = target * pieces / instance.problem.num_chunks
    work = _Repetition(instance, _one_period(instance, pieces), goal, seed, checkpoint)
    if bool(np.all(np.diff(work.unit.routes.res_start) == 1)):
        tables = Tables.build(work.unit)
        for laying in DIRECT_LAYINGS:
            trees = _trees(work, tables, laying)
            if trees is not None:
                yield _in_phases(instance, work.unit, trees)
        return
    kinds = [_plan_across, _switched_plan]
    is_large = instance.problem.topology.num_gpus >= MANY_GPUS
    goes_back = _goes_back(instance.problem)
    if goes_back and not is_large:
        kinds.reverse()
    for kind in kinds:
        plan = kind(work)
        if plan is not None:
            yield plan
            if is_large or plan.finish <= target * (1 + OTHER_GAPS[goes_back]):
                return
        checkpoint()


class _Repetition(NamedTuple):
    """What is repeated: all pieces, one period of them, its share of the bound, how to go on."""

    instance: Instance
    unit: Instance
    goal: float
    seed: int
    checkpoint: Callable[[], None]


def _goes_back(problem: Problem) -> bool:
    """Whether there are sums that several want, so that they go back out."""
    table = problem.chunks
    ends = np.unique(table.destination_set[table.reduce])
    return any(len(table.sets[end]) > 1 for end in ends)


def _plan_across(work: _Repetition) -> Plan | None:
    """Repeat trees in which every passage has one output."""
    if not _goes_back(work.unit.problem):
        turns = _turns_across(work, ACROSS[False])
        return turns and turns.plan(turns.starts(turns.parts(GATHERED[0])))
    slow = _slow_members(work)
    if not slow:
        return _sums_across(work, ACROSS[True])
    kinds = [partial(_sums_across, work, ACROSS[True], slow=slow)]
    if len(slow) <= FEW_SLOW * work.unit.problem.topology.num_gpus:
        kinds.append(partial(_sums_across, work, SHORT_ACROSS, slow=slow, urgent=slow))
    plans = [plan for plan in side_by_side(lambda kind: kind(), kinds) if plan is not None]
    if not plans or len(plans[0].rows) <= FEW_TASKS:
        apart = _sums_across(work, ACROSS[True])
        plans += [] if apart is None else [apart]
    return min(plans, key=attrgetter("finish"), default=None)


def _sums_across(
    work: _Repetition,
    laying: _Laying,
    *,
    slow: Sequence[int] = (),
    urgent: Sequence[int] = (),
) -> Plan | None:
    """Repeat trees of sums that go back out; beside slow members trees have few branches."""
    patience = PATIENCE if len(slow) else np.inf
    turns = _turns_across(work, laying, patience=patience, urgent=urgent)
    return turns and turns.plan(turns.scarce_first(overlaps=len(slow) > 0))


def _turns_across(
    work: _Repetition,
    laying: _Laying,
    *,
    patience: float = np.inf,
    urgent: Sequence[int] = (),
) -> "_Turns | None":
    """Lay such trees; with patience for a part of the time those have few branches."""
    work.checkpoint()
    periods = work.instance.problem.num_chunks / work.unit.problem.num_chunks
    trees = plan_across(
        work.unit,
        target=max(1.0, laying.aim * work.goal),
        seed=work.seed,
        steepness=laying.steepness,
        passes=laying.passes,
        length_weight=laying.length_weight,
        enough=laying.enough * work.goal,
        patience=patience * work.goal * periods,
        urgent=urgent,
    )
    work.checkpoint()
    return None if trees is None else _Turns.of(work, trees)


def _slow_members(work: _Repetition) -> list[int]:
    """Members that take for longer than half of the time to send their own, or to receive all.

    The first sums must then be complete early, since their results are what the rest of the time is
    for: trees with few branches at a time gather them sooner.
    """
    topology, table = work.unit.problem.topology, work.unit.problem.chunks
    members = np.unique(np.concatenate(table.sets))
    is_slow = np.zeros(len(members), dtype=bool)
    for end in (topology.link_src, topology.link_dst):
        rate = np.bincount(end, 1 / work.unit.hold, minlength=topology.num_nodes)
        is_slow |= len(table) > OVERLAPPING * work.goal * rate[members]
    return [int(node) for node in members[is_slow]]


def _switched_plan(work: _Repetition) -> Plan | None:
    """Repeat trees that balance well; of several that do, those that are scheduled best."""
    tables = Tables.build(work.unit)

    def lay(laying: _Laying) -> tuple[float, Plan] | None:
        trees = _trees(work, tables, laying)
        return None if trees is None else (_fullest(work.unit, trees), trees)

    found = [each for each in side_by_side(lay, SWITCHED_LAYINGS) if each is not None]
    if not found:
        return None
    balanced = [trees for load, trees in found if load <= BALANCED * work.goal]
    if not balanced:
        longer = lay(LONG_LAYING)
        found += [] if longer is None else [longer]
        balanced = [min(found, key=lambda each: each[0])[1]]
    if not _goes_back(work.unit.problem):
        turns = _Turns.of(work, balanced[0])
        return turns.plan(turns.starts(turns.parts(GATHERED[0])))
    tries: list[tuple[int, _Turns, float, IntArray]] = []
    for trees in balanced:
        work.checkpoint()
        turns = _Turns.of(work, trees)
        parts = sorted({turns.parts(gathered) for gathered in GATHERED})
        found_starts = side_by_side(partial(turns.starts, rounds=1), parts)
        tries += [
            (finish_time(turns.tasks, start), turns, part, start)
            for part, start in zip(parts, found_starts, strict=True)
        ]
        if min(tries, key=itemgetter(0))[0] <= (1 + OTHER_GAPS[0]) * turns.target:
            break
    _, turns, part, start = min(tries, key=itemgetter(0))
    return turns.plan(turns.starts(part, rounds=JUSTIFICATIONS - 1, known=start))


def _trees(work: _Repetition, tables: Tables, laying: _Laying) -> Plan | None:
    looks = LAYING_WORK // (len(work.unit.problem.chunks) * len(work.unit.routes))
    return laid_plan(
        work.unit,
        tables,
        target=max(1.0, laying.aim * work.goal),
        seed=work.seed,
        steepness=laying.steepness,
        passes=min(max(looks, PASSES[0]), PASSES[1]),
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
    tenants = tuple(t.scaled(share) for t in problem.demand.tenants)
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


class _Turns(NamedTuple):
    """All periods of some trees, to be scheduled serially, one tree's beginnings before the next's.

    `place` is each task's, from nought to one, and `target` the bound.
    """

    instance: Instance
    trees: Plan
    tasks: Tasks
    order: Precedence
    place: npt.NDArray[np.float64]
    target: float
    checkpoint: Callable[[], None]

    @staticmethod
    def of(work: _Repetition, trees: Plan) -> "_Turns":
        """Repeat trees and put them in an order."""
        instance, unit = work.instance, work.unit
        plan = _repeat(instance, unit, trees, np.zeros(len(trees.rows), dtype=np.int64), 0)
        tasks = tasks_of_plan(instance, plan)
        pieces, all_pieces = unit.problem.num_chunks, instance.problem.num_chunks
        block, piece = np.divmod(tasks.chunk, all_pieces)
        turn = _spread(unit, trees)[block * pieces + piece % pieces] / len(unit.problem.chunks)
        periods = all_pieces // pieces
        order = precedence(instance, tasks)
        return _Turns(
            instance=instance,
            trees=plan,
            tasks=tasks,
            order=order,
            place=(piece // pieces + turn) / periods,
            target=work.goal * periods,
            checkpoint=work.checkpoint,
        )

    def parts(self, most: int) -> float:
        """Parts of the time by one of which results go out later than their sums are begun."""
        return min(self.instance.problem.num_chunks / 2, most)

    def starts(
        self, gathered: float, *, rounds: int = JUSTIFICATIONS, known: IntArray | None = None
    ) -> IntArray:
        """Schedule serially and justify, or go on with that."""
        place = self.place
        if _goes_back(self.instance.problem):
            # First come first served would let GPUs wait that gather one sum after another.
            place = (place * gathered + ~self.tasks.reduce) / (1 + gathered)
        return justify_serially(
            self.instance,
            self.tasks,
            key=(place * self.target).astype(np.int64)
            - TAIL_WEIGHT * task_tails(self.tasks, self.order),
            rounds=rounds,
            order=self.order,
            known=known,
            checkpoint=self.checkpoint,
        )

    def scarce_first(self, *, overlaps: bool) -> IntArray:
        """Schedule what is scarce first, everything by when it is due, of sums that go back out.

        All sums come before all results, but for as much as something is held for longer than half
        of the time by one of these; where that `overlaps`, each soon after its own sum.
        """
        share = OVERLAP if overlaps else self._longest_phase()
        place = share * self.place + np.where(self.tasks.reduce, 0.0, 1.0 - share)
        due = due_times(self.order, (place * self.target).astype(np.int64))
        start = schedule_scarce_first(
            self.instance, self.tasks, key=due, rounds=JUSTIFICATIONS, order=self.order
        )
        if not overlaps:
            return start
        return justify_serially(
            self.instance, self.tasks, key=due, rounds=1, order=self.order, known=start
        )

    def _longest_phase(self) -> float:
        """Share of the time for which sums, or what goes back out, hold anything; at least half."""
        tasks = self.tasks
        is_sum = np.repeat(tasks.reduce, np.diff(tasks.res_start))
        held = [
            np.bincount(tasks.res[chosen], tasks.res_hold[chosen]).max(initial=0)
            for chosen in (is_sum, ~is_sum)
        ]
        return float(np.clip(max(held) / self.target, 0.5, 1.0))

    def plan(self, start: IntArray) -> Plan:
        """Return the trees with starts."""
        return with_starts(self.trees, start, finish_time(self.tasks, start))


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
