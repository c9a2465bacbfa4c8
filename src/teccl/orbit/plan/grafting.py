"""Compiled loop that brings copied chunks to ranks which removed images leave without them.

The tree of a chunk grows again from all ranks that still have it, over links that are busy with
everything that stays. Next is always the rank with the least *price*: when it has the chunk, and
for how long that holds links, which others wait for. So a chunk enters a chassis once and is passed
on inside, even if another link from outside is idle just then. Chunk after chunk is served.
"""

import heapq

import numba as nb
import numpy as np

from teccl.orbit.plan.bookings import book, fit, next_free

_NEVER = np.iinfo(np.int64).max
# Senders behind a switch that are looked at closely: those that have a chunk first, and those
# whose links are free first.
_CLOSE = 8


@nb.njit(cache=True)
def apart(rank, element, lattice):
    """Return the rank that an element takes to another."""
    digits, sizes, strides, per_place = lattice
    place, position = rank // per_place, rank % per_place
    total = 0
    for axis in range(len(sizes)):
        total += (digits[axis, place] - digits[axis, element]) % sizes[axis] * strides[axis]
    return total * per_place + position


@nb.njit(cache=True)
def graft(images, wants, hold, lattice, ways, lengths, calendars):
    """Bring chunks to all ranks that lack them.

    Parameters
    ----------
    images
        Chunk orbit and element of each chunk, in the order in which they are served.
    wants
        Where the ranks that lack each chunk begin, and those ranks.
    hold
        By chunk orbit and rank, when it has the first chunk.
    lattice
        Coordinates of the elements, sizes and strides of the axes, and orbits of GPUs.
    ways
        By way and rank: the link out of it, the link into it behind a switch, who is at the near
        and the far end of a straight way, the switch entered and the one left; by way and switch,
        where those who enter it begin, and those ranks; the same for those to whom it leads.
    lengths
        By link, picoseconds for which it is held, and latency.

    Returns
    -------
    sends
        Rows of image, way, from, to and start; fewer than wanted where some are out of reach.
    """
    first, missing = wants
    num_ranks = ways[0].shape[1]
    sends, count = np.empty((len(missing), 5), dtype=np.int64), 0
    # When each rank has the chunk that is served, and what it costs those who lack it.
    since, key = np.empty(num_ranks, dtype=np.int64), np.empty(num_ranks, dtype=np.int64)
    for image in range(len(images)):
        chunk, element = images[image]
        for rank in range(num_ranks):
            since[rank] = hold[chunk, apart(rank, element, lattice)]
        lacking = missing[first[image] : first[image + 1]]
        before = count
        count = _serve(lacking, since, key, ways, lengths, calendars, sends, count)
        sends[before:count, 0] = image
    return sends[:count]


@nb.njit(cache=True)
def _serve(lacking, since, key, ways, lengths, calendars, sends, count):
    """Bring one chunk to all ranks that lack it, as far as they can be reached."""
    since[lacking] = _NEVER
    heap = [(_NEVER, np.int64(-1))]
    for rank in lacking:
        key[rank] = _best(rank, since, ways, lengths, calendars)[4]
        heapq.heappush(heap, (key[rank], rank))
    while heap:
        due, rank = heapq.heappop(heap)
        if rank < 0 or due == _NEVER or since[rank] < _NEVER or due > key[rank]:
            continue
        way, source, start, arrival, price = _best(rank, since, ways, lengths, calendars)
        if way < 0:
            continue
        # Those behind one busy link all wait a little longer after each send: whose turn it is
        # among them does not matter, and looking at all of them again would take most of the time.
        if price - _held(way, source, rank, ways, lengths) > heap[0][0]:
            key[rank] = price
            heapq.heappush(heap, (price, rank))
            continue
        commit(way, source, rank, start, ways, lengths, calendars)
        sends[count] = (-1, way, source, rank, start)
        count += 1
        since[rank] = arrival
        for w in range(len(ways[0])):
            for other in reached(w, rank, ways):
                if other < 0 or since[other] < _NEVER or ways[0][w, rank] < 0:
                    continue
                price = passed(w, rank, other, arrival, ways, lengths)
                if price < _NEVER:
                    price += _held(w, rank, other, ways, lengths)
                if price < key[other]:
                    key[other] = price
                    heapq.heappush(heap, (price, other))
    return count


@nb.njit(cache=True)
def passed(way, source, rank, time, ways, lengths):
    """When one rank has a chunk from another at the earliest, over links that are free."""
    out, into, near, _, entered, left = ways[:6]
    held, alpha = lengths
    link = out[way, source]
    if link < 0:
        return _NEVER
    if near[way, rank] == source:
        return time + held[link] + alpha[link]
    second = into[way, rank]
    if second < 0 or entered[way, source] != left[way, rank]:
        return _NEVER
    return time + held[link] + alpha[link] + held[second] + alpha[second]


@nb.njit(cache=True)
def reached(way, rank, ways):
    """Ranks that a way may lead to from a rank; -1 stands for none."""
    far, entered, _, _, _, first, leaving = ways[3:]
    switch = entered[way, rank]
    if switch < 0:
        return far[way, rank : rank + 1]
    return leaving[first[way, switch] : first[way, switch + 1]]


@nb.njit(cache=True)
def _held(way, source, rank, ways, lengths):
    """For how long links are held on a way, all together."""
    second = ways[1][way, rank]
    return lengths[0][ways[0][way, source]] + (lengths[0][second] if second >= 0 else 0)


@nb.njit(cache=True)
def commit(way, source, rank, start, ways, lengths, calendars):
    """Book the links of a way."""
    held, alpha = lengths
    link, second = ways[0][way, source], ways[1][way, rank]
    book(link, start, start + held[link], calendars)
    if second >= 0:
        there = start + held[link] + alpha[link]
        book(second, there, there + held[second], calendars)


@nb.njit(cache=True)
def _best(rank, since, ways, lengths, calendars):
    """The way, sender and start with the least price for a rank, the arrival and that price."""
    out, into, near, _, _, left, member_first, members = ways[:8]
    held, alpha = lengths
    tail = calendars[12]
    found_way, found_source, found_start, found, least = -1, -1, _NEVER, _NEVER, _NEVER
    close = np.empty(2 * _CLOSE, dtype=np.int64)
    for way in range(len(out)):
        second, opens = into[way, rank], np.int64(0)
        close[:] = -1
        if near[way, rank] >= 0:
            close[0] = near[way, rank]
        elif second >= 0:
            low, high = member_first[way, left[way, rank]], member_first[way, left[way, rank] + 1]
            soonest = _choose(members[low:high], out[way], tail, rank, since, close)
            if soonest == _NEVER:
                continue
            # Nobody gets a chunk through before the link behind the switch is free.
            opens = next_free(second, soonest, held[second], calendars) + held[second]
            opens += alpha[second]
        for source in close:
            if source < 0 or out[way, source] < 0 or since[source] == _NEVER:
                continue
            held_for = _held(way, source, rank, ways, lengths)
            soonest = max(opens, passed(way, source, rank, since[source], ways, lengths))
            if soonest + held_for >= least:
                continue
            start = fit(out[way, source], second, since[source], held, alpha, calendars)
            arrival = passed(way, source, rank, start, ways, lengths)
            if arrival + held_for < least:
                found_way, found_source, found_start, found = way, source, start, arrival
                least = arrival + held_for
    return found_way, found_source, found_start, found, least


@nb.njit(cache=True)
def _choose(members, out, tail, rank, since, close):
    """Choose senders: those that have a chunk first, and those whose links are free first.

    Returns when the first of them has it.
    """
    keys = np.full(2 * _CLOSE, _NEVER, dtype=np.int64)
    for member in members:
        time = since[member]
        if member == rank or time == _NEVER or out[member] < 0:
            continue
        for half in range(2):
            value = time if half == 0 else max(time, tail[out[member]])
            at = half * _CLOSE + _CLOSE - 1
            if value >= keys[at]:
                continue
            while at > half * _CLOSE and value < keys[at - 1]:
                keys[at], close[at] = keys[at - 1], close[at - 1]
                at -= 1
            keys[at], close[at] = value, member
    for place in range(_CLOSE):
        for again in range(_CLOSE, 2 * _CLOSE):
            if close[again] == close[place]:
                close[again] = -1
    return keys[0]
