"""Shaking: transfers are placed again in orders a little different, and the best is kept."""

import numpy as np

from teccl.construct.filling import fill_both_ways
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import LISTING_UNITS, PART, SHAKES
from teccl.construct.tasks import Precedence, Tasks, finish_time, task_lengths


def shaken(
    instance: Instance, tasks: Tasks, start: IntArray, *, order: Precedence, goal: Goal, known: int
) -> IntArray:
    """Return starts that end no later, as far as the work for them is worth it.

    It is not for what ends much later than what is known.

    Every try moves each task by a random time, up to about the length of the longest, and fills in
    the order that results. Tries end when the last gain lies farther back than it took to come.
    """
    rng, longest = np.random.default_rng(goal.seed), int(task_lengths(tasks).max(initial=0))
    best, finish = start, finish_time(tasks, start)
    if finish > known + known // PART:
        return start
    work, tries, last = LISTING_UNITS * len(tasks), 0, 0
    while tries < 2 * last + SHAKES and finish > goal.target * (1 + goal.price * work):
        goal.begin(work)
        tries += 1
        shift = rng.normal(0.0, longest * rng.random(), len(tasks))
        key = best + shift.astype(np.int64)
        found = fill_both_ways(instance, tasks, key=key, order=order)
        end = finish_time(tasks, found)
        last = tries if end < finish else last
        if end <= finish:
            best, finish = found, end
    return best
