"""Multicasts: by symmetry where there is one, by groups, along balanced trees, and greedily."""

from collections.abc import Iterator
from itertools import count, product
from typing import NamedTuple

import numpy as np

from teccl.construct.goal import Goal
from teccl.construct.hierarchy import hierarchical_plan
from teccl.construct.instance import Instance
from teccl.construct.jobs import justify_serially
from teccl.construct.multicast import Tables, greedy
from teccl.construct.params import (
    GAP_PART,
    GREEDY_UNITS,
    JUSTIFICATIONS,
    LISTING_UNITS,
    NEVER,
    SEEDS,
    TIME_PRICE,
    TIME_PRICES,
    TREE_UNITS,
)
from teccl.construct.passages import may_join
from teccl.construct.plan import Plan, with_starts
from teccl.construct.route_first import listed_plans, routing_work
from teccl.construct.symmetry import find_group, is_symmetric_demand, symmetric_plans
from teccl.construct.tasks import finish_time, precedence, schedule_tasks, tasks_of_plan
from teccl.construct.trees import laid_plan
from teccl.demand import Collective
from teccl.footprint import num_deliveries


class _Variant(NamedTuple):
    join: bool
    thrifty: bool
    longest_first: bool


def multicast_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans, each better than the ones before, while more work is worth it."""
    best = NEVER
    for kind in (_symmetric, _by_groups, _balanced, _greedy):
        for plan in kind(instance, goal, best):
            if plan.finish < best:
                best = plan.finish
                yield plan


def greedy_work(instance: Instance) -> int:
    """Units of one greedy run, in which each delivery wakes routes that share its links."""
    units, topology = GREEDY_UNITS, instance.problem.topology
    if topology.num_switches:
        units = TREE_UNITS + len(instance.routes.res) // (TREE_UNITS * topology.num_gpus)
    return units * num_deliveries(instance.problem)


def _symmetric(instance: Instance, goal: Goal, best: int) -> Iterator[Plan]:
    """Yield plans made in the quotient; every other run is thrifty."""
    if not is_symmetric_demand(instance.problem, Collective.ALLGATHER):
        return
    group = find_group(instance.problem.topology)
    if group is None:
        return
    # Each run looks at the routes of one orbit for each delivery of one.
    looks = 1 + min(len(instance.routes) // len(group), instance.problem.topology.num_nodes)
    work = GREEDY_UNITS * looks * num_deliveries(instance.problem) // len(group)
    for run, plan in enumerate(symmetric_plans(instance, group, seed=goal.seed)):
        if plan is not None:
            best = min(best, plan.finish)
            yield plan
        goal.begin(work)
        # Half of the work is left for greedy runs, which may use every link.
        is_enough = best == NEVER or not goal.is_worth(best, goal.spent + work)
        if best <= goal.target or (run > 0 and is_enough):
            return


def _by_groups(instance: Instance, goal: Goal, best: int) -> Iterator[Plan]:
    work = LISTING_UNITS * num_deliveries(instance.problem)
    laid = hierarchical_plan(instance) if goal.is_worth(best, work) else None
    if laid is not None:
        goal.begin(work)
        yield _in_turns(instance, laid)


def _in_turns(instance: Instance, plan: Plan) -> Plan:
    """Schedule a plan whose starts are turns, the first ones first."""
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    if instance.slots.max() == 1:
        start = justify_serially(
            instance, tasks, key=tasks.start, rounds=JUSTIFICATIONS, order=order
        )
    else:
        start = schedule_tasks(instance, tasks, key=tasks.start, order=order)
    return with_starts(plan, start, finish_time(tasks, start))


def _balanced(instance: Instance, goal: Goal, best: int) -> Iterator[Plan]:
    """Yield plans along trees whose copies part in switches: as balanced as can be, then shorter.

    What is possible follows from laying trees that must share the links in half of the time; within
    the load that those have others are laid whose ways are short.
    """
    work = routing_work(instance)
    if not may_join(instance) or not instance.problem.topology.num_switches:
        return
    tables, aim = Tables.build(instance), max(1.0, goal.target / 2)
    for price, is_probe in ((TIME_PRICE, True), (TIME_PRICES[1], False), (TIME_PRICE, False)):
        if not goal.is_worth(best, work):
            return
        goal.begin(work)
        plan = laid_plan(
            instance, tables, target=aim, seed=goal.seed, length_weight=price, join=True
        )
        if plan is None:
            return
        if is_probe:
            aim = max(aim, _fullest(instance, plan))
            continue
        for listed in listed_plans(instance, plan, goal):
            best = min(best, listed.finish)
            yield listed


def _fullest(instance: Instance, plan: Plan) -> float:
    """Time for which a plan holds the fullest resource."""
    tasks = tasks_of_plan(instance, plan)
    held = tasks.res_hold / instance.slots[tasks.res]
    return float(np.bincount(tasks.res, held).max(initial=0.0))


def _variants(instance: Instance) -> list[_Variant]:
    """Ways to run the greedy scheduler, those that win most often first."""
    topology = instance.problem.topology
    if not topology.num_switches:
        return [_Variant(False, False, False), _Variant(False, True, False)]
    return [_Variant(join, thrifty, True) for thrifty, join in product((True, False), repeat=2)]


def _greedy(instance: Instance, goal: Goal, best: int) -> Iterator[Plan]:
    """Yield greedy plans: of every variant, then with other seeds of those that came near."""
    work = greedy_work(instance)
    if not goal.is_worth(best, work):
        return
    tables, variants = Tables.build(instance), _variants(instance)
    found = dict.fromkeys(variants, NEVER)
    for turn, variant in ((turn, variant) for turn in count() for variant in variants):
        if turn and found[variant] > (1 + 1 / GAP_PART) * min(found.values()):
            continue
        # Two runs show what to expect of the rest.
        is_first = turn == 0 and variant in variants[:2]
        least = min(best, *found.values())
        if not is_first and (least == NEVER or not goal.is_worth(least, work)):
            return
        goal.begin(work)
        seed = goal.seed * SEEDS + turn
        plan = greedy(instance, tables, seed=seed, **variant._asdict())
        if plan is not None:
            found[variant] = min(found[variant], plan.finish)
            yield plan
