"""Filling: tasks are placed one after another, each into the first gap that holds all of it."""

import numpy as np

from teccl._kernels import inner, kernel
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import JUSTIFICATIONS
from teccl.construct.serial import first_ending_after, occupy
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    arcs_of,
    finish_time,
    mirror,
    resource_columns,
    task_lengths,
)


def fill_gaps(instance: Instance, tasks: Tasks, *, key: IntArray, order: Precedence) -> IntArray:
    """Return starts of tasks that are placed by key, each as early as is free.

    A passage through several switches holds all of its links at given moments; waiting until all
    of them are free from some time on, as list scheduling does, would leave most of their time.

    Parameters
    ----------
    instance
        What tasks hold; every resource takes one at a time.
    key
        Whoever waits for another task comes after it.
    """
    by_key, room = np.argsort(key, kind="stable"), _room(instance, tasks)
    # Columns of a table, which would be compiled for a second time, are copied.
    columns, arcs = map(np.ascontiguousarray, resource_columns(tasks)), arcs_of(order)
    start: IntArray = _place_all(*columns, *arcs, order.release, by_key, room)
    return start


def fill_one_of_each(
    instance: Instance, tasks: Tasks, first: IntArray, release: IntArray
) -> tuple[IntArray, IntArray]:
    """Place one task of each group into the first gap that holds all of it, group after group.

    Returns when each group's task begins, and which it is.

    Parameters
    ----------
    first
        Where the tasks of each group begin, and where those of the last end.
    release
        When each task may start at the earliest.
    """
    columns = map(np.ascontiguousarray, resource_columns(tasks))
    start, chosen = _place_one_of_each(*columns, release, first, _room(instance, tasks))
    return start, chosen


def fill_both_ways(
    instance: Instance, tasks: Tasks, *, key: IntArray, order: Precedence
) -> IntArray:
    """Return starts of tasks placed by key, then backwards from the end and forwards again.

    Each turn keeps the order in which the one before it ended, while that ends sooner.
    """
    start = fill_gaps(instance, tasks, key=key, order=order)
    length, room = task_lengths(tasks), _room(instance, tasks)
    columns, arcs = mirror(length, resource_columns(tasks), arcs_of(order))
    columns = tuple(map(np.ascontiguousarray, columns))
    best = start
    for _ in range(JUSTIFICATIONS):
        by_end = np.argsort(-(best + length), kind="stable")
        back = _place_all(*columns, *arcs, np.zeros_like(order.release), by_end, room)
        if back.min(initial=0) < 0:
            break
        start = fill_gaps(instance, tasks, key=-(back + length), order=order)
        if finish_time(tasks, start) >= finish_time(tasks, best):
            break
        best = start
    return best


def _room(instance: Instance, tasks: Tasks) -> IntArray:
    """Where the uses of each resource begin, if all are noted."""
    uses = np.bincount(tasks.res, minlength=instance.num_resources)
    return np.concatenate([[0], np.cumsum(uses)]).astype(np.int64)


@inner
def _earliest(uses, res, res_offset, res_hold, begin, end, count, room, now):
    """Earliest start from some time on at which all that a task uses is free."""
    first, last = uses
    i, agreed = first, 0
    while agreed < last - first:
        resource, begins = res[i], now + res_offset[i]
        full = room[resource] + count[resource]
        place = first_ending_after(end, room[resource], full, begins)
        if place < full and begin[place] < begins + res_hold[i]:
            now = end[place] - res_offset[i]
            agreed = 0
        else:
            agreed += 1
            i = i + 1 if i + 1 < last else first
    return now


@inner
def _book(uses, res, res_offset, res_hold, begin, end, count, room, now):
    """Note what a task uses that begins at some time."""
    for i in range(uses[0], uses[1]):
        if res_hold[i] > 0:
            begins = now + res_offset[i]
            occupy(begin, end, room, count, res[i], begins, begins + res_hold[i])


@kernel
def _place_one_of_each(res_start, res, res_offset, res_hold, release, first, room):
    """Place one task of each group, the one that can begin first; which, and when it begins."""
    begin = np.zeros(room[-1], dtype=np.int64)
    end = np.zeros(room[-1], dtype=np.int64)
    count = np.zeros(len(room) - 1, dtype=np.int64)
    start = np.zeros(len(first) - 1, dtype=np.int64)
    chosen = first[:-1].copy()
    for group in range(len(first) - 1):
        for task in range(first[group], first[group + 1]):
            uses = (res_start[task], res_start[task + 1])
            now = _earliest(uses, res, res_offset, res_hold, begin, end, count, room, release[task])
            if task == first[group] or now < start[group]:
                start[group], chosen[group] = now, task
        uses = (res_start[chosen[group]], res_start[chosen[group] + 1])
        _book(uses, res, res_offset, res_hold, begin, end, count, room, start[group])
    return start, chosen


@kernel
def _place_all(
    res_start,
    res,
    res_offset,
    res_hold,
    waits,
    next_start,
    next_task,
    next_lag,
    release,
    order,
    room,
):
    """Place tasks in an order; -1 marks those that came before what they wait for."""
    begin = np.zeros(room[-1], dtype=np.int64)
    end = np.zeros(room[-1], dtype=np.int64)
    count = np.zeros(len(room) - 1, dtype=np.int64)
    start = np.full(len(order), -1, dtype=np.int64)
    ready, waits = release.copy(), waits.copy()
    for task in order:
        if waits[task] > 0:
            continue
        uses = (res_start[task], res_start[task + 1])
        now = _earliest(uses, res, res_offset, res_hold, begin, end, count, room, ready[task])
        start[task] = now
        _book(uses, res, res_offset, res_hold, begin, end, count, room, now)
        for i in range(next_start[task], next_start[task + 1]):
            other = next_task[i]
            waits[other] -= 1
            ready[other] = max(ready[other], now + next_lag[i])
    return start
