"""Sums from multicasts: reductions by reversal, AllReduce of both halves at the same time."""

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

import numpy as np

from teccl.construct.gathering import gathered_allreduce
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.multicast import Tables
from teccl.construct.multicasts import multicast_plans
from teccl.construct.params import JUSTIFICATIONS, LISTING_UNITS, NEVER
from teccl.construct.plan import Plan, with_starts
from teccl.construct.reversal import reducing_switches, reversed_plan
from teccl.construct.route_first import listed_plans
from teccl.construct.side_by_side import side_by_side
from teccl.construct.tasks import finish_time, justify, precedence, replay_tasks, tasks_of_plan
from teccl.demand import Collective, Demand


def reduction_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield reductions made by reversing the best multicast, in switches first if they can."""

    def best_multicast(backward: Instance, _: Tables) -> Plan | None:
        return min(multicast_plans(backward, goal), key=attrgetter("finish"), default=None)

    num_switches = instance.problem.topology.num_switches
    can_gather = 0 < num_switches == len(reducing_switches(instance))
    for gathers in (True, False) if can_gather else (False,):
        backward = reversed_plan(instance, best_multicast, gathers=gathers)
        if backward is None:
            continue
        # Turned round, what links share is held earlier or later by the latency of each of them.
        if gathers and not instance.problem.topology.shared:
            yield backward
        plan = _replayed(instance, backward)
        if plan is not None:
            yield plan


def in_network_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield AllReduces whose contributions come together in switches that can add up."""
    plan = gathered_allreduce(*halves(instance))
    if plan is not None:
        yield min(listed_plans(instance, plan, goal), key=attrgetter("finish"))


def composed_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield AllReduces made of the best ReduceScatter and the best AllGather.

    Both phases are placed together: an AllGather's send starts as soon as its chunk is reduced.
    """
    # Each half has half of the time and half of the work.
    parts = [
        replace(goal, target=goal.target // 2, allowance=(goal.allowance - goal.spent) // 2)
        for _ in range(2)
    ]
    scatter, gather = halves(instance)
    kinds = [(reduction_plans, scatter, parts[0]), (multicast_plans, gather, parts[1])]
    firsts, seconds = side_by_side(lambda kind: list(kind[0](*kind[1:])), kinds)
    goal.spent += sum(part.spent for part in parts)
    if not seconds:
        return
    second = min(seconds, key=attrgetter("finish"))
    for first in firsts:
        plan = one_after_another(first, second)
        yield plan
        placed = _replayed(instance, plan)
        if placed is None:
            continue
        yield placed
        work = 2 * LISTING_UNITS * len(plan.rows)
        if goal.is_worth(placed.finish, work):
            goal.begin(work)
            yield from _justified(instance, placed)


def _replayed(instance: Instance, plan: Plan) -> Plan | None:
    """Place a plan's tasks again in their order, which mends what reversal bends."""
    tasks = tasks_of_plan(instance, plan)
    start = replay_tasks(instance, tasks, key=tasks.start)
    finish = finish_time(tasks, start)
    return None if finish >= NEVER else with_starts(plan, start, finish)


def one_after_another(first: Plan, second: Plan) -> Plan:
    """Return the plan in which a ReduceScatter is followed by an AllGather."""
    rows = np.concatenate([first.rows, second.rows])
    rows[len(first.rows) :, 2] += first.finish
    rows[len(first.rows) :, 3] += len(first.rows)
    reduce = np.arange(len(rows)) < len(first.rows)
    return Plan(rows=rows, finish=first.finish + second.finish, reduce=reduce)


def halves(instance: Instance) -> tuple[Instance, Instance]:
    """Return the ReduceScatter and the AllGather of an AllReduce, on the same routes."""

    def half(collective: Collective) -> Instance:
        problem = instance.problem
        tenants = tuple(replace(t, collective=collective) for t in problem.demand.tenants)
        part = replace(problem, demand=Demand(tenants=tenants))
        return Instance.build(part, instance.grid, ways=instance.routes.ways())

    return half(Collective.REDUCESCATTER), half(Collective.ALLGATHER)


def _justified(instance: Instance, plan: Plan) -> Iterator[Plan]:
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    start = justify(instance, tasks, tasks.start, rounds=2 * JUSTIFICATIONS, order=order)
    finish = finish_time(tasks, start)
    if finish < plan.finish:
        yield with_starts(plan, start, finish)
