"""Compiled loop that brings copied chunks to ranks which removed images leave without them.

The tree of a chunk grows again from all ranks that still have it, over links that are busy with
everything that stays. Next is always the rank with the least *price*: when it has the chunk, and
for how long that holds links, which others wait for. So a chunk enters a chassis once and is passed
on inside, even if another link from outside is idle just then. Chunk after chunk is served.
"""

import heapq

import numba as nb
import numpy as np

from teccl.orbit.plan.bookings import book, fit

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
    # What is known of the ranks that lack the chunk that is served: when they have it again.
    mark, got = np.full(num_ranks, -1, dtype=np.int64), np.empty(num_ranks, dtype=np.int64)
    state = (mark, got, np.empty(num_ranks, dtype=np.int64), hold)
    for image in range(len(images)):
        lacking = missing[first[image] : first[image + 1]]
        count = _serve(
            image, lacking, images, state, lattice, ways, lengths, calendars, sends, count
        )
    return sends[:count]


@nb.njit(cache=True)
def _serve(image, lacking, images, state, lattice, ways, lengths, calendars, sends, count):
    """Bring one chunk to all ranks that lack it, as far as they can be reached."""
    mark, got, key, hold = state
    for rank in lacking:
        mark[rank], got[rank], key[rank] = image, _NEVER, _NEVER
    holding = (images[image, 0], images[image, 1], image, mark, got, hold)
    heap = [(_NEVER, np.int64(-1))]
    for rank in lacking:
        key[rank] = _best(rank, holding, lattice, ways, lengths, calendars)[4]
        heapq.heappush(heap, (key[rank], rank))
    while heap:
        due, rank = heapq.heappop(heap)
        if rank < 0 or due == _NEVER or got[rank] < _NEVER or due > key[rank]:
            continue
        way, source, start, arrival, price = _best(rank, holding, lattice, ways, lengths, calendars)
        if heap and price > heap[0][0]:
            key[rank] = price
            heapq.heappush(heap, (price, rank))
            continue
        commit(way, source, rank, start, ways, lengths, calendars)
        sends[count] = (image, way, source, rank, start)
        count += 1
        got[rank] = arrival
        for other in lacking:
            if got[other] < _NEVER:
                continue
            for w in range(len(ways[0])):
                price = passed(w, rank, other, arrival, ways, lengths)
                if price < _NEVER:
                    price += _held(w, rank, other, ways, lengths)
                if price < key[other]:
                    key[other] = price
                    heapq.heappush(heap, (price, other))
    return count


@nb.njit(cache=True)
def _has(rank, holding, lattice):
    """When a rank has the chunk that is served."""
    chunk, element, image, mark, got, hold = holding
    if mark[rank] == image:
        return got[rank]
    return hold[chunk, apart(rank, element, lattice)]


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
def _best(rank, holding, lattice, ways, lengths, calendars):
    """The way, sender and start with the least price for a rank, the arrival and that price."""
    out, into, near, _, _, left, member_first, members = ways[:8]
    held, alpha = lengths
    tail = calendars[12]
    found_way, found_source, found_start, found, least = -1, -1, _NEVER, _NEVER, _NEVER
    close = np.empty(2 * _CLOSE, dtype=np.int64)
    for way in range(len(out)):
        second = into[way, rank]
        close[:] = -1
        if near[way, rank] >= 0:
            close[0] = near[way, rank]
        elif second >= 0:
            low, high = member_first[way, left[way, rank]], member_first[way, left[way, rank] + 1]
            _choose(members[low:high], out[way], tail, rank, holding, lattice, close)
        for source in close:
            if source < 0 or out[way, source] < 0:
                continue
            time = _has(source, holding, lattice)
            if time == _NEVER:
                continue
            held_for = _held(way, source, rank, ways, lengths)
            if passed(way, source, rank, time, ways, lengths) + held_for >= least:
                continue
            start = fit(out[way, source], second, time, held, alpha, calendars)
            arrival = passed(way, source, rank, start, ways, lengths)
            if arrival + held_for < least:
                found_way, found_source, found_start, found = way, source, start, arrival
                least = arrival + held_for
    return found_way, found_source, found_start, found, least


@nb.njit(cache=True)
def _choose(members, out, tail, rank, holding, lattice, close):
    """Choose senders: those that have a chunk first, and those whose links are free first."""
    keys = np.full(2 * _CLOSE, _NEVER, dtype=np.int64)
    for member in members:
        if member == rank or out[member] < 0:
            continue
        time = _has(member, holding, lattice)
        if time == _NEVER:
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
