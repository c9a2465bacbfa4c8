"""Compiled serial scheduling: tasks one by one, each in the first gap that all its links share."""

import numpy as np

from teccl._kernels import inner, kernel
from teccl.construct.kernels import _heap_pop, _heap_push

# Sweeps after which times that still move are taken to move for ever.
_MAX_SWEEPS = 200


@inner
def first_ending_after(ends, low, high, time):
    """Index of the first busy interval in low..high that ends after a time."""
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > time:
            high = middle
        else:
            low = middle + 1
    return low


@inner
def occupy(begins, ends, base, count, r, begin, end):
    """Add a busy interval, joined with those it touches."""
    low, high = base[r], base[r] + count[r]
    i = first_ending_after(ends, low, high, begin - 1)
    joins_before = i < high and ends[i] == begin
    after = i + 1 if joins_before else i
    joins_after = after < high and begins[after] == end
    if joins_before and joins_after:
        ends[i] = ends[after]
        for k in range(after, high - 1):
            begins[k], ends[k] = begins[k + 1], ends[k + 1]
        count[r] -= 1
    elif joins_before:
        ends[i] = end
    elif joins_after:
        begins[after] = begin
    else:
        for k in range(high, i, -1):
            begins[k], ends[k] = begins[k - 1], ends[k - 1]
        begins[i], ends[i] = begin, end
        count[r] += 1


@kernel
def serial_schedule(
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
    quantum,
    num_res,
):
    """Return the start of every task, -1 for tasks that wait for themselves.

    Of the tasks whose inputs are placed the one with the least key goes next. It takes the first
    time, a multiple of its quantum, at which all its resources are free long enough, in gaps that
    others left too; so a scarce resource books its partners ahead. Equal quanta keep gaps whole.
    """
    num_tasks = len(res_start) - 1
    start = np.full(num_tasks, -1, dtype=np.int64)
    ready = release.copy()
    waits = waits.copy()
    room = np.zeros(num_res + 1, dtype=np.int64)
    for i in range(len(res)):
        room[res[i] + 1] += 1
    base = np.cumsum(room + 1)
    begins = np.empty(base[-1], dtype=np.int64)
    ends = np.empty(base[-1], dtype=np.int64)
    count = np.zeros(num_res, dtype=np.int64)
    keys = np.empty(num_tasks + 1, dtype=np.int64)
    values = np.empty(num_tasks + 1, dtype=np.int64)
    size = 0
    for t in range(num_tasks):
        if waits[t] == 0:
            size = _heap_push(keys, values, size, key[t], t)
    while size > 0:
        t = values[0]
        size = _heap_pop(keys, values, size)
        q = quantum[t]
        now = -(-ready[t] // q) * q
        moved = True
        while moved:
            moved = False
            for i in range(res_start[t], res_start[t + 1]):
                r = res[i]
                begin = now + res_offset[i]
                high = base[r] + count[r]
                k = first_ending_after(ends, base[r], high, begin)
                while k < high and begins[k] < begin + res_hold[i]:
                    # The next gap on this resource that is long enough.
                    now = -(-(ends[k] - res_offset[i]) // q) * q
                    begin = now + res_offset[i]
                    moved = True
                    k += 1
        start[t] = now
        for i in range(res_start[t], res_start[t + 1]):
            begin = now + res_offset[i]
            occupy(begins, ends, base, count, res[i], begin, begin + res_hold[i])
        for i in range(next_start[t], next_start[t + 1]):
            s = next_task[i]
            waits[s] -= 1
            ready[s] = max(ready[s], now + next_lag[i])
            if waits[s] == 0:
                size = _heap_push(keys, values, size, key[s], s)
    return start


@kernel
def in_sequence(waits, next_start, next_task):
    """Return tasks in an order in which each follows everything it waits for."""
    waits = waits.copy()
    sequence = np.empty(len(waits), dtype=np.int64)
    count = done = 0
    for t in range(len(waits)):
        if waits[t] == 0:
            sequence[count] = t
            count += 1
    while done < count:
        t = sequence[done]
        done += 1
        for i in range(next_start[t], next_start[t + 1]):
            s = next_task[i]
            waits[s] -= 1
            if waits[s] == 0:
                sequence[count] = s
                count += 1
    return sequence[:count]


@kernel
def heads(sequence, next_start, next_task, next_lag, release):
    """Return when each task could start if nothing but what it waits for held it up."""
    head = release.copy()
    for t in sequence:
        for i in range(next_start[t], next_start[t + 1]):
            head[next_task[i]] = max(head[next_task[i]], head[t] + next_lag[i])
    return head


@kernel
def between(sequence, next_start, next_task, is_urgent):
    """Tell which tasks are urgent or both wait for one that is and are waited for by one."""
    follows = is_urgent.copy()
    for t in sequence:
        if follows[t]:
            for i in range(next_start[t], next_start[t + 1]):
                follows[next_task[i]] = True
    leads = is_urgent.copy()
    for index in range(len(sequence) - 1, -1, -1):
        t = sequence[index]
        for i in range(next_start[t], next_start[t + 1]):
            leads[t] |= leads[next_task[i]]
    return follows & leads


@kernel
def sequence_of(waits, next_start, next_task, res_start, behind, by_start):
    """Return tasks in an order in which each follows what it waits for and what is ahead of it.

    `behind` is the task that follows on a resource, -1 for none. Where tasks are ahead of each
    other, on different resources, the first of those left in `by_start` goes next.
    """
    left = waits.copy()
    for task in behind:
        if task >= 0:
            left[task] += 1
    sequence = np.empty(len(waits), dtype=np.int64)
    is_placed = np.zeros(len(waits), dtype=np.bool_)
    for t in range(len(waits)):
        is_placed[t] = left[t] == 0
    count, done, earliest = 0, 0, 0
    for t in range(len(waits)):
        if is_placed[t]:
            sequence[count] = t
            count += 1
    while done < len(waits):
        if done == count:
            while is_placed[by_start[earliest]]:
                earliest += 1
            sequence[count] = by_start[earliest]
            is_placed[by_start[earliest]] = True
            count += 1
        t = sequence[done]
        done += 1
        arcs = next_start[t + 1] - next_start[t]
        for i in range(arcs + res_start[t + 1] - res_start[t]):
            s = next_task[next_start[t] + i] if i < arcs else behind[res_start[t] + i - arcs]
            if s < 0:
                continue
            left[s] -= 1
            if left[s] == 0 and not is_placed[s]:
                sequence[count] = s
                is_placed[s] = True
                count += 1
    return sequence


@kernel
def settle(sequence, next_start, next_task, next_lag, res_start, behind, lag, release):
    """Return the earliest start of every task when all resources keep their order.

    A task starts once everything it waits for has come and what is ahead of it on its resources
    has gone on. One sweep is enough where `sequence` has every task after those; otherwise further
    ones mend that. -1 everywhere if times do not settle.
    """
    start = release.copy()
    for _ in range(_MAX_SWEEPS):
        moved = False
        for t in sequence:
            arcs = next_start[t + 1] - next_start[t]
            for i in range(arcs + res_start[t + 1] - res_start[t]):
                if i < arcs:
                    place = next_start[t] + i
                    s, time = next_task[place], start[t] + next_lag[place]
                else:
                    place = res_start[t] + i - arcs
                    s, time = behind[place], start[t] + lag[place]
                if s >= 0 and time > start[s]:
                    start[s] = time
                    moved = True
        if not moved:
            return start
    return np.full_like(start, -1)
