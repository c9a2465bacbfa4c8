"""Compiled loops of AllToAlls: routes over ways with little to do, and who goes first on each."""

import numpy as np

from teccl._kernels import inner, kernel
from teccl.orbit.plan.timetables import blank, earliest, occupy

_NEVER = np.iinfo(np.int64).max


@kernel
def choose_parents(order, distance, before, busy):
    """Choose for each rank the last way of a cheapest route to it.

    Of equally cheap ones it has the dearest last step, and then the least busy ways.

    Parameters
    ----------
    order
        Ranks by distance, without the first.
    distance
        What getting to each rank costs.
    before
        By way and rank, who comes before it on a cheapest route that ends with the way, or -1.
    busy
        Picoseconds for which a chunk keeps each way busy.

    Returns
    -------
    parent, by
        By rank, who comes before it and on which way, -1 for the first and those out of reach.
    """
    num_ways, num_ranks = before.shape
    parent, by = np.full(num_ranks, -1, dtype=np.int64), np.full(num_ranks, -1, dtype=np.int64)
    used = np.zeros((num_ranks, num_ways), dtype=np.int64)
    load = np.zeros(num_ways, dtype=np.int64)
    for turn, rank in enumerate(order):
        least, lowest = _NEVER, _NEVER
        for i in range(num_ways):
            # Equal ways come first in turn, so that routes differ in the order of their steps.
            w = (turn + i) % num_ways
            source = before[w, rank]
            if source < 0 or distance[source] > least:
                continue
            crowd = 0
            for v in range(num_ways):
                more = used[source, v] + (1 if v == w else 0)
                crowd += more * (2 * load[v] + more) * busy[v]
            if distance[source] < least or crowd < lowest:
                least, lowest = distance[source], crowd
                parent[rank], by[rank] = source, w
        if by[rank] >= 0:
            used[rank] = used[parent[rank]]
            used[rank, by[rank]] += 1
            load += used[rank]
    return parent, by


@kernel
def relay(first_step, step_way, ways):
    """Send items along their steps, each way serving first who has farthest to go.

    Parameters
    ----------
    first_step
        Where the steps of each item begin, and the end of all.
    step_way
        The way of each step.
    ways
        As in `kernels.grow`.

    Returns
    -------
    starts
        When each step begins.
    """
    num_ways, num_steps = len(ways[0]), len(step_way)
    counts = np.zeros(num_ways + 1, dtype=np.int64)
    for way in step_way:
        counts[way + 1] += 1
    base = np.cumsum(counts)
    # Of each way the steps that wait, as a heap, and those on their way, with how many there are.
    heap, flight = np.empty(num_steps, dtype=np.int64), np.empty(num_steps, dtype=np.int64)
    waiting, flown = np.zeros(num_ways, dtype=np.int64), np.zeros((num_ways, 2), dtype=np.int64)
    last, left = np.zeros(num_steps, dtype=np.bool_), np.zeros(num_steps, dtype=np.int64)
    for item in range(len(first_step) - 1):
        last[first_step[item + 1] - 1] = True
        for step in range(first_step[item + 1] - 1, first_step[item] - 1, -1):
            left[step] = ways[2][step_way[step]] + (0 if last[step] else left[step + 1])
        _push(heap, base, waiting, step_way[first_step[item]], first_step[item], left)
    starts, calendars = np.zeros(num_steps, dtype=np.int64), blank(len(ways[3]))
    now, count = 0, 0
    while count < num_steps:
        way, when = -1, _NEVER
        coming, arrives = -1, _NEVER
        for w in range(num_ways):
            if waiting[w] > 0:
                start = earliest(w, now, ways, calendars)
                if start < when:
                    way, when = w, start
            if flown[w, 0] < flown[w, 1]:
                moment = starts[flight[base[w] + flown[w, 0]]] + ways[2][w]
                if moment < arrives:
                    coming, arrives = w, moment
        if coming >= 0 and arrives <= when:
            now = arrives
            step = flight[base[coming] + flown[coming, 0]]
            flown[coming, 0] += 1
            if not last[step]:
                _push(heap, base, waiting, step_way[step + 1], step + 1, left)
            continue
        now = when
        step = _pop(heap, base, waiting, way, left)
        starts[step] = when
        flight[base[way] + flown[way, 1]] = step
        flown[way, 1] += 1
        occupy(way, when, ways, calendars)
        count += 1
    return starts


@inner
def _is_before(a, b, left):
    """Whether a step goes before another: it has farther to go, or was listed first."""
    return left[a] > left[b] or (left[a] == left[b] and a < b)


@inner
def _push(heap, base, waiting, way, step, left):
    """Add a step to the heap of a way."""
    at, low = waiting[way], base[way]
    waiting[way] += 1
    while at > 0 and _is_before(step, heap[low + (at - 1) // 2], left):
        heap[low + at] = heap[low + (at - 1) // 2]
        at = (at - 1) // 2
    heap[low + at] = step


@inner
def _pop(heap, base, waiting, way, left):
    """Take the first step from the heap of a way."""
    low = base[way]
    first = heap[low]
    waiting[way] -= 1
    count, step, at = waiting[way], heap[low + waiting[way]], 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _is_before(heap[low + child + 1], heap[low + child], left):
            child += 1
        if not _is_before(heap[low + child], step, left):
            break
        heap[low + at] = heap[low + child]
        at = child
    heap[low + at] = step
    return first
