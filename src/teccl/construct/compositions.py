"""Compositions: plans made of plans for simpler instances, by whatever constructs those best."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from operator import attrgetter

import numpy as np

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import NEVER, PYTHON_UNITS
from teccl.construct.plan import Plan
from teccl.construct.recreate import exactly_timed
from teccl.construct.tasks import tasks_of_plan
from teccl.errors import MethodError
from teccl.keywords import SwitchMode
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.units import PICOSECONDS

# From a moment on a link has a rate.
RateStep = tuple[Fraction, Fraction]
RateOf = Callable[[Sequence[RateStep], Fraction], Fraction]


def at_mean_rates(instance: Instance, horizon_ps: int) -> Instance:
    """Return the instance with the mean rates up to a time, as if they never changed."""
    return _still(instance, Fraction(horizon_ps, PICOSECONDS), _mean)


def at_lasting_rates(instance: Instance, horizon_ps: int) -> Instance:
    """Return the instance with the rates that last, as if they never changed."""
    return _still(instance, Fraction(horizon_ps, PICOSECONDS), _lasting)


def lasting_topology(topology: Topology, horizon_ps: int) -> Topology:
    """Return a topology with mean rates, of links that fall with those that they fall to.

    What a link that falls carries before is more, but not what passes last.
    """
    return _without_changes(topology, Fraction(horizon_ps, PICOSECONDS), _lasting)


def _mean(steps: Sequence[RateStep], end: Fraction) -> Fraction:
    moments = [min(start, end) for start, _ in steps] + [end]
    pieces = zip(steps, pairwise(moments), strict=True)
    return sum((rate * (b - a) for (_, rate), (a, b) in pieces), Fraction(0)) / end


def _lasting(steps: Sequence[RateStep], end: Fraction) -> Fraction:
    last = [rate for start, rate in steps if start < end][-1]
    return min(last, _mean(steps, end))


def _without_changes(topology: Topology, end: Fraction, rate_of: RateOf) -> Topology:
    links = tuple(
        replace(link, bandwidth=rate_of(topology.rate_steps(link), end), profile=())
        for link in topology.links
    )
    return replace(topology, links=links)


def _still(instance: Instance, end: Fraction, rate_of: RateOf) -> Instance:
    """Return the instance with rates that do not change, where nothing waits if buffers are few.

    Sums in switches are left out: what meets there could not be moved in time as one.
    """
    still = _without_changes(instance.problem.topology, end, rate_of)
    still = replace(still, nodes=tuple(replace(node, reduce=False) for node in still.nodes))
    buffer = None if instance.problem.buffer is None else 0
    problem = replace(instance.problem, topology=still, buffer=buffer)
    return Instance.build(problem, ways=instance.routes.ways())


def may_change_rates(instance: Instance) -> bool:
    """Whether plans for mean rates can be timed at the rates as they change.

    Where buffers are limited, copies go on without a pause; sums would have to meet.
    """
    problem = instance.problem
    is_timed = instance.grid is None and problem.topology.has_profiles
    copies = problem.copy and not problem.chunks.reduce.any()
    return is_timed and (problem.buffer is None or copies)


def mean_rate_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans that suit mean rates, or those that last, timed at the rates as they change.

    Some of what takes longer than the bound goes at later rates. Where buffers are limited, nothing
    waits in GPUs at such rates, and what follows without a pause is moved as one.
    """
    best, end = NEVER, max(1, goal.target)
    variants = [(at_lasting_rates, end), (at_mean_rates, end), (at_mean_rates, 2 * end)]
    for place, (rates, horizon) in enumerate(variants):
        share = (goal.allowance - goal.spent) // (len(variants) - place)
        if not goal.is_worth(best, share):
            return
        part = replace(goal, allowance=share)
        still = rates(instance, horizon)
        plan = best_plan(still, part, goal)
        if plan is None:
            return
        goal.begin(PYTHON_UNITS * len(plan.rows))
        plan = replace(plan, exact=False, shifts=())
        if instance.problem.buffer is not None:
            plan = unpaused(still, plan)
        try:
            timed = exactly_timed(instance, plan)
        except MethodError:
            # What follows without a pause would meet itself at other rates.
            continue
        best = min(best, timed.finish)
        yield timed


def unpaused(instance: Instance, plan: Plan) -> Plan:
    """Return a plan of copies that never wait, with what follows from one send of a source as one.

    Parameters
    ----------
    instance
        The one that the plan's times are for.
    plan
        No GPU keeps what it passes on.
    """
    tasks = tasks_of_plan(instance, plan)
    table, arrived = instance.problem.chunks, dict[tuple[int, int, int], int]()
    path = np.arange(len(tasks))
    for task in np.argsort(tasks.start, kind="stable").tolist():
        chunk, start = int(tasks.chunk[task]), int(tasks.start[task])
        if tasks.src[task] not in table.sources(chunk):
            path[task] = arrived[chunk, int(tasks.src[task]), start]
        outs = slice(tasks.out_start[task], tasks.out_start[task + 1])
        for node, length in zip(tasks.out_node[outs], tasks.out_length[outs], strict=True):
            arrived[chunk, int(node), start + int(length)] = int(path[task])
    number = np.unique(plan.rows[:, 3], return_inverse=True)[1]
    rows = plan.rows.copy()
    order = np.lexsort((rows[:, 4], rows[:, 3], rows[:, 2], path[number]))
    rows[:, 3] = number
    rows, number = rows[order], number[order]
    rows[:, 3] = np.cumsum(np.diff(number, prepend=number[:1]) != 0)
    return replace(plan, rows=rows, path=np.unique(path[number], return_inverse=True)[1])


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
