"""Trimming: deliveries that come late are taken out and made again from whoever has the chunk.

A chunk that goes straight to everyone who wants it crosses a narrow link once for each of them.
Most of these crossings pay: the others would have to wait for a copy to be handed on. The last ones
do not, since by then neighbours hold the chunk. Sums are trimmed as the multicasts that they are
backwards: what leaves first is added up beside its source instead of going all the way.

The trains of an exchange, whose links have no gaps, are a good start where they go to one GPU
behind each switch before they go to the second: then each chunk is everywhere early.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl.construct.exchanged import exchanges, plan_delivered
from teccl.construct.goal import Goal
from teccl.construct.insertion import Workshop, insertion_work, refusal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import CHUNK_TOLERANCE, NEVER, STEPS
from teccl.construct.plan import Plan
from teccl.construct.recreate import load_plan
from teccl.construct.trains import is_staged_exchange, placing_work, train_plans, train_work
from teccl.construct.turned import turned_instance, turned_plan


def trimmed(instance: Instance, plan: Plan, goal: Goal) -> Plan:
    """Return a plan at least as good as a given one, whose times fit.

    First all that comes in the later half of what could be gained is taken out, then less, as long
    as that gains something. Nothing changes where insertion does not serve the instance.
    """
    if refusal(instance) is not None:
        return plan
    if instance.problem.has_reductions:
        # Contributions that come together in a switch are beyond what a calendar knows.
        if plan.rows[:, 4].any():
            return plan
        part = turned_instance(instance)
        found = _trimmed_copies(part, turned_plan(part, plan), goal)
        return plan if found.finish >= plan.finish else turned_plan(instance, found)
    return _trimmed_copies(instance, plan, goal)


def _trimmed_copies(instance: Instance, plan: Plan, goal: Goal) -> Plan:
    shop = Workshop(instance, seed=goal.seed)
    step, done = (plan.finish - goal.target) // 2, 0
    while step * CHUNK_TOLERANCE > plan.finish and goal.is_worth(plan.finish, 0):
        goal.checkpoint()
        is_whole = _insert_again(shop, plan, plan.finish - step)
        goal.spent += (shop.work - done) // STEPS
        done = shop.work
        if is_whole is None:
            return plan
        if is_whole and shop.finish < plan.finish:
            plan = shop.plan()
            step = min(step, (plan.finish - goal.target) // 2)
        else:
            step //= 2
    return plan


def _insert_again(shop: Workshop, plan: Plan, limit: int) -> bool | None:
    """Make what comes after a limit anew; whether all are served, None if times do not fit.

    Chunks that the fewest have come first.
    """
    rows = plan.rows
    arrival = rows[:, 2] + shop.instance.routes.length[rows[:, 1]]
    # A passage with several ends goes as a whole.
    is_late = np.isin(rows[:, 3], rows[arrival > limit, 3])
    shop.clear()
    if not load_plan(shop, replace(plan, rows=rows[~is_late])):
        return None
    jobs: IntArray = np.unique(np.searchsorted(shop.chunk, rows[is_late, 0]))
    return shop.insert(jobs[np.argsort(shop.rows.end["count"][jobs], kind="stable")])


def may_be_trimmed(instance: Instance) -> bool:
    """Whether copies or sums go through several switches, and insertion serves them."""
    problem = instance.problem
    if instance.grid is not None or problem.topology.has_profiles or problem.num_chunks < 2:
        return False
    several = any(len(nodes) > 1 for nodes in problem.chunks.sets)
    is_plain = problem.buffer is None and len(problem.chunks.sizes) == 1
    is_one = len(problem.demand.tenants) == 1
    return (
        several
        and instance.routes.are_staged()
        and is_plain
        and is_one
        and refusal(instance) is None
    )


def trimmed_work(instance: Instance) -> int:
    """Units of the trains, and of inserting about half of all that they carry."""
    return train_work(instance) + insertion_work(instance) // 2


def trimmed_trains(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield trains that go from place to place, trimmed, each better than those before."""
    exchange = exchanges(instance.problem)[0]
    problem = replace(instance.problem, topology=exchange.topology, demand=exchange.demand)
    apart = Instance.build(problem)
    if not is_staged_exchange(apart):
        return
    best = NEVER
    for straight in train_plans(apart, replace(goal, target=0), across=(False,)):
        plan = plan_delivered(instance, apart, straight)
        if plan is None:
            return
        plan = trimmed(instance, plan, goal)
        if plan.finish < best:
            best = plan.finish
            yield plan
        if not goal.is_worth(best, placing_work(instance)):
            return
