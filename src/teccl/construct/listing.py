"""Compiled list scheduling: start tasks by urgency as their inputs and resources allow."""

import numpy as np

from teccl._kernels import inner, kernel, maker
from teccl.construct.kernels import _first_free_slot, _grow, _heap_pop, _heap_push

# So few are sorted sooner without making arrays.
_FEW = 15


@inner
def _is_alike(a, b, res_start, res, res_offset, res_hold):
    """Whether two tasks hold the same for as long."""
    count = res_start[a + 1] - res_start[a]
    if res_start[b + 1] - res_start[b] != count:
        return False
    for k in range(count):
        i, j = res_start[a] + k, res_start[b] + k
        if res[i] != res[j] or res_offset[i] != res_offset[j] or res_hold[i] != res_hold[j]:
            return False
    return True


@maker
def _kinds(res_start, res, res_offset, res_hold):
    """Number tasks so that those with the same number hold the same for as long."""
    num_tasks = len(res_start) - 1
    mixed = np.zeros(num_tasks, dtype=np.int64)
    for t in range(num_tasks):
        value = np.int64(0)
        for i in range(res_start[t], res_start[t + 1]):
            for part in (res[i], res_offset[i], res_hold[i]):
                value = (value ^ part) * np.int64(1099511628211)
        mixed[t] = value
    order = np.argsort(mixed, kind="mergesort")
    kind = np.zeros(num_tasks, dtype=np.int64)
    number = -1
    for k in range(num_tasks):
        t = order[k]
        if k == 0 or not _is_alike(order[k - 1], t, res_start, res, res_offset, res_hold):
            number += 1
        kind[t] = number
    return kind, number + 1


@maker
def _places(owner, count):
    """Where the entries of each of so many owners begin, once sorted by owner."""
    start = np.zeros(count + 1, dtype=np.int64)
    for each in owner:
        start[each + 1] += 1
    return np.cumsum(start)


@inner
def _by_load(touched, num, left):
    """Sort a few resources by the work left on them, most first; of equal ones the first stays."""
    for i in range(1, num):
        each, j = touched[i], i
        while j > 0 and left[each] > left[touched[j - 1]]:
            touched[j] = touched[j - 1]
            j -= 1
        touched[j] = each


@inner
def _push_at(base, keys, values, size, key, value):
    """Add to one of several heaps in the same arrays, which begins at a place."""
    return _heap_push(keys[base:], values[base:], size, key, value)


@inner
def _pop_at(base, keys, values, size):
    """Remove the first of such a heap."""
    return _heap_pop(keys[base:], values[base:], size)


@kernel
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
    key,
    weight,
    slot_start,
    slot_free,
):
    """Return the start of every task, -1 for tasks that wait for themselves.

    A task is ready when all tasks it waits for have passed their lags. Whenever a resource frees
    up it takes, among the ready tasks that begin on it and whose other resources are free in
    time, the one with the least key, less `weight` times the work left on its fullest other
    resource: an output with much left to do must not stand idle. Resources with most work left
    choose first. Of tasks that hold the same only the one with the least key is looked at.
    """
    num_tasks = len(res_start) - 1
    num_res = len(slot_start) - 1
    start = np.full(num_tasks, -1, dtype=np.int64)
    ready = release.copy()
    waits = waits.copy()
    left = np.zeros(num_res, dtype=np.int64)
    for i in range(len(res)):
        left[res[i]] += res_hold[i]
    # Ready tasks of each kind, in a heap by key, and the kinds that begin on each resource.
    kind, num_kinds = _kinds(res_start, res, res_offset, res_hold)
    heap = _places(kind, num_kinds)
    heap_keys, heap_tasks = np.empty_like(start), np.empty_like(start)
    heap_size = np.zeros(num_kinds, dtype=np.int64)
    first = np.empty(num_kinds, dtype=np.int64)
    for t in range(num_tasks):
        first[kind[t]] = res[res_start[t]]
    queue_start, queue = _places(first, num_res), np.argsort(first, kind="mergesort")
    queue_size = np.zeros(num_res, dtype=np.int64)
    keys = np.empty(max(1024, 2 * num_tasks), dtype=np.int64)
    values = np.empty(max(1024, 2 * num_tasks), dtype=np.int64)
    size = 0
    for t in range(num_tasks):
        if waits[t] == 0:
            size = _heap_push(keys, values, size, ready[t], t)
    touched = np.empty(num_res, dtype=np.int64)
    is_touched = np.zeros(num_res, dtype=np.bool_)
    while size > 0:
        now = keys[0]
        num_touched = 0
        while size > 0 and keys[0] == now:
            value = values[0]
            size = _heap_pop(keys, values, size)
            q = value - num_tasks
            if value < num_tasks:
                c = kind[value]
                q = first[c]
                heap_size[c] = _push_at(
                    heap[c], heap_keys, heap_tasks, heap_size[c], key[value], value
                )
                queue_size[q] += 1
            if not is_touched[q]:
                is_touched[q] = True
                touched[num_touched] = q
                num_touched += 1
        if num_touched <= _FEW:
            _by_load(touched, num_touched, left)
        else:
            queues = touched[:num_touched]
            touched[:num_touched] = queues[np.argsort(-left[queues])]
        for index in range(num_touched):
            q = touched[index]
            is_touched[q] = False
            while queue_size[q] > 0:
                slot = _first_free_slot(slot_free, slot_start[q], slot_start[q + 1])
                if slot_free[slot] > now:
                    # Another queue's task may hold it: come back when it is free.
                    if size + 2 >= len(keys):
                        keys, values = _grow(keys), _grow(values)
                    size = _heap_push(keys, values, size, slot_free[slot], num_tasks + q)
                    break
                best, best_key, later = np.int64(-1), np.int64(0), np.int64(2**62)
                for k in range(queue_start[q], queue_start[q + 1]):
                    c = queue[k]
                    if heap_size[c] == 0:
                        continue
                    t = heap_tasks[heap[c]]
                    earliest = now
                    fullest = np.int64(0)
                    for i in range(res_start[t] + 1, res_start[t + 1]):
                        slot = _first_free_slot(
                            slot_free, slot_start[res[i]], slot_start[res[i] + 1]
                        )
                        earliest = max(earliest, slot_free[slot] - res_offset[i])
                        fullest = max(fullest, left[res[i]])
                    if earliest > now:
                        later = min(later, earliest)
                        continue
                    urgency = key[t] - np.int64(weight * fullest)
                    if best < 0 or urgency < best_key:
                        best, best_key = c, urgency
                if size + 2 + next_start[num_tasks] >= len(keys):
                    keys, values = _grow(keys), _grow(values)
                if best < 0:
                    size = _heap_push(keys, values, size, later, num_tasks + q)
                    break
                t = heap_tasks[heap[best]]
                heap_size[best] = _pop_at(heap[best], heap_keys, heap_tasks, heap_size[best])
                queue_size[q] -= 1
                start[t] = now
                for i in range(res_start[t], res_start[t + 1]):
                    slot = _first_free_slot(slot_free, slot_start[res[i]], slot_start[res[i] + 1])
                    slot_free[slot] = max(slot_free[slot], now + res_offset[i] + res_hold[i])
                    left[res[i]] -= res_hold[i]
                for i in range(next_start[t], next_start[t + 1]):
                    s = next_task[i]
                    waits[s] -= 1
                    ready[s] = max(ready[s], now + next_lag[i])
                    if waits[s] == 0:
                        size = _heap_push(keys, values, size, ready[s], s)
    return start


@kernel
def tails(next_start, next_task, next_lag, length, order):
    """Longest way from each task's start to the end of everything that hangs on it."""
    tail = length.copy()
    for index in range(len(order) - 1, -1, -1):
        t = order[index]
        for i in range(next_start[t], next_start[t + 1]):
            tail[t] = max(tail[t], next_lag[i] + tail[next_task[i]])
    return tail
