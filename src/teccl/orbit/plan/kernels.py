"""Compiled loop that grows the trees of all chunk orbits over ways, each as soon as it is free.

Ranks that hold a chunk wait in a queue of each straight way, and switches that a chunk can be
brought to in one of each way through switches. Arrivals of a way come in order, because its sends
begin in order and take the same time. A way that is free takes the first of its queue for which
somebody has not got the chunk yet. Ranks that are *spare* are left for ways that would be idle
otherwise: nobody waits for them, and in the end any way can serve them.
"""

import numba as nb
import numpy as np

_NEVER = np.iinfo(np.int64).max
# Columns of a send over a way.
_CHUNK, _WAY, _FROM, _TO = range(4)


@nb.njit(cache=True)
def grow(owner, ways, tables, members, spare):
    """Bring every chunk to every rank.

    Parameters
    ----------
    owner
        Rank that has each chunk orbit's first chunk.
    ways
        By way: first and second link orbit, the latter -1 where it is straight, picoseconds until
        the second is used and until the far end has the chunk; by link orbit, how long it is held.
    tables
        By way and rank, the rank that a straight way leads to, and the switch that another enters.
    members
        By way and switch, where the ranks that it leads to from the switch begin; and those ranks.
    spare
        By chunk and rank, whether it is left for ways that would be idle.

    Returns
    -------
    sends, starts
        Rows of chunk, way, from and to; and when they begin. Fewer than wanted where some rank is
        out of reach.
    """
    target, _ = tables
    num_ways, num_ranks = target.shape
    num_chunks, num_switches = len(owner), members[0].shape[1] - 1
    total = num_chunks * (num_ranks - 1)
    has = np.zeros((num_chunks, num_ranks), dtype=np.bool_)
    for chunk in range(num_chunks):
        has[chunk, owner[chunk]] = True
    # Who brings a chunk to a switch, and how many of the switch's ranks have it.
    served = np.full((num_ways, num_chunks, num_switches), -1, dtype=np.int64)
    waiting = (
        np.empty((num_ways, num_chunks * max(num_ranks, num_switches)), dtype=np.int64),
        np.zeros((num_ways, 2), dtype=np.int64),
        np.empty((num_ways, num_chunks * num_ranks), dtype=np.int64),
        np.zeros((num_ways, 2), dtype=np.int64),
        served,
        np.zeros_like(served),
    )
    free = np.zeros(len(ways[4]), dtype=np.int64)
    sends, starts = np.empty((total, 4), dtype=np.int64), np.empty(total, dtype=np.int64)
    flight, flown = np.empty((num_ways, total), dtype=np.int64), np.zeros((num_ways, 2), np.int64)
    for chunk in range(num_chunks):
        _hold(chunk, owner[chunk], ways, tables, waiting)
    now, count = 0, 0
    while count < total:
        way, when = _next_way(now, ways, free, waiting)
        coming, arrives = _next_arrival(ways, starts, flight, flown)
        if coming >= 0 and arrives <= when:
            now = arrives
            row = flight[coming, flown[coming, 0]]
            flown[coming, 0] += 1
            _hold(sends[row, _CHUNK], sends[row, _TO], ways, tables, waiting)
            continue
        if way < 0:
            break
        now = when
        if ways[1][way] < 0:
            chunk, source, rank = _straight(way, target, has, spare, waiting)
        else:
            chunk, source, rank = _through(way, members, has, waiting)
        if rank < 0:
            continue
        has[chunk, rank] = True
        sends[count] = (chunk, way, source, rank)
        starts[count] = when
        flight[way, flown[way, 1]] = count
        flown[way, 1] += 1
        _occupy(way, when, ways, free)
        count += 1
    return sends[:count], starts[:count]


@nb.njit(cache=True)
def _hold(chunk, rank, ways, tables, waiting):
    """Let a rank that has a chunk from now on wait for its ways."""
    target, entered = tables
    queue, ends, _, _, holder, _ = waiting
    num_ways, num_ranks = target.shape
    for w in range(num_ways):
        if ways[1][w] < 0:
            if target[w, rank] >= 0:
                queue[w, ends[w, 1]] = chunk * num_ranks + rank
                ends[w, 1] += 1
        elif entered[w, rank] >= 0 and holder[w, chunk, entered[w, rank]] < 0:
            holder[w, chunk, entered[w, rank]] = rank
            queue[w, ends[w, 1]] = chunk * holder.shape[2] + entered[w, rank]
            ends[w, 1] += 1


@nb.njit(cache=True)
def _next_way(now, ways, free, waiting):
    """The way that can begin first among those for which somebody waits, and when."""
    first, second, lag, _, _ = ways
    _, ends, _, kept_ends, _, _ = waiting
    way, when = -1, _NEVER
    for w in range(len(first)):
        if ends[w, 0] < ends[w, 1] or kept_ends[w, 0] < kept_ends[w, 1]:
            start = max(now, free[first[w]])
            if second[w] >= 0:
                start = max(start, free[second[w]] - lag[w])
            if start < when:
                way, when = w, start
    return way, when


@nb.njit(cache=True)
def _next_arrival(ways, starts, flight, flown):
    """The way on which something arrives next, and when."""
    coming, arrives = -1, _NEVER
    for w in range(len(flown)):
        if flown[w, 0] < flown[w, 1]:
            moment = starts[flight[w, flown[w, 0]]] + ways[3][w]
            if moment < arrives:
                coming, arrives = w, moment
    return coming, arrives


@nb.njit(cache=True)
def _straight(way, target, has, spare, waiting):
    """Take the next of a straight way's queue; its rank is -1 where there is nothing to send."""
    queue, ends, kept, kept_ends, _, _ = waiting
    num_ranks = target.shape[1]
    is_idle = ends[way, 0] == ends[way, 1]
    if is_idle:
        entry = kept[way, kept_ends[way, 0]]
        kept_ends[way, 0] += 1
    else:
        entry = queue[way, ends[way, 0]]
        ends[way, 0] += 1
    chunk, source = entry // num_ranks, entry % num_ranks
    rank = target[way, source]
    if has[chunk, rank]:
        return chunk, source, -1
    if spare[chunk, rank] and not is_idle:
        kept[way, kept_ends[way, 1]] = entry
        kept_ends[way, 1] += 1
        return chunk, source, -1
    return chunk, source, rank


@nb.njit(cache=True)
def _through(way, members, has, waiting):
    """Take the next rank behind a switch; it is -1 where the first switch has served all."""
    queue, ends, _, _, holder, place = waiting
    member_start, member_rank = members
    entry = queue[way, ends[way, 0]]
    chunk, switch = entry // holder.shape[2], entry % holder.shape[2]
    at = member_start[way, switch] + place[way, chunk, switch]
    while at < member_start[way, switch + 1] and has[chunk, member_rank[at]]:
        at += 1
    place[way, chunk, switch] = at - member_start[way, switch]
    if at == member_start[way, switch + 1]:
        ends[way, 0] += 1
        return chunk, 0, -1
    return chunk, holder[way, chunk, switch], member_rank[at]


@nb.njit(cache=True)
def _occupy(way, when, ways, free):
    """Hold the link orbits of a way for a chunk."""
    first, second, lag, _, held = ways
    free[first[way]] = when + held[first[way]]
    if second[way] >= 0:
        free[second[way]] = when + lag[way] + held[second[way]]


@nb.njit(cache=True)
def mark_apart(order, target):
    """Mark ranks, in the given order, of which no two are joined by a straight way."""
    marked = np.zeros(target.shape[1], dtype=np.bool_)
    blocked = np.zeros(target.shape[1], dtype=np.bool_)
    for rank in order:
        if blocked[rank]:
            continue
        marked[rank] = True
        for w in range(len(target)):
            end = target[w, rank]
            if end >= 0:
                blocked[end] = True
                for v in range(len(target)):
                    if target[v, end] >= 0:
                        blocked[target[v, end]] = True
    return marked


@nb.njit(cache=True)
def raise_starts(count, edges):
    """Return the least starts for which each edge's second begins so long after its first."""
    starts = np.zeros(count, dtype=np.int64)
    changed = True
    while changed:
        changed = False
        for i in range(len(edges)):
            due = starts[edges[i, 0]] + edges[i, 2]
            if due > starts[edges[i, 1]]:
                starts[edges[i, 1]] = due
                changed = True
    return starts


@nb.njit(cache=True)
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


@nb.njit(cache=True)
def relay(first_step, step_way, ways):
    """Send items along their steps, each way serving first who has farthest to go.

    Parameters
    ----------
    first_step
        Where the steps of each item begin, and the end of all.
    step_way
        The way of each step.
    ways
        As in `grow`.

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
            left[step] = ways[3][step_way[step]] + (0 if last[step] else left[step + 1])
        _push(heap, base, waiting, step_way[first_step[item]], first_step[item], left)
    starts, free = np.zeros(num_steps, dtype=np.int64), np.zeros(len(ways[4]), dtype=np.int64)
    now, count = 0, 0
    while count < num_steps:
        way, when = -1, _NEVER
        coming, arrives = -1, _NEVER
        for w in range(num_ways):
            if waiting[w] > 0:
                start = max(now, free[ways[0][w]])
                if ways[1][w] >= 0:
                    start = max(start, free[ways[1][w]] - ways[2][w])
                if start < when:
                    way, when = w, start
            if flown[w, 0] < flown[w, 1]:
                moment = starts[flight[base[w] + flown[w, 0]]] + ways[3][w]
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
        _occupy(way, when, ways, free)
        count += 1
    return starts


@nb.njit(cache=True)
def _is_before(a, b, left):
    """Whether a step goes before another: it has farther to go, or was listed first."""
    return left[a] > left[b] or (left[a] == left[b] and a < b)


@nb.njit(cache=True)
def _push(heap, base, waiting, way, step, left):
    """Add a step to the heap of a way."""
    at, low = waiting[way], base[way]
    waiting[way] += 1
    while at > 0 and _is_before(step, heap[low + (at - 1) // 2], left):
        heap[low + at] = heap[low + (at - 1) // 2]
        at = (at - 1) // 2
    heap[low + at] = step


@nb.njit(cache=True)
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
