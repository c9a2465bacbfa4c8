"""Compositions: plans made of plans for simpler instances, by whatever constructs those best."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from operator import attrgetter

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import NEVER, PYTHON_UNITS
from teccl.construct.plan import Plan
from teccl.construct.recreate import exactly_timed
from teccl.keywords import SwitchMode
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS


def rates_change(instance: Instance) -> bool:
    """Whether rates change in continuous time and chunks may wait until they are passed on."""
    problem = instance.problem
    return instance.grid is None and problem.topology.has_profiles and problem.buffer is None


def at_mean_rates(instance: Instance, horizon_ps: int) -> Instance:
    """Return the instance with the mean rates up to a time, as if they never changed.

    Sums in switches are left out: what meets there could not be moved in time as one.
    """
    topology, end = instance.problem.topology, Fraction(horizon_ps, PICOSECONDS)
    links = []
    for link in topology.links:
        steps = topology.rate_steps(link)
        moments = [min(start, end) for start, _ in steps] + [end]
        carried = sum(r * (b - a) for (_, r), (a, b) in zip(steps, pairwise(moments), strict=True))
        links.append(replace(link, bandwidth=carried / end, profile=()))
    nodes = tuple(replace(node, reduce=False) for node in topology.nodes)
    still = replace(topology, links=tuple(links), nodes=nodes)
    problem = replace(instance.problem, topology=still)
    return Instance.build(problem, ways=instance.routes.ways())


def mean_rate_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans that suit the mean rates, timed at the rates as they change.

    Some of what takes longer than the bound goes at later rates.
    """
    best = NEVER
    for horizon in (goal.target, 2 * goal.target):
        if not goal.is_worth(best, goal.spent):
            return
        part = replace(goal, allowance=(goal.allowance - goal.spent) // 2)
        plan = best_plan(at_mean_rates(instance, max(1, horizon)), part, goal)
        if plan is None:
            return
        goal.begin(PYTHON_UNITS * len(plan.rows))
        timed = exactly_timed(instance, replace(plan, exact=False, shifts=()))
        best = min(best, timed.finish)
        yield timed


def steady(instance: Instance, epoch: int) -> Instance:
    """Return the instance with the rates of an epoch, as if they never changed.

    Where they do, every transfer is timed as one way, so that switches do not copy.
    """
    assert instance.grid is not None
    problem, grid = instance.problem, instance.grid
    links = tuple(
        replace(link, bandwidth=grid.rate_at(number, epoch), profile=())
        for number, link in enumerate(problem.topology.links)
    )
    switch = SwitchMode.NO_COPY if problem.switch is SwitchMode.COPY else problem.switch
    still = replace(problem, topology=replace(problem.topology, links=links), switch=switch)
    epochs = TimeGrid(problem=still, epoch=grid.epoch)
    return Instance.build(still, epochs, ways=instance.routes.ways())


def regime_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield a plan on a grid that ends before rates change, or begins when they did.

    The first pause between two changes that is long enough is taken.
    """
    assert instance.grid is not None
    topology, grid = instance.problem.topology, instance.grid
    steps = (start for link in topology.links for start, _ in topology.rate_steps(link))
    begins = sorted({grid.ready_epoch(start) for start in steps})
    for begin, end in zip(begins, [*begins[1:], NEVER], strict=True):
        part = replace(goal, target=max(0, goal.target - begin))
        plan = best_plan(steady(instance, begin), part, goal)
        if plan is not None and begin + plan.finish <= end:
            rows = plan.rows.copy()
            rows[:, 2] += begin
            yield replace(plan, rows=rows, finish=begin + plan.finish, shifts=())
            return


def best_plan(instance: Instance, part: Goal, whole: Goal) -> Plan | None:
    """Return the best plan of a simpler instance; its work counts for the whole."""
    from teccl.construct.constructions import construct

    part = replace(part, spent=0, known=NEVER, finishes={}, shares={}, taken={})
    plan = min(construct(instance, part), key=attrgetter("finish"), default=None)
    whole.spent += part.spent
    return plan
