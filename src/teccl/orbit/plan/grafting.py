"""Compiled loop that brings copied chunks to ranks which removed images leave without them.

The tree of a chunk grows again from all ranks that still have it, over links that are busy with
everything that stays. Next is always the rank with the least *price*: when it has the chunk, and
for how long that holds links, which others wait for. So a chunk enters a chassis once and is passed
on inside, even if another link from outside is idle just then. Chunk after chunk is served.
"""

import heapq

import numpy as np

from teccl._kernels import inner, kernel, maker
from teccl.orbit.plan.bookings import LINKS, TAIL, book, fit, next_free

_NEVER = np.iinfo(np.int64).max
# Senders behind a switch that are looked at closely: those that have a chunk first, and those
# whose links are free first.
_CLOSE = 8
# What ways are made of, in few arrays as calendars are: by way and rank, the link out of it, the
# link into it behind a switch, who is at the near and the far end of a straight way, the switch
# entered and the one left; by way and switch, where those who enter it begin, and those to whom it
# leads; those ranks, and at last all ranks, where who is at an end of a straight way is found.
(TABLES, MEMBERS_FIRST, MEMBERS) = range(3)
(OUT, INTO, NEAR, FAR, ENTERED, LEAVING) = range(6)
(ENTERING, SERVED) = range(2)


@inner
def apart(rank, element, lattice):
    """Return the rank that an element takes to another."""
    digits, sizes, strides, per_place = lattice
    place, position = rank // per_place, rank % per_place
    total = 0
    for axis in range(len(sizes)):
        step = digits[axis, place] - digits[axis, element]
        total += (step + sizes[axis] if step < 0 else step) * strides[axis]
    return total * per_place + position


@kernel
def graft(images, wants, kin, hold, lattice, ways, lengths, calendars):
    """Bring chunks to all ranks that lack them.

    Parameters
    ----------
    images
        Chunk orbit and element of each chunk, in the order in which they are served.
    wants
        Where the ranks that lack each chunk begin, and those ranks.
    kin
        Where several of `images` are of one chunk: by image, the chunk; by chunk, where the places
        of the ranks that lack it begin, and those places in `wants`.
    hold
        By chunk orbit and rank, when it has the first chunk.
    lattice
        Coordinates of the elements, sizes and strides of the axes, and orbits of GPUs.
    ways
        Arrays as named above.
    lengths
        By link, picoseconds for which it is held, its latency, and the price of holding it.

    Returns
    -------
    sends
        Rows of image, way, from, to and start; fewer than wanted where some are out of reach.
    """
    first, missing = wants
    when = np.full(len(missing), _NEVER)
    num_ranks = ways[TABLES].shape[2]
    sends, count = np.empty((len(missing), 5), dtype=np.int64), 0
    # When ranks have the chunk that is served, for which chunk that is known, and what it costs
    # those who lack it.
    known = np.full(num_ranks, -1, dtype=np.int64)
    since, key = np.empty(num_ranks, dtype=np.int64), np.empty(num_ranks, dtype=np.int64)
    # Way, sender, start, arrival and price that were found for them, and who still waits.
    plan, waits = np.empty((num_ranks, 5), dtype=np.int64), np.zeros(num_ranks, dtype=np.bool_)
    known_to = (known, since, when)
    pending, before = np.arange(len(images)), -1
    # Whom only ranks reach that lack the chunk in another image is served when they have it.
    while len(pending) and count > before:
        before, left = count, 0
        for image in pending:
            lacking = missing[first[image] : first[image + 1]]
            lacking = lacking[when[first[image] : first[image + 1]] == _NEVER]
            _learn(image, lacking, images, wants, kin, hold, lattice, ways, known_to)
            begin = count
            found = (since, key, plan, waits)
            count = _serve(lacking, found, ways, lengths, calendars, sends, count)
            sends[begin:count, 0] = image
            for place in range(first[image], first[image + 1]):
                when[place] = since[missing[place]]
            if count < begin + len(lacking):
                pending[left] = image
                left += 1
        pending = pending[:left]
    return sends[:count]


@inner
def _learn(image, lacking, images, wants, kin, hold, lattice, ways, known_to):
    """Note when a chunk is at those who may send it to ranks that lack it."""
    known, since, when = known_to
    missing, (name, kin_first, kin_places) = wants[1], kin
    chunk, element = images[image]
    for rank in lacking:
        for way in range(ways[TABLES].shape[1]):
            low, high = _senders(way, rank, ways)
            for other in ways[MEMBERS][low:high]:
                if known[other] != image:
                    known[other] = image
                    since[other] = hold[chunk, apart(other, element, lattice)]
    for place in kin_places[kin_first[name[image]] : kin_first[name[image] + 1]]:
        # What is noted here is of this chunk, whatever was known.
        since[missing[place]], known[missing[place]] = when[place], -1


@maker
def _serve(lacking, found, ways, lengths, calendars, sends, count):
    """Bring one chunk to all ranks that lack it, as far as they can be reached."""
    since, key, plan, waits = found
    close = np.empty((2, 2 * _CLOSE), dtype=np.int64)
    heap = [(_NEVER, np.int64(-1))]
    for rank in lacking:
        plan[rank] = _best(rank, since, ways, lengths, calendars, close)
        key[rank], waits[rank] = plan[rank, 4], True
        heapq.heappush(heap, (key[rank], rank))
    while heap:
        due, rank = heapq.heappop(heap)
        if rank < 0 or due == _NEVER or since[rank] < _NEVER or due > key[rank]:
            continue
        # Links only get busier: what was found is still best if it is free.
        if not _is_free(rank, plan[rank], ways, lengths, calendars):
            plan[rank] = _best(rank, since, ways, lengths, calendars, close)
        way, source, start, arrival, price = plan[rank]
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
        since[rank], waits[rank] = arrival, False
        for w in range(ways[TABLES].shape[1]):
            if ways[TABLES][OUT, w, rank] < 0:
                continue
            low, high = reached(w, rank, ways)
            for other in ways[MEMBERS][low:high]:
                if not waits[other]:
                    continue
                _offer(w, rank, other, arrival, key, plan, ways, lengths, calendars)
                if key[other] < plan[other, 4]:
                    plan[other, 4] = key[other]
                    heapq.heappush(heap, (key[other], other))
    for rank in lacking:
        waits[rank] = False
    return count


@inner
def _offer(way, source, rank, time, key, plan, ways, lengths, calendars):
    """Plan to serve a rank from one that has the chunk from a time on, if that costs less."""
    held_for = _held(way, source, rank, ways, lengths)
    soonest = passed(way, source, rank, time, ways, lengths)
    if soonest == _NEVER or soonest + held_for >= key[rank]:
        return
    link, second = ways[TABLES][OUT, way, source], ways[TABLES][INTO, way, rank]
    most = key[rank] - held_for - (soonest - time)
    start = fit(link, second, time, most, lengths, calendars)
    arrival = passed(way, source, rank, start, ways, lengths)
    if arrival + held_for < key[rank]:
        key[rank] = arrival + held_for
        plan[rank, 0], plan[rank, 1], plan[rank, 2], plan[rank, 3] = way, source, start, arrival


@inner
def _is_free(rank, found, ways, lengths, calendars):
    """Whether the links of what was found for a rank are still free then."""
    way, source, start = found[0], found[1], found[2]
    if way < 0:
        return True
    link, second = ways[TABLES][OUT, way, source], ways[TABLES][INTO, way, rank]
    held = lengths[0, link]
    if next_free(link, start, held, calendars) != start:
        return False
    there = start + held + lengths[1, link]
    return second < 0 or next_free(second, there, lengths[0, second], calendars) == there


@inner
def passed(way, source, rank, time, ways, lengths):
    """When one rank has a chunk from another at the earliest, over links that are free."""
    link = ways[TABLES][OUT, way, source]
    if link < 0:
        return _NEVER
    time += lengths[0, link] + lengths[1, link]
    if ways[TABLES][NEAR, way, rank] == source:
        return time
    second = ways[TABLES][INTO, way, rank]
    if second < 0 or ways[TABLES][ENTERED, way, source] != ways[TABLES][LEAVING, way, rank]:
        return _NEVER
    return time + lengths[0, second] + lengths[1, second]


@inner
def reached(way, rank, ways):
    """Where the members that a way may lead to from a rank begin and end."""
    switch = ways[TABLES][ENTERED, way, rank]
    if switch < 0:
        return _alone(ways[TABLES][FAR, way, rank], ways)
    first = ways[MEMBERS_FIRST]
    return first[SERVED, way, switch], first[SERVED, way, switch + 1]


@inner
def _senders(way, rank, ways):
    """Where the members that a way may lead from to a rank begin and end."""
    if ways[TABLES][INTO, way, rank] < 0:
        return _alone(ways[TABLES][NEAR, way, rank], ways)
    first, switch = ways[MEMBERS_FIRST], ways[TABLES][LEAVING, way, rank]
    return first[ENTERING, way, switch], first[ENTERING, way, switch + 1]


@inner
def _alone(rank, ways):
    """Where a rank is among the members by itself, nowhere if there is none."""
    place = len(ways[MEMBERS]) - ways[TABLES].shape[2] + rank
    return place, place + (rank >= 0)


@inner
def _held(way, source, rank, ways, lengths):
    """What holding the links of a way costs, all together."""
    total = lengths[2, ways[TABLES][OUT, way, source]]
    second = ways[TABLES][INTO, way, rank]
    if second >= 0:
        total += lengths[2, second]
    return total


@inner
def commit(way, source, rank, start, ways, lengths, calendars):
    """Book the links of a way."""
    link, second = ways[TABLES][OUT, way, source], ways[TABLES][INTO, way, rank]
    held = lengths[0, link]
    book(link, start, start + held, held, calendars)
    if second >= 0:
        there, takes = start + held + lengths[1, link], lengths[0, second]
        book(second, there, there + takes, takes, calendars)


@inner
def _best(rank, since, ways, lengths, calendars, close):
    """The way, sender and start with the least price for a rank, the arrival and that price."""
    found_way, found_source, found_start, found, least = -1, -1, _NEVER, _NEVER, _NEVER
    for way in range(ways[TABLES].shape[1]):
        second, took, opens = ways[TABLES][INTO, way, rank], np.int64(0), np.int64(0)
        close[0, :] = -1
        if ways[TABLES][NEAR, way, rank] >= 0:
            close[0, 0] = ways[TABLES][NEAR, way, rank]
        elif second >= 0:
            soonest = _choose(way, rank, since, ways, lengths, calendars, close)
            if soonest == _NEVER:
                continue
            # Nobody gets a chunk through before the link behind the switch is free.
            took = lengths[0, second] + lengths[1, second]
            opens = next_free(second, soonest, lengths[0, second], calendars) + took
        for source in close[0]:
            if source < 0 or ways[TABLES][OUT, way, source] < 0 or since[source] == _NEVER:
                continue
            held_for = _held(way, source, rank, ways, lengths)
            soonest = max(opens, passed(way, source, rank, since[source], ways, lengths))
            if soonest + held_for >= least:
                continue
            if second >= 0 and least < _NEVER:
                # Those who have it no sooner than this one find that link no sooner free.
                there = passed(way, source, rank, since[source], ways, lengths) - took
                there = next_free(second, there, lengths[0, second], calendars)
                opens = max(opens, there + took)
                if opens + held_for >= least:
                    continue
            link, time = ways[TABLES][OUT, way, source], since[source]
            most = least - held_for - (passed(way, source, rank, time, ways, lengths) - time)
            start = fit(link, second, time, most, lengths, calendars)
            arrival = passed(way, source, rank, start, ways, lengths)
            if arrival + held_for < least:
                found_way, found_source, found_start, found = way, source, start, arrival
                least = arrival + held_for
    return found_way, found_source, found_start, found, least


@inner
def _choose(way, rank, since, ways, lengths, calendars, close):
    """Choose senders: those that have a chunk first, and those whose links are free first.

    Returns when the first of them can have it at the switch; `close` has the senders and, below
    them, room for the times by which they are chosen.
    """
    soonest, switch = _NEVER, ways[TABLES][LEAVING, way, rank]
    close[1, :] = _NEVER
    first = ways[MEMBERS_FIRST][ENTERING, way, switch]
    for place in range(first, ways[MEMBERS_FIRST][ENTERING, way, switch + 1]):
        member = ways[MEMBERS][place]
        link, time = ways[TABLES][OUT, way, member], since[member]
        if member == rank or time == _NEVER or link < 0:
            continue
        soonest = min(soonest, time + lengths[0, link] + lengths[1, link])
        for half in range(2):
            value = time
            if half == 1:
                value = max(time, calendars[LINKS][TAIL, link])
            at = half * _CLOSE + _CLOSE - 1
            if value >= close[1, at]:
                continue
            while at > half * _CLOSE and value < close[1, at - 1]:
                close[0, at], close[1, at] = close[0, at - 1], close[1, at - 1]
                at -= 1
            close[0, at], close[1, at] = member, value
    for place in range(_CLOSE):
        for again in range(_CLOSE, 2 * _CLOSE):
            if close[0, again] == close[0, place]:
                close[0, again] = -1
    return soonest
