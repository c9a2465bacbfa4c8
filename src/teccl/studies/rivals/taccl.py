"""A model of TACCL: routes first, their order afterwards.

TACCL (Shah et al., NSDI 2023) solves a routing problem in which links have no order, only loads,
then orders the chunks on each link by a heuristic, and sets exact times last. What is lost is what
routing and ordering could only decide together. Routes here are trees laid under prices for load
and length; the order is TACCL's rule, longest way to go first.
"""

from teccl.construct.instance import Instance
from teccl.construct.multicast import Tables
from teccl.construct.plan import with_starts
from teccl.construct.realise import realise
from teccl.construct.tasks import (
    finish_time,
    precedence,
    schedule_tasks,
    task_tails,
    tasks_of_plan,
)
from teccl.construct.trees import laid_plan
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.schedule import BoundSummary
from teccl.studies.rivals import Made

# Prices of the routing stage: how steeply load is priced, and time on the way against it.
STEEPNESS = 30.0
LENGTH_WEIGHT = 0.1


def build(problem: Problem, bound: BoundSummary, seed: int) -> Made:
    """Schedule a problem in stages."""
    instance = Instance.build(problem)
    routed = laid_plan(
        instance,
        Tables.build(instance),
        target=float(max(1, bound.physical_ps)),
        seed=seed,
        steepness=STEEPNESS,
        length_weight=LENGTH_WEIGHT,
    )
    if routed is None:
        raise MethodError(f"taccl-like does not serve {problem.demand.title} here; use auto")
    tasks = tasks_of_plan(instance, routed)
    order = precedence(instance, tasks)
    start = schedule_tasks(instance, tasks, key=-task_tails(tasks, order), order=order)
    plan = with_starts(routed, start, finish_time(tasks, start))
    schedule = realise(instance, plan, method="taccl-like")
    return Made(schedule=schedule, note="routes chosen before their order")
