"""Route first, schedule second: balanced trees and paths whose transfers are then put in order."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.jobs import Jobs, justify_serially
from teccl.construct.multicast import Tables
from teccl.construct.params import (
    GAPS_EACH,
    JUSTIFICATIONS,
    LAID_PER_GPU,
    LISTING_UNITS,
    NEVER,
    PATH_UNITS,
    SPREAD,
    STEEPNESS,
    TIME_PRICES,
    TREE_UNITS,
    WORK_LEFT,
)
from teccl.construct.plan import Plan, with_starts
from teccl.construct.restricted import delivery_paths, path_plan
from teccl.construct.symmetry import find_group, is_symmetric_demand, symmetric_paths
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    finish_time,
    justify,
    precedence,
    schedule_tasks,
    task_tails,
    tasks_of_plan,
)
from teccl.construct.trees import laid_plan
from teccl.demand import Collective
from teccl.footprint import num_deliveries


def routing_work(instance: Instance) -> int:
    """Units of laying ways for all deliveries and of scheduling them by one key."""
    routes, count = instance.routes, num_deliveries(instance.problem)
    return _laying_work(instance) + listing_work(count, len(routes.links) / max(1, len(routes)))


def choosing_work(instance: Instance) -> int:
    """Units of choosing routes for trees that are known, and of scheduling them by one key."""
    routes, count = instance.routes, num_deliveries(instance.problem)
    return TREE_UNITS * count + listing_work(count, len(routes.links) / max(1, len(routes)))


def _laying_work(instance: Instance) -> int:
    """Units of laying all ways; every tree looks at all routes, for sums at several roots."""
    table, deliveries = instance.problem.chunks, num_deliveries(instance.problem)
    is_exchange = all(len(table.sets[i]) == 1 for i in np.unique(table.destination_set))
    if is_exchange and not table.reduce.any():
        return PATH_UNITS * deliveries
    looks = len(table) * len(instance.routes)
    goes_back = table.reduce & (table.source_set == table.destination_set)
    return TREE_UNITS * deliveries + (looks if goes_back.any() else looks // TREE_UNITS)


def listing_work(num_tasks: int, hops: float) -> int:
    """Units of scheduling so many transfers by one key, each over so many links.

    Those on more resources take longer, and passages through several switches leave gaps
    everywhere, in which all that follow are tried.
    """
    stages = max(1.0, hops / 2)
    gaps = (stages - 1) * num_tasks / GAPS_EACH
    return int(LISTING_UNITS * num_tasks * stages * (1 + gaps))


def routed_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans from balanced trees and paths, scheduled in several orders."""
    best, work = NEVER, routing_work(instance)
    known = set[tuple[bytes | None, ...]]()
    for plan in _routings(instance, goal):
        goal.begin(_laying_work(instance))
        # Where there is little choice, as along a ring, other prices give the same ways again.
        parts = (plan.rows, plan.reduce, plan.feeder, plan.path)
        ways = tuple(None if part is None else part.tobytes() for part in parts)
        for listed in () if ways in known else listed_plans(instance, plan, goal):
            if listed.finish <= best:
                best = listed.finish
                yield listed
        known.add(ways)
        if not goal.is_worth(best, work):
            return


def _routings(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield trees and paths without times, for large exchanges repeated by symmetry first."""

    def lay(part: Instance, price: float = TIME_PRICES[0]) -> Plan | None:
        return laid_plan(
            part,
            Tables.build(part),
            target=float(max(goal.target, 1)),
            seed=goal.seed,
            length_weight=price,
        )

    problem = instance.problem
    is_large = len(problem.chunks) > LAID_PER_GPU * problem.topology.num_gpus
    group = find_group(problem.topology) if is_large else None
    if group is not None and is_symmetric_demand(problem, Collective.ALLTOALL):
        repeated = symmetric_paths(instance, group, lay)
        if repeated is not None:
            yield repeated
    for price in TIME_PRICES:
        plan = lay(instance, price)
        if plan is None:
            return
        yield plan


def separate_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans in which every destination gets a copy of its own from the source."""
    for steepness in (STEEPNESS, 0.0):
        paths = delivery_paths(
            instance, target=float(max(goal.target, 1)), steepness=steepness, seed=goal.seed
        )
        if paths is not None:
            yield from listed_plans(instance, path_plan(paths), goal)


def listed_plans(instance: Instance, plan: Plan, goal: Goal) -> Iterator[Plan]:
    """Schedule a plan's tasks by several keys, serially and by lists, and justify."""
    tasks = tasks_of_plan(instance, plan)
    # Tasks are timed for their chunks' own sizes, but not for rates that change.
    exact = instance.grid is None and not instance.problem.topology.has_profiles
    for start, finish in listed_starts(instance, tasks, precedence(instance, tasks), goal):
        yield replace(with_starts(plan, start, finish), exact=exact)


def listed_starts(
    instance: Instance, tasks: Tasks, order: Precedence, goal: Goal, *, work: int | None = None
) -> Iterator[tuple[IntArray, int]]:
    """Yield starts of tasks and when all is over, each better than the ones before.

    One key takes so much `work`, by default that of as many transfers as there are tasks.
    """
    work = work or listing_work(len(tasks), len(tasks.hop_link) / max(1, len(tasks)))
    best = NEVER
    jobs = Jobs.of(instance, tasks, order) if instance.slots.max() == 1 else None
    for key, weight in _keys(instance, tasks, goal.target, order):
        if not goal.is_worth(best, work):
            return
        goal.begin(work)
        for start in starts_by_key(instance, tasks, order, key, weight, jobs=jobs):
            finish = finish_time(tasks, start)
            if finish < best:
                best = finish
                yield start, finish
            if finish <= goal.target:
                return


def starts_by_key(
    instance: Instance,
    tasks: Tasks,
    order: Precedence,
    key: IntArray,
    weight: float,
    *,
    jobs: Jobs | None,
) -> Iterator[IntArray]:
    """Yield starts by a key: of jobs placed serially, list scheduling, and the latter justified."""
    if jobs is not None:
        yield justify_serially(
            instance, tasks, key=key, rounds=JUSTIFICATIONS, order=order, jobs=jobs
        )
    start = schedule_tasks(instance, tasks, key=key, weight=weight, order=order)
    yield start
    if finish_time(tasks, start) < NEVER:
        yield justify(instance, tasks, start, rounds=JUSTIFICATIONS, weight=weight, order=order)


def _keys(
    instance: Instance, tasks: Tasks, target: int, order: Precedence
) -> list[tuple[IntArray, float]]:
    """Orders in which to start tasks, and what the work left on other resources weighs in them.

    By longest way on, by turns around the ring, by chunk, important tenants first.
    """
    problem = instance.problem
    topology, table = problem.topology, problem.chunks
    n = topology.num_gpus
    rank = np.zeros(topology.num_nodes, dtype=np.int64)
    rank[topology.gpus] = np.arange(n)
    tail = task_tails(tasks, order)
    first_out = tasks.out_node[tasks.out_start[:-1]]
    # Senders turn to receivers at equal distance around the ranks, so that no two meet.
    turn = (rank[first_out] - rank[tasks.src]) % n
    rounds = table.piece[tasks.chunk] * n + turn
    steps = np.unique(rounds, return_inverse=True)[1]
    scale = max(1, int(steps.max(initial=0)) + 1)
    mixed = np.random.Generator(np.random.PCG64(0)).permutation(len(table))
    share = SPREAD * target / max(1, len(table))
    spaced, in_order = (
        (place[tasks.chunk] * share).astype(np.int64) - 2 * tail
        for place in (mixed, np.arange(len(table)))
    )
    weight = np.array([float(t.priority) for t in problem.demand.tenants])
    first = np.unique(-weight, return_inverse=True)[1][table.tenant[tasks.chunk]]
    important = [(first * (int(tail.max(initial=0)) + 1) - tail, 0.0)] if first.any() else []
    return [
        *important,
        (-tail * scale + steps, 0.0),
        (-tail, 1.0),
        (spaced, 0.0),
        (steps, 0.0),
        (-tail, WORK_LEFT),
        (in_order, 0.0),
        (spaced, WORK_LEFT),
    ]
