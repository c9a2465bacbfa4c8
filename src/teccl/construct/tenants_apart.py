"""Tenants apart: each planned as if it were alone, then in turn, side by side, or by importance."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from teccl.construct.compositions import best_plan
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import JUSTIFICATIONS, LISTING_UNITS, NEVER
from teccl.construct.plan import Plan, with_starts
from teccl.construct.tasks import (
    finish_time,
    justify,
    precedence,
    replay_tasks,
    schedule_tasks,
    tasks_of_plan,
)
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.footprint import num_deliveries
from teccl.problem import Problem


def shares_fabric(instance: Instance) -> bool:
    """Whether several tenants may be planned apart: in continuous time, with nothing limited."""
    problem = instance.problem
    is_timed = instance.grid is None and not problem.topology.has_profiles
    is_free = problem.buffer is None and problem.copy
    return len(_served(instance)) > 1 and is_timed and is_free


def _served(instance: Instance) -> IntArray:
    """Return the numbers of the tenants that want anything from others."""
    return np.unique(instance.problem.chunks.tenant)


def apart_work(instance: Instance) -> int:
    """Units of putting everything in order once for each way to do it."""
    return 2 * LISTING_UNITS * num_deliveries(instance.problem)


def apart_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield the tenants' own plans one after another, as early as links allow, and together."""
    served = _served(instance)
    count = len(served)
    plans: list[Plan] = []
    for number in served.tolist():
        part = replace(goal, target=goal.target // count, allowance=goal.allowance // count)
        plan = best_plan(alone(instance, number), part, goal)
        if plan is None:
            return
        plans.append(plan)
    for turn in _turns(instance, plans):
        goal.begin(apart_work(instance))
        yield from _together(instance, _merged(instance, plans, turn))


def alone(instance: Instance, number: int) -> Instance:
    """Return the instance of one tenant by itself, on the same routes and of the same chunks."""
    problem, tenant = instance.problem, instance.problem.demand.tenants[number]
    own = np.flatnonzero(problem.chunks.tenant == number)
    largest = max(block.size for block in problem.blocks(tenant))
    pieces = max(1, -(-largest // problem.chunk_bytes))
    part = replace(problem, demand=Demand(tenants=(tenant,)), num_chunks=int(pieces))
    if part.chunk_bytes != min(problem.chunk_bytes, largest):
        # What does not divide evenly is listed piece by piece.
        listed = _listed(problem, tenant, own)
        part = replace(part, demand=Demand(tenants=(listed,)), num_chunks=1)
    return Instance.build(part, ways=instance.routes.ways())


def _listed(problem: Problem, tenant: Tenant, chunks: IntArray) -> Tenant:
    """Return a tenant with its chunks one by one."""
    table = problem.chunks
    rank = {node: rank for rank, node in enumerate(problem.topology.gpus.tolist())}

    def ranks(nodes: IntArray) -> tuple[int, ...]:
        return tuple(rank[node] for node in nodes.tolist())

    entries = tuple(
        ExplicitChunk(
            ranks(table.sources(k)),
            ranks(table.destinations(k)),
            reduce=bool(table.reduce[k]),
            size=table.size(k),
        )
        for k in chunks.tolist()
    )
    return replace(tenant, collective=Collective.EXPLICIT, chunks=entries, root=None, matrix=None)


def _turns(instance: Instance, plans: Sequence[Plan]) -> Iterator[IntArray]:
    """Yield when each tenant's plan begins: all at once, then in turn in several orders.

    By weight over length (Smith's rule), which serves the sum of weighted finishes, and the
    longest or the shortest first.
    """
    length = np.array([plan.finish for plan in plans], dtype=np.int64)
    tenants = instance.problem.demand.tenants
    weight = [float(tenants[number].priority) for number in _served(instance)]
    yield np.zeros_like(length)
    seen = set()
    for urgency in (length / weight, -length, length):
        order = np.argsort(urgency, kind="stable")
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            begin = np.zeros_like(length)
            begin[order] = np.cumsum(length[order]) - length[order]
            yield begin


def _merged(instance: Instance, plans: Sequence[Plan], begin: IntArray) -> Plan:
    """Return the plans of all tenants as one, each begun at its time."""
    first = np.searchsorted(instance.problem.chunks.tenant, _served(instance))
    before = np.cumsum([0, *(len(plan.rows) for plan in plans)])
    rows = np.concatenate([plan.rows for plan in plans])
    owner = np.repeat(np.arange(len(plans)), [len(plan.rows) for plan in plans])
    rows[:, 0] += first[owner]
    rows[:, 2] += begin[owner]
    rows[:, 3] += before[owner]
    reduce = [np.zeros(len(p.rows), dtype=bool) if p.reduce is None else p.reduce for p in plans]
    return Plan(rows=rows, reduce=np.concatenate(reduce))


def _together(instance: Instance, plan: Plan) -> Iterator[Plan]:
    """Yield a plan in its order with times that fit, and the same justified."""
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    starts = [replay_tasks(instance, tasks, key=tasks.start)]
    starts.append(schedule_tasks(instance, tasks, key=tasks.start, order=order))
    for start in starts:
        finish = finish_time(tasks, start)
        if finish < NEVER:
            yield replace(with_starts(plan, start, finish), exact=True)
            better = justify(instance, tasks, start, rounds=JUSTIFICATIONS, order=order)
            yield replace(with_starts(plan, better, finish_time(tasks, better)), exact=True)


def favoured_plan(instance: Instance, plan: Plan) -> Plan | None:
    """Return the ways of a plan with the transfers of important tenants first where they meet."""
    if not shares_fabric(instance) or plan.feeder is not None or plan.path is not None:
        return None
    problem = instance.problem
    tasks = tasks_of_plan(instance, plan)
    weight = np.array([float(tenant.priority) for tenant in problem.demand.tenants])
    rank = np.unique(-weight, return_inverse=True)[1][problem.chunks.tenant[tasks.chunk]]
    key = rank * (int(tasks.start.max(initial=0)) + 1) + tasks.start
    start = schedule_tasks(instance, tasks, key=key, order=precedence(instance, tasks))
    finish = finish_time(tasks, start)
    return None if finish >= NEVER else replace(with_starts(plan, start, finish), exact=True)
