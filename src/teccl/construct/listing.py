"""Compiled list scheduling: start tasks by priority as their inputs and resources allow."""

import numba as nb
import numpy as np

from teccl.construct.kernels import _first_free_slot, _grow, _heap_pop, _heap_push

# Tasks of one queue that are looked past because a later resource of theirs is busy.
_LOOK_AHEAD = 48


@nb.njit(cache=True)
def list_schedule(
    res_start,
    res,
    res_offset,
    res_hold,
    waits,
    next_start,
    next_task,
    next_lag,
    release,
    priority,
    slot_start,
    slot_free,
):
    """Return the start of every task.

    A task is ready when all tasks it waits for have passed their lags; among the ready tasks
    that want the same first resource the one with the least priority value starts first, as soon
    as every resource it needs is free at the offset it needs it.
    """
    num_tasks = len(res_start) - 1
    num_res = len(slot_start) - 1
    start = np.full(num_tasks, -1, dtype=np.int64)
    ready = release.copy()
    waits = waits.copy()
    # One heap of ready tasks per first resource, stored in one array.
    queue_start = np.zeros(num_res + 1, dtype=np.int64)
    for t in range(num_tasks):
        queue_start[res[res_start[t]] + 1] += 1
    for q in range(num_res):
        queue_start[q + 1] += queue_start[q]
    queue_size = np.zeros(num_res, dtype=np.int64)
    queue_key = np.empty(num_tasks, dtype=np.int64)
    queue_task = np.empty(num_tasks, dtype=np.int64)
    keys = np.empty(max(1024, 2 * num_tasks), dtype=np.int64)
    values = np.empty(max(1024, 2 * num_tasks), dtype=np.int64)
    size = 0
    for t in range(num_tasks):
        if waits[t] == 0:
            size = _heap_push(keys, values, size, ready[t], t)
    touched = np.empty(num_res, dtype=np.int64)
    is_touched = np.zeros(num_res, dtype=np.bool_)
    aside_key = np.empty(_LOOK_AHEAD + 1, dtype=np.int64)
    aside_task = np.empty(_LOOK_AHEAD + 1, dtype=np.int64)
    while size > 0:
        now = keys[0]
        num_touched = 0
        while size > 0 and keys[0] == now:
            value = values[0]
            size = _heap_pop(keys, values, size)
            q = value - num_tasks
            if value < num_tasks:
                q = res[res_start[value]]
                base = queue_start[q]
                queue_size[q] = _heap_push(
                    queue_key[base:], queue_task[base:], queue_size[q], priority[value], value
                )
            if not is_touched[q]:
                is_touched[q] = True
                touched[num_touched] = q
                num_touched += 1
        for index in range(num_touched):
            q = touched[index]
            is_touched[q] = False
            base = queue_start[q]
            aside = 0
            while queue_size[q] > 0 and aside < _LOOK_AHEAD:
                slot = _first_free_slot(slot_free, slot_start[q], slot_start[q + 1])
                if slot_free[slot] > now:
                    break
                t = queue_task[base]
                key = queue_key[base]
                queue_size[q] = _heap_pop(queue_key[base:], queue_task[base:], queue_size[q])
                earliest = now
                for i in range(res_start[t], res_start[t + 1]):
                    slot = _first_free_slot(slot_free, slot_start[res[i]], slot_start[res[i] + 1])
                    earliest = max(earliest, slot_free[slot] - res_offset[i])
                if earliest > now:
                    aside_key[aside], aside_task[aside] = key, t
                    aside += 1
                    if size + 2 >= len(keys):
                        keys, values = _grow(keys), _grow(values)
                    size = _heap_push(keys, values, size, earliest, num_tasks + q)
                    continue
                start[t] = now
                for i in range(res_start[t], res_start[t + 1]):
                    slot = _first_free_slot(slot_free, slot_start[res[i]], slot_start[res[i] + 1])
                    slot_free[slot] = now + res_offset[i] + res_hold[i]
                slot = _first_free_slot(slot_free, slot_start[q], slot_start[q + 1])
                if slot_free[slot] > now:
                    if size + 2 >= len(keys):
                        keys, values = _grow(keys), _grow(values)
                    size = _heap_push(keys, values, size, slot_free[slot], num_tasks + q)
                for i in range(next_start[t], next_start[t + 1]):
                    s = next_task[i]
                    waits[s] -= 1
                    ready[s] = max(ready[s], now + next_lag[i])
                    if waits[s] == 0:
                        if size + 2 >= len(keys):
                            keys, values = _grow(keys), _grow(values)
                        size = _heap_push(keys, values, size, ready[s], s)
            for i in range(aside):
                queue_size[q] = _heap_push(
                    queue_key[base:], queue_task[base:], queue_size[q], aside_key[i], aside_task[i]
                )
            if aside and queue_size[q] > 0:
                slot = _first_free_slot(slot_free, slot_start[q], slot_start[q + 1])
                if slot_free[slot] > now:
                    if size + 2 >= len(keys):
                        keys, values = _grow(keys), _grow(values)
                    size = _heap_push(keys, values, size, slot_free[slot], num_tasks + q)
    return start


@nb.njit(cache=True)
def tails(next_start, next_task, next_lag, length, order):
    """Longest way from each task's start to the end of everything that hangs on it."""
    tail = length.copy()
    for index in range(len(order) - 1, -1, -1):
        t = order[index]
        for i in range(next_start[t], next_start[t + 1]):
            tail[t] = max(tail[t], next_lag[i] + tail[next_task[i]])
    return tail
