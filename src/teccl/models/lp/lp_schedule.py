"""From journeys of sub-chunks to a schedule: placed in physical time, in the order of the rates."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance
from teccl.construct.plan import Plan, single_rows, with_starts
from teccl.construct.realise import realise
from teccl.construct.restricted import place_paths
from teccl.construct.tasks import (
    finish_time,
    justify,
    precedence,
    replay_tasks,
    schedule_tasks,
    task_tails,
    tasks_of_plan,
)
from teccl.models.lp.peeling import Journeys
from teccl.schedule import Schedule, send_array

IntArray = npt.NDArray[np.int64]

# Places of an epoch that tell apart what is due in the same one.
TICKS = 1000
# Rounds of scheduling backwards and forwards that improve a placement.
JUSTIFY_ROUNDS = 6


def schedule_journeys(journeys: Journeys, *, target_ps: int) -> Schedule:
    """Place journeys in several orders and return the schedule that ends first.

    Parameters
    ----------
    journeys
        Ways of the sub-chunks, with the epochs in which their rates send them.
    target_ps
        A finish that is good enough.
    """
    if not journeys.chunk:
        # Whoever wants something has it.
        return Schedule(problem=journeys.problem, sends=send_array([], [], []), method="lp")
    ways = sorted({way for passages in journeys.passages for way in passages})
    instance = Instance.build(journeys.problem, ways=ways)
    plan = _plan(journeys, ways)
    due = np.array([t for legs in journeys.due for t in legs])
    key = np.round(due * TICKS).astype(np.int64)
    candidates = (
        _rigid(instance, plan, key) if plan.path is not None else _placed(instance, plan, key)
    )
    best: Plan | None = None
    for candidate in candidates:
        if best is None or candidate.finish < best.finish:
            best = candidate
        if best.finish <= target_ps:
            break
    assert best is not None
    return realise(instance, best, method="lp")


def _plan(journeys: Journeys, ways: list[tuple[int, ...]]) -> Plan:
    """Rows of all legs; each waits for the one before, or under a buffer limit follows at once."""
    number = {way: i for i, way in enumerate(ways)}
    legs = [len(passages) for passages in journeys.passages]
    chunk = np.repeat(np.array(journeys.chunk, dtype=np.int64), legs)
    route = np.array([number[w] for passages in journeys.passages for w in passages], np.int64)
    rows = single_rows(chunk, route)
    if journeys.problem.buffer is not None:
        return Plan(rows=rows, path=np.repeat(np.arange(len(legs)), legs))
    feeder = np.arange(len(rows)) - 1
    feeder[np.cumsum([0, *legs[:-1]])] = -1
    return Plan(rows=rows, feeder=feeder)


def _placed(instance: Instance, plan: Plan, key: IntArray) -> Iterator[Plan]:
    """Yield placements in the rates' order and by the longest way on, each improved."""
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    start = replay_tasks(instance, tasks, key=key)
    if start.min(initial=0) >= 0:
        yield with_starts(plan, start, finish_time(tasks, start))
    tails = task_tails(tasks, order)
    for urgency, weight in ((key, 0.0), (-tails, 0.0), (-tails, 1.0)):
        start = schedule_tasks(instance, tasks, key=urgency, weight=weight, order=order)
        finish = finish_time(tasks, start)
        if start.min(initial=0) < 0:
            continue
        yield with_starts(plan, start, finish)
        rounds = JUSTIFY_ROUNDS
        better = justify(instance, tasks, start, rounds=rounds, weight=weight, order=order)
        yield with_starts(plan, better, finish_time(tasks, better))


def _rigid(instance: Instance, plan: Plan, key: IntArray) -> Iterator[Plan]:
    """Yield placements in which nothing ever waits at a relay, which keeps any buffer limit."""
    assert plan.path is not None
    first = np.searchsorted(plan.path, np.arange(int(plan.path.max(initial=-1)) + 1))
    for order in (key[first], None):
        yield place_paths(instance, plan, key=order)


def slowest_transmission_ps(schedule: Schedule) -> int:
    """Picoseconds that one sub-chunk takes on the slowest link in use."""
    used = np.unique(schedule.sends["link"])
    return int(schedule.problem.transmission_ps[used].max(initial=0))
