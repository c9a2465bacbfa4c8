"""Compiled loop that grows the trees of all chunk orbits over ways, each as soon as it is free.

Ranks that hold a chunk wait in a queue of each straight way, and hubs that a chunk can be brought
to in one of each way through switches. Arrivals of a way come in order, because its sends
begin in order and take the same time. A way that is free takes the first of its queue for which
somebody has not got the chunk yet. Ranks that are *spare* are left for ways that would be idle
otherwise: nobody waits for them, and in the end any way can serve them.
"""

import numpy as np

from teccl._kernels import inner, kernel
from teccl.orbit.plan.timetables import blank, earliest, occupy

_NEVER = np.iinfo(np.int64).max
# Columns of a send over a way.
_CHUNK, _WAY, _FROM, _TO = range(4)


@kernel
def grow(owner, size, ways, tables, members, spare):
    """Bring every chunk to every rank.

    Parameters
    ----------
    owner
        Rank that has each chunk orbit's first chunk.
    size
        Ranks that are to have each chunk.
    ways
        By way and step, the link orbit, -1 after the last, and picoseconds until it is used; by way
        picoseconds until the far end has the chunk; by link orbit, how long it is held.
    tables
        By way and rank, the rank that a straight way leads to, the hub that another enters, and the
        block of the hub that the rank belongs to: one rank of each block is served.
    members
        By way and hub, where the ranks that it leads to begin; and those ranks.
    spare
        By chunk and rank, whether it is left for ways that would be idle.

    Returns
    -------
    sends, starts
        Rows of chunk, way, from and to; and when they begin. Fewer than wanted where some rank is
        out of reach.
    """
    target, _, block = tables
    num_ways, num_ranks = target.shape
    num_chunks, num_hubs = len(owner), members[0].shape[1] - 1
    total = num_chunks * (size - 1)
    has = np.zeros((num_chunks, num_ranks), dtype=np.bool_)
    # Blocks that somebody brings or brought a chunk to.
    known = np.zeros((num_ways, num_chunks, block.max() + 1), dtype=np.bool_)
    # Who brings a chunk to a hub, and how many of the hub's ranks have been looked at.
    served = np.full((num_ways, num_chunks, num_hubs), -1, dtype=np.int64)
    waiting = (
        np.empty((num_ways, num_chunks * max(num_ranks, num_hubs)), dtype=np.int64),
        np.zeros((num_ways, 2), dtype=np.int64),
        np.empty((num_ways, num_chunks * num_ranks), dtype=np.int64),
        np.zeros((num_ways, 2), dtype=np.int64),
        served,
        np.zeros_like(served),
    )
    calendars = blank(len(ways[3]))
    sends, starts = np.empty((total, 4), dtype=np.int64), np.empty(total, dtype=np.int64)
    flight, flown = np.empty((num_ways, total), dtype=np.int64), np.zeros((num_ways, 2), np.int64)
    for chunk in range(num_chunks):
        _claim(chunk, owner[chunk], has, known, block)
        _hold(chunk, owner[chunk], tables, waiting)
    now, count = 0, 0
    while count < total:
        way, when = _next_way(now, ways, calendars, waiting)
        coming, arrives = _next_arrival(ways, starts, flight, flown)
        if coming >= 0 and arrives <= when:
            now = arrives
            row = flight[coming, flown[coming, 0]]
            flown[coming, 0] += 1
            _hold(sends[row, _CHUNK], sends[row, _TO], tables, waiting)
            continue
        if way < 0:
            break
        now = when
        if _last_step(way, ways) == 0:
            chunk, source, rank = _straight(way, target, has, spare, waiting)
        else:
            chunk, source, rank = _through(way, members, known, block, waiting)
        if rank < 0:
            continue
        _claim(chunk, rank, has, known, block)
        sends[count] = (chunk, way, source, rank)
        starts[count] = when
        flight[way, flown[way, 1]] = count
        flown[way, 1] += 1
        occupy(way, when, ways, calendars)
        count += 1
    return sends[:count], starts[:count]


@inner
def _claim(chunk, rank, has, known, block):
    """Note that a rank has a chunk or is about to get it."""
    has[chunk, rank] = True
    for w in range(len(block)):
        if block[w, rank] >= 0:
            known[w, chunk, block[w, rank]] = True


@inner
def _hold(chunk, rank, tables, waiting):
    """Let a rank that has a chunk from now on wait for its ways."""
    target, entered, _ = tables
    queue, ends, _, _, holder, _ = waiting
    num_ways, num_ranks = target.shape
    for w in range(num_ways):
        if target[w, rank] >= 0:
            queue[w, ends[w, 1]] = chunk * num_ranks + rank
            ends[w, 1] += 1
        elif entered[w, rank] >= 0 and holder[w, chunk, entered[w, rank]] < 0:
            holder[w, chunk, entered[w, rank]] = rank
            queue[w, ends[w, 1] % queue.shape[1]] = chunk * holder.shape[2] + entered[w, rank]
            ends[w, 1] += 1


@inner
def _next_way(now, ways, calendars, waiting):
    """The way that can begin first among those for which somebody waits, and when.

    Of ways through as many switches that can begin at once the one whose first and last links were
    used least goes first, so that all orbits of GPUs send and receive alike.
    """
    _, ends, _, kept_ends, _, _ = waiting
    way, when, fewest = -1, _NEVER, _NEVER
    for w in range(len(ways[0])):
        if ends[w, 0] < ends[w, 1] or kept_ends[w, 0] < kept_ends[w, 1]:
            start = earliest(w, now, ways, calendars)
            if start > when:
                continue
            last = _last_step(w, ways)
            uses = calendars[3][ways[0][w, 0]] + calendars[3][ways[0][w, last]]
            is_like = start == when and last > 0 and last == _last_step(way, ways)
            if start < when or (is_like and uses < fewest):
                way, when, fewest = w, start, uses
    return way, when


@inner
def _last_step(way, ways):
    """Position of the last link of a way."""
    last = ways[0].shape[1] - 1
    while ways[0][way, last] < 0:
        last -= 1
    return last


@inner
def _next_arrival(ways, starts, flight, flown):
    """The way on which something arrives next, and when."""
    coming, arrives = -1, _NEVER
    for w in range(len(flown)):
        if flown[w, 0] < flown[w, 1]:
            moment = starts[flight[w, flown[w, 0]]] + ways[2][w]
            if moment < arrives:
                coming, arrives = w, moment
    return coming, arrives


@inner
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


@inner
def _through(way, members, known, block, waiting):
    """Take the next rank of a hub; it is -1 where the first hub has served all."""
    queue, ends, _, _, holder, place = waiting
    member_start, member_rank = members
    entry = queue[way, ends[way, 0] % queue.shape[1]]
    ends[way, 0] += 1
    chunk, hub = entry // holder.shape[2], entry % holder.shape[2]
    at = member_start[way, hub] + place[way, chunk, hub]
    while at < member_start[way, hub + 1] and known[way, chunk, block[way, member_rank[at]]]:
        at += 1
    place[way, chunk, hub] = at - member_start[way, hub]
    if at == member_start[way, hub + 1]:
        return chunk, 0, -1
    queue[way, ends[way, 1] % queue.shape[1]] = entry
    ends[way, 1] += 1
    return chunk, holder[way, chunk, hub], member_rank[at]


@kernel
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


@kernel
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
