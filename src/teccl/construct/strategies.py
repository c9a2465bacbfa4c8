"""Strategies: which constructions to try for a demand, best first, one schedule after another."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from teccl.construct.gathering import gathered_allreduce
from teccl.construct.hierarchy import hierarchical_plan
from teccl.construct.instance import Instance, IntArray
from teccl.construct.jobs import justify_serially
from teccl.construct.multicast import Tables, greedy
from teccl.construct.plan import Plan, with_starts
from teccl.construct.restricted import delivery_paths, path_plan, rigid_plans
from teccl.construct.reversal import can_reverse, reducing_switches, reversed_plan
from teccl.construct.side_by_side import side_by_side
from teccl.construct.symmetry import (
    find_group,
    is_symmetric_demand,
    symmetric_paths,
    symmetric_plans,
)
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    finish_time,
    justify,
    precedence,
    replay_tasks,
    schedule_tasks,
    task_tails,
    tasks_of_plan,
)
from teccl.construct.trees import laid_plan
from teccl.demand import Collective, Demand
from teccl.footprint import num_deliveries
from teccl.problem import ChunkTable, Problem

# Deliveries that greedy runs may make in all for one problem: work that is the same everywhere.
GREEDY_WORK = {"quick": 30_000, "normal": 120_000, "thorough": 12_000_000}
# Deliveries times routes beyond which greedy runs take so long that groups are planned first.
GREEDY_LOOKS = 2_000_000_000
# Deliveries from which on both halves of an AllReduce are constructed at a time.
LARGE_HALVES = 200_000
# Tasks that list scheduling may place in all.
LISTING_WORK = {"quick": 20_000, "normal": 300_000, "thorough": 8_000_000}
# Runs in a quotient that are always made: one for each of its variants.
MIN_SYMMETRIC = 2
MAX_STARTS = {"quick": 2, "normal": 300, "thorough": 1000}
# Gap above which the next kind of construction is tried. Whole chunks cannot meet a bound for any
# chunking, so that going on for the last per mille would be in vain.
GREEDY_GAP = {"quick": 0.01, "normal": 0.005, "thorough": 0.0}
LAID_GAP = {"quick": float("inf"), "normal": 0.02, "thorough": 0.0}
# Price of time and steepness of the price of load with which paths are laid, one after the other.
LAYINGS = ((1e-6, 30.0), (0.1, 30.0), (1.0, 0.0))
# Chunks of an exchange beyond which paths are laid for one source of each orbit only: each of its
# ways is repeated by all shifts, which balances well only where there are many.
MAX_LAID = 20_000
# Rounds of justification after serial scheduling, and a gap below which lists are not tried.
SERIAL_ROUNDS = 3
SERIAL_GAP = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How much deterministic work to put into one problem.

    Parameters
    ----------
    level
        Name of the effort.
    seed
        Of all random choices.
    exact
        Whether the bound counts whole chunks, so that a schedule may well meet it.
    checkpoint
        Called before each run; may raise to end the search.
    """

    level: str = "normal"
    seed: int = 0
    exact: bool = False
    checkpoint: Callable[[], None] = lambda: None

    def greedy_runs(self, deliveries: int) -> int:
        """Greedy runs that the work allows, at least one."""
        runs = GREEDY_WORK[self.level] // max(1, deliveries)
        return max(1, min(runs, MAX_STARTS[self.level]))

    def wants_greedy(self, finish: int, target: int) -> bool:
        """Whether greedy runs are worth trying after a finish."""
        return finish > target * (1 + (0 if self.exact else GREEDY_GAP[self.level]))

    def wants_trees(self, finish: int, target: int) -> bool:
        """Whether laying trees is worth trying after a finish."""
        return finish > target * (1 + LAID_GAP[self.level])

    def affords_listing(self, tasks: int) -> bool:
        """Whether tasks that are placed already may be laid or listed again."""
        return tasks <= LISTING_WORK[self.level]

    def listing_runs(self, tasks: int) -> int:
        """List schedules that the work allows, at least one."""
        runs = LISTING_WORK[self.level] // max(1, tasks)
        return max(1, min(runs, MAX_STARTS[self.level]))


def plans(instance: Instance, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield plans for an instance, each better than the ones before, or as good for tenants.

    Parameters
    ----------
    instance
        What is to be scheduled.
    target
        A lower bound in the instance's time; reaching it ends the search.
    work
        How much to try.
    """
    best = 2**61
    # Of several tenants' plans that end together one may serve the important tenant sooner.
    tied = len(instance.problem.demand.tenants) > 1
    for plan in _candidates(instance, target=target, work=work):
        if plan.finish < best or (tied and plan.finish == best):
            best = plan.finish
            yield plan
        if best <= target and not tied:
            return


def _candidates(instance: Instance, *, target: int, work: Work) -> Iterator[Plan]:
    """Try what suits the demand."""
    table = instance.problem.chunks
    tables = Tables.build(instance)
    topology = instance.problem.topology
    if instance.grid is not None and topology.has_profiles and topology.num_switches:
        # A switch passes data on in an exact epoch, which here depends on when it is sent.
        return
    if instance.problem.buffer is not None:
        if not table.reduce.any():
            yield from rigid_plans(instance, target=target, seed=work.seed)
        return
    if not instance.problem.copy and not _only_combines(instance.problem):
        if table.reduce.any():
            return
        yield from _separate_copies(instance, target=target, work=work)
        return
    tenants = instance.problem.demand.tenants
    copies = not table.reduce.any()
    several = any(len(nodes) > 1 for nodes in _goal_sets(instance.problem.chunks))
    stages: Iterator[Plan] = iter(())
    if copies and several:
        stages = _multicasts(instance, tables, target=target, work=work)
    elif _is_allreduce(instance.problem) and can_reverse(instance.problem):
        stages = _allreduces(instance, target=target, work=work)
    elif _only_combines(instance.problem) and can_reverse(instance.problem):
        stages = _reversed(instance, target=target, work=work)
    best = 2**61
    for plan in stages:
        best = min(best, plan.finish)
        yield plan
    is_affordable = work.affords_listing(num_deliveries(instance.problem))
    wants_trees = is_affordable and work.wants_trees(best, target)
    if best == 2**61 or len(tenants) > 1 or wants_trees:
        yield from _laid(instance, tables, target=target, work=work)


def _only_combines(problem: Problem) -> bool:
    """Whether nothing but sums is asked for, each by one GPU: trees of those copy nothing."""
    table = problem.chunks
    return bool(table.reduce.all()) and all(len(nodes) == 1 for nodes in _goal_sets(table))


def _goal_sets(table: ChunkTable) -> list[IntArray]:
    return [table.sets[i] for i in np.unique(table.destination_set)]


def _is_allreduce(problem: Problem) -> bool:
    return all(t.collective is Collective.ALLREDUCE for t in problem.demand.tenants)


class _Variant(NamedTuple):
    join: bool
    thrifty: bool
    longest_first: bool


def _variants(instance: Instance) -> list[_Variant]:
    """Ways to run the greedy scheduler, those that win most often first."""
    switched = instance.problem.topology.num_switches > 0
    if not switched:
        return [_Variant(False, False, False), _Variant(False, True, False)]
    joins = [True, False] if not instance.problem.topology.has_profiles else [False]
    return [_Variant(j, t, True) for t in (True, False) for j in joins]


def _greedy_plans(instance: Instance, tables: Tables, work: Work) -> Iterator[Plan]:
    """Yield every greedy plan; a run that can no longer win is cut short by its deadline."""
    variants = _variants(instance)
    best: int | None = None
    # The first round tries every variant; later ones repeat those that came near the best.
    found: dict[_Variant, int] = {}
    runs = work.greedy_runs(num_deliveries(instance.problem))
    for run in range(runs):
        work.checkpoint()
        variant = variants[run % len(variants)]
        if run >= len(variants) and best is not None and found.get(variant, 2**61) > 1.05 * best:
            continue
        plan = greedy(
            instance,
            tables,
            seed=work.seed * 1009 + run // len(variants),
            join=variant.join,
            thrifty=variant.thrifty,
            longest_first=variant.longest_first,
        )
        if plan is None:
            continue
        found[variant] = min(found.get(variant, 2**61), plan.finish)
        if best is None or plan.finish < best:
            best = plan.finish
            yield plan


def _multicasts(instance: Instance, tables: Tables, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield multicasts: repeated by symmetry where there is one, by groups, then greedy ones."""
    best = 2**61
    deliveries = num_deliveries(instance.problem)
    if is_symmetric_demand(instance.problem, Collective.ALLGATHER):
        group = find_group(instance.problem.topology)
        if group is not None:
            # In the quotient every route waits for few resources and is looked at each time.
            looks = max(1, len(instance.routes) // 100)
            runs = max(MIN_SYMMETRIC, work.greedy_runs(deliveries // len(group) * looks))
            for plan in symmetric_plans(instance, group, runs=runs, seed=work.seed, target=target):
                best = plan.finish
                yield plan
    is_large = best == 2**61 and deliveries * len(instance.routes) > GREEDY_LOOKS
    if (is_large or work.level == "thorough") and work.wants_greedy(best, target):
        laid = hierarchical_plan(instance)
        if laid is not None:
            plan = _in_turns(instance, laid)
            best = min(best, plan.finish)
            yield plan
    # Without any plan there must be one run at least, however large.
    is_affordable = best == 2**61 or deliveries <= GREEDY_WORK[work.level]
    if is_affordable and work.wants_greedy(best, target):
        yield from _greedy_plans(instance, tables, work)


def _in_turns(instance: Instance, plan: Plan) -> Plan:
    """Schedule a plan whose starts are turns, the first ones first."""
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    if instance.slots.max() == 1:
        start = justify_serially(
            instance, tasks, key=tasks.start, rounds=SERIAL_ROUNDS, order=order
        )
    else:
        start = schedule_tasks(instance, tasks, key=tasks.start, order=order)
    return with_starts(plan, start, finish_time(tasks, start))


def _reversed(instance: Instance, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield reductions made by reversing the best multicast, in switches first if they can."""

    def best_multicast(backward: Instance, tables: Tables) -> Plan | None:
        found = _multicasts(backward, tables, target=target, work=work)
        return min(found, key=lambda plan: plan.finish, default=None)

    num_switches = instance.problem.topology.num_switches
    can_gather = 0 < num_switches == len(reducing_switches(instance))
    for gathers in (True, False) if can_gather else (False,):
        backward = reversed_plan(instance, best_multicast, gathers=gathers)
        plan = None if backward is None else _replayed(instance, backward)
        if plan is not None:
            yield plan


def _replayed(instance: Instance, plan: Plan) -> Plan | None:
    """Place a plan's tasks again in their order, which mends what reversal bends."""
    tasks = tasks_of_plan(instance, plan)
    start = replay_tasks(instance, tasks, key=tasks.start)
    finish = finish_time(tasks, start)
    return None if finish >= 2**61 else with_starts(plan, start, finish)


def _allreduces(instance: Instance, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield AllReduces: in switches that can add up, then of two halves between GPUs."""
    if len(reducing_switches(instance)):
        halves = (_phase(instance, c) for c in (Collective.REDUCESCATTER, Collective.ALLGATHER))
        plan = gathered_allreduce(*halves)
        if plan is not None:
            found = list(_listed(instance, plan, target=target, work=work))
            yield min(found, key=lambda plan: plan.finish)
            if not work.wants_trees(min(plan.finish for plan in found), target):
                return
    yield from composed_allreduce(instance, target=target, work=work)


def composed_allreduce(instance: Instance, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield AllReduces made of the best ReduceScatter and the best AllGather.

    Both phases are placed together: an AllGather's send starts as soon as its chunk is reduced.
    """
    scatter = _phase(instance, Collective.REDUCESCATTER)
    gather = _phase(instance, Collective.ALLGATHER)
    goal = target // 2
    firsts = _reversed(scatter, target=goal, work=work)
    seconds = _multicasts(gather, Tables.build(gather), target=goal, work=work)
    if num_deliveries(gather.problem) >= LARGE_HALVES:
        firsts, seconds = map(iter, side_by_side(list, [firsts, seconds]))
    second = min(seconds, key=lambda plan: plan.finish, default=None)
    if second is None:
        return
    for first in firsts:
        plan = _one_after_another(first, second)
        yield plan
        placed = _replayed(instance, plan)
        if placed is not None:
            yield placed
            if work.affords_listing(len(plan.rows)) and work.wants_trees(placed.finish, target):
                yield from _justified(instance, placed, work)


def _one_after_another(first: Plan, second: Plan) -> Plan:
    """Return the plan in which a ReduceScatter is followed by an AllGather."""
    rows = np.concatenate([first.rows, second.rows])
    rows[len(first.rows) :, 2] += first.finish
    rows[len(first.rows) :, 3] += len(first.rows)
    reduce = np.arange(len(rows)) < len(first.rows)
    return Plan(rows=rows, finish=first.finish + second.finish, reduce=reduce)


def _phase(instance: Instance, collective: Collective) -> Instance:
    """Return the instance of one half of an AllReduce, on the same routes."""
    problem = instance.problem
    tenants = tuple(replace(t, collective=collective) for t in problem.demand.tenants)
    half = replace(problem, demand=Demand(tenants=tenants))
    return Instance.build(half, instance.grid, ways=instance.routes.ways())


def _justified(instance: Instance, plan: Plan, work: Work) -> Iterator[Plan]:
    tasks = tasks_of_plan(instance, plan)
    rounds = min(8, work.listing_runs(2 * len(tasks)))
    order = precedence(instance, tasks)
    start = justify(instance, tasks, tasks.start, rounds=rounds, order=order)
    finish = finish_time(tasks, start)
    if finish < plan.finish:
        yield with_starts(plan, start, finish)


def _laid(instance: Instance, tables: Tables, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield plans from balanced trees and paths, list-scheduled in several orders."""
    best: int | None = None
    for plan in _laid_plans(instance, tables, target=target, work=work):
        for listed in _listed(instance, plan, target=target, work=work):
            if best is None or listed.finish <= best:
                best = listed.finish
                yield listed
        if best is not None and not work.wants_trees(best, target):
            return


def _laid_plans(instance: Instance, tables: Tables, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield trees and paths without times, for large exchanges repeated by symmetry first."""

    def lay(part: Instance, tables: Tables, weights: tuple[float, float]) -> Plan | None:
        return laid_plan(
            part,
            tables,
            target=float(max(target, 1)),
            seed=work.seed,
            length_weight=weights[0],
            steepness=weights[1],
        )

    def lay_first(small: Instance) -> Plan | None:
        return lay(small, Tables.build(small), LAYINGS[0])

    is_large = len(instance.problem.chunks) > MAX_LAID
    if is_large and is_symmetric_demand(instance.problem, Collective.ALLTOALL):
        group = find_group(instance.problem.topology)
        plan = None if group is None else symmetric_paths(instance, group, lay_first)
        if plan is not None:
            yield plan
            if len(instance.problem.chunks) > LISTING_WORK[work.level]:
                return
    for weights in LAYINGS:
        plan = lay(instance, tables, weights)
        if plan is None:
            return
        yield plan


def _separate_copies(instance: Instance, *, target: int, work: Work) -> Iterator[Plan]:
    """Yield plans in which every destination gets a copy of its own from the source."""
    for steepness in (30.0, 0.0):
        paths = delivery_paths(
            instance, target=float(max(target, 1)), steepness=steepness, seed=work.seed
        )
        if paths is not None:
            yield from _listed(instance, path_plan(paths), target=target, work=work)


def _listed(instance: Instance, plan: Plan, *, target: int, work: Work) -> Iterator[Plan]:
    """Schedule a plan's tasks by several keys, serially and by lists, and justify."""
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    runs = work.listing_runs(3 * len(tasks))
    serial = bool(instance.slots.max() == 1)
    for key, weight in _keys(instance, tasks, target, order)[:runs]:
        work.checkpoint()
        if serial:
            start = justify_serially(instance, tasks, key=key, rounds=SERIAL_ROUNDS, order=order)
            finish = finish_time(tasks, start)
            yield with_starts(plan, start, finish)
            if finish <= target * (1 + SERIAL_GAP):
                continue
        start = schedule_tasks(instance, tasks, key=key, weight=weight, order=order)
        finish = finish_time(tasks, start)
        if finish >= 2**61:
            continue
        yield with_starts(plan, start, finish)
        work.checkpoint()
        rounds = min(8, max(2, runs // 2))
        better = justify(instance, tasks, start, rounds=rounds, weight=weight, order=order)
        yield with_starts(plan, better, finish_time(tasks, better))


def _keys(
    instance: Instance, tasks: Tasks, target: int, order: Precedence
) -> list[tuple[IntArray, float]]:
    """Orders in which to start tasks: by longest way on, by turns around the ring, by chunk."""
    problem = instance.problem
    topology, table = problem.topology, problem.chunks
    n = topology.num_gpus
    rank = np.zeros(topology.num_nodes, dtype=np.int64)
    rank[topology.gpus] = np.arange(n)
    tail = task_tails(tasks, order)
    first_out = tasks.out_node[tasks.out_start[:-1]]
    # Senders turn to receivers at equal distance around the ranks, so that no two meet.
    turn = (rank[first_out] - rank[tasks.src]) % n
    piece = table.piece[tasks.chunk]
    rounds = piece * n + turn
    steps = np.unique(rounds, return_inverse=True)[1]
    scale = max(1, int(steps.max(initial=0)) + 1)
    generator = np.random.Generator(np.random.PCG64(0))
    place = generator.permutation(len(table))[tasks.chunk]
    spaced = (place * (0.8 * target / max(1, len(table)))).astype(np.int64) - 2 * tail
    in_order = (tasks.chunk * (0.8 * target / max(1, len(table)))).astype(np.int64) - 2 * tail
    weight = np.array([float(t.priority) for t in problem.demand.tenants])
    first = np.unique(-weight, return_inverse=True)[1][table.tenant[tasks.chunk]]
    important = [(first * (int(tail.max(initial=0)) + 1) - tail, 0.0)] if first.any() else []
    return [
        *important,
        (-tail * scale + steps, 0.0),
        (-tail, 1.0),
        (spaced, 0.0),
        (steps, 0.0),
        (-tail, 0.3),
        (in_order, 0.0),
        (spaced, 0.3),
    ]
