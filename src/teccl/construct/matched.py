"""Compiled list scheduling in rounds: passages of one switch begin together, matched to its ports.

Where all transfers through a switch take equally long, each holds one port into it and one out of
it for a whole round. Taking one after another leaves ports idle whose partners are taken; matching
all of them at once does not, and ports with most left to do are served in every round.
"""

import numpy as np

from teccl._kernels import inner, kernel, maker
from teccl.construct.kernels import _grow, _heap_pop, _heap_push
from teccl.construct.listing import _places


@inner
def _improve(port, near, far, near_kind, far_kind, kinds_start, kinds, size, left, via, queue):
    """Match a port that is not, at the cost of none or of one that has less to do.

    `near` and `far` are the ports of each kind on this side and on the other, `near_kind` and
    `far_kind` the kinds that ports are matched by.
    """
    via[:] = -1
    queue[0] = port
    head, tail = 0, 1
    while head < tail:
        here = queue[head]
        head += 1
        for index in range(kinds_start[here], kinds_start[here + 1]):
            kind = kinds[index]
            there = far[kind]
            if size[kind] == 0 or via[there] >= 0:
                continue
            via[there] = kind
            other = far_kind[there]
            if other >= 0 and left[near[other]] >= left[port]:
                queue[tail] = near[other]
                tail += 1
                continue
            if other >= 0:
                near_kind[near[other]] = -1
            # Along the way back every port takes the kind that it was reached by.
            while there >= 0:
                kind = via[there]
                here = near[kind]
                before = near_kind[here]
                near_kind[here], far_kind[there] = kind, kind
                there = far[before] if before >= 0 else -1
            return
    return


@maker
def _match(
    chosen,
    first,
    second,
    into,
    out_of,
    in_start,
    in_kinds,
    out_start,
    out_kinds,
    size,
    left,
    via,
    queue,
):
    """Match ports of a switch by kinds that have something ready, those listed first at first."""
    for kind in chosen:
        into[first[kind]] = out_of[second[kind]] = -1
    for kind in chosen:
        if into[first[kind]] < 0 and out_of[second[kind]] < 0:
            into[first[kind]] = out_of[second[kind]] = kind
    for kind in chosen[np.argsort(-left[first[chosen]])]:
        if into[first[kind]] < 0:
            _improve(
                first[kind], first, second, into, out_of, in_start, in_kinds, size, left, via, queue
            )
    for kind in chosen[np.argsort(-left[second[chosen]])]:
        if out_of[second[kind]] < 0:
            _improve(
                second[kind],
                second,
                first,
                out_of,
                into,
                out_start,
                out_kinds,
                size,
                left,
                via,
                queue,
            )


@kernel
def matched_schedule(
    kind, first, second, hold, group, waits, next_start, next_task, next_lag, release, key, num_res
):
    """Return the start of every task, -1 for tasks that wait for themselves.

    Parameters
    ----------
    kind
        Of each task: those of one kind hold the same.
    first, second, hold
        Per kind the port that it holds, another one or -1, and for how long.
    group
        Per kind, the switch whose rounds it keeps to, -1 for none.
    waits, next_start, next_task, next_lag, release
        Who waits for whom.
    key
        The least goes first.
    """
    num_tasks, num_kinds = len(kind), len(first)
    start = np.full(num_tasks, -1, dtype=np.int64)
    ready, waits = release.copy(), waits.copy()
    left = np.zeros(num_res, dtype=np.int64)
    for t in range(num_tasks):
        left[first[kind[t]]] += hold[kind[t]]
        if second[kind[t]] >= 0:
            left[second[kind[t]]] += hold[kind[t]]
    heap = _places(kind, num_kinds)
    heap_keys, heap_tasks = np.empty_like(start), np.empty_like(start)
    heap_size = np.zeros(num_kinds, dtype=np.int64)
    in_start, in_kinds = _places(first, num_res), np.argsort(first, kind="mergesort")
    twofold = np.flatnonzero(second >= 0)
    out_start = _places(second[twofold], num_res)
    out_kinds = twofold[np.argsort(second[twofold], kind="mergesort")]
    num_groups = group.max() + 1
    members = np.flatnonzero(group >= 0)
    group_start = _places(group[members], num_groups)
    group_kinds = members[np.argsort(group[members], kind="mergesort")]
    free_at = np.zeros(num_res, dtype=np.int64)
    into = np.full(num_res, -1, dtype=np.int64)
    out_of = np.full(num_res, -1, dtype=np.int64)
    via, queue = np.empty(num_res, dtype=np.int64), np.empty(num_res + 1, dtype=np.int64)
    round_at = np.full(num_groups, -1, dtype=np.int64)
    keys = np.empty(max(1024, 2 * num_tasks), dtype=np.int64)
    values = np.empty(max(1024, 2 * num_tasks), dtype=np.int64)
    size = 0
    for t in range(num_tasks):
        if waits[t] == 0:
            size = _heap_push(keys, values, size, ready[t], t)
    begun = np.empty(num_res, dtype=np.int64)
    while size > 0:
        now, value = keys[0], values[0]
        size = _heap_pop(keys, values, size)
        if size + num_res + next_start[num_tasks] >= len(keys):
            keys, values = _grow(keys), _grow(values)
        count = 0
        if value < num_tasks:
            c = kind[value]
            heap_size[c] = _heap_push(
                heap_keys[heap[c] :], heap_tasks[heap[c] :], heap_size[c], key[value], value
            )
            if group[c] >= 0:
                due = -(-now // hold[c]) * hold[c]
                if round_at[group[c]] < due:
                    round_at[group[c]] = due
                    size = _heap_push(keys, values, size, due, num_tasks + num_res + group[c])
            else:
                due = max(now, free_at[first[c]])
                size = _heap_push(keys, values, size, due, num_tasks + first[c])
            continue
        if value < num_tasks + num_res:
            port = value - num_tasks
            if free_at[port] > now:
                continue
            best = -1
            for index in range(in_start[port], in_start[port + 1]):
                c = in_kinds[index]
                if heap_size[c] and (best < 0 or heap_keys[heap[c]] < heap_keys[heap[best]]):
                    best = c
            if best < 0:
                continue
            begun[0], count = best, 1
            free_at[port] = now + hold[best]
            size = _heap_push(keys, values, size, free_at[port], value)
        else:
            g = value - num_tasks - num_res
            own = group_kinds[group_start[g] : group_start[g + 1]]
            chosen = own[heap_size[own] > 0]
            if len(chosen) == 0:
                continue
            chosen = chosen[np.argsort(heap_keys[heap[chosen]], kind="mergesort")]
            _match(
                chosen,
                first,
                second,
                into,
                out_of,
                in_start,
                in_kinds,
                out_start,
                out_kinds,
                heap_size,
                left,
                via,
                queue,
            )
            for c in chosen:
                if into[first[c]] == c:
                    begun[count] = c
                    count += 1
            round_at[g] = now + hold[chosen[0]]
            size = _heap_push(keys, values, size, round_at[g], value)
        for index in range(count):
            c = begun[index]
            t = heap_tasks[heap[c]]
            heap_size[c] = _heap_pop(heap_keys[heap[c] :], heap_tasks[heap[c] :], heap_size[c])
            start[t] = now
            left[first[c]] -= hold[c]
            if second[c] >= 0:
                left[second[c]] -= hold[c]
            for i in range(next_start[t], next_start[t + 1]):
                s = next_task[i]
                waits[s] -= 1
                ready[s] = max(ready[s], now + next_lag[i])
                if waits[s] == 0:
                    size = _heap_push(keys, values, size, ready[s], s)
    return start
