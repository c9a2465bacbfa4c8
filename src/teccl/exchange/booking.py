"""Compiled booking: chunks laid into calendars of links, one after another, each where it fits.

A chunk is carried by legs, each a passage from GPU to GPU through any switches between them. A leg
may begin when the leg that brings the chunk to its sender has arrived, and holds every resource of
its links, a link or a shared capacity, from an offset on. In mirrored time everything runs
backwards: legs from the last to the first, each from its end to its start.
"""

import numba as nb
import numpy as np

from teccl.exchange.tables import PARENT, WAY


@nb.njit(cache=True, nogil=True)
def _room(fabric, legs, num_resources):
    """Where the calendar of each resource begins, with room for all that may be booked."""
    first = np.zeros(num_resources + 1, dtype=np.int64)
    for i in range(legs.leg.shape[0]):
        way = legs.leg[i, WAY]
        for k in range(fabric.use_start[way], fabric.use_start[way + 1]):
            first[fabric.use_res[k] + 1] += 1
    for r in range(num_resources):
        first[r + 1] += first[r]
    return first


@nb.njit(cache=True, nogil=True)
def _first_free(busy, low, high, start, hold):
    """Return the earliest time from a start on at which a calendar has room."""
    if high == low or busy[high - 1, 1] <= start:
        return start
    # The first interval that ends after the start.
    a, b = low, high - 1
    while a < b:
        middle = (a + b) // 2
        if busy[middle, 1] > start:
            b = middle
        else:
            a = middle + 1
    while a < high and busy[a, 0] < start + hold:
        start = busy[a, 1]
        a += 1
    return start


@nb.njit(cache=True, nogil=True)
def _book(busy, first, count, res, begin, end):
    """Book a free time of a resource; intervals that touch are merged."""
    low, high = first[res], first[res] + count[res]
    a = b = high
    # Most are booked after all others.
    if high > low and busy[high - 1, 0] >= begin:
        a = low
    while a < b:
        middle = (a + b) // 2
        if busy[middle, 0] >= begin:
            b = middle
        else:
            a = middle + 1
    joins_before = a > low and busy[a - 1, 1] == begin
    joins_after = a < high and busy[a, 0] == end
    if joins_before and joins_after:
        busy[a - 1, 1] = busy[a, 1]
        for i in range(a, high - 1):
            busy[i, 0], busy[i, 1] = busy[i + 1, 0], busy[i + 1, 1]
        count[res] -= 1
    elif joins_before:
        busy[a - 1, 1] = end
    elif joins_after:
        busy[a, 0] = begin
    else:
        for i in range(high, a, -1):
            busy[i, 0], busy[i, 1] = busy[i - 1, 0], busy[i - 1, 1]
        busy[a, 0], busy[a, 1] = begin, end
        count[res] += 1


@nb.njit(cache=True, nogil=True)
def _offsets(fabric, hold, way, size, mirrored, offset):
    """Note from when each link of a passage is held, and return how long the passage takes."""
    length = 0
    low, high = fabric.way_start[way], fabric.way_start[way + 1]
    for k in range(low, high):
        link = fabric.links[k]
        offset[k - low] = length
        length += hold[fabric.kind[link], size] + fabric.alpha[link]
    if mirrored:
        for k in range(low, high):
            offset[k - low] = length - offset[k - low] - hold[fabric.kind[fabric.links[k]], size]
    return length


@nb.njit(cache=True, nogil=True)
def _fit(fabric, hold, way, size, offset, ready, busy, first, count):
    """Return the earliest start of a passage at which all that it holds is free."""
    low, high = fabric.way_start[way], fabric.way_start[way + 1]
    start, k, fitting = ready, low, 0
    # Links in turn, until as many as there are have fitted one after another.
    while fitting < high - low:
        link = fabric.links[k]
        held, begin = hold[fabric.kind[link], size], start + offset[k - low]
        moved = begin
        for i in range(fabric.res_start[link], fabric.res_start[link + 1]):
            r = fabric.res[i]
            moved = _first_free(busy, first[r], first[r] + count[r], moved, held)
        fitting = fitting + 1 if moved == begin else 0
        # What one link holds alone fits where it was moved to.
        if moved > begin and fabric.res_start[link + 1] - fabric.res_start[link] == 1:
            fitting = 1
        start += moved - begin
        k = k + 1 if k + 1 < high else low
    return start


@nb.njit(cache=True, nogil=True)
def book_all(fabric, legs, hold, order, num_resources, mirrored, begin, limit):
    """Book legs in an order, note when each begins and return the last arrival.

    Parents come first, in mirrored time last. In mirrored time `begin` counts backwards from the
    end. A finish at or beyond `limit` ends the booking early.
    """
    first = _room(fabric, legs, num_resources)
    busy = np.empty((first[num_resources] + 1, 2), dtype=np.int64)
    count = np.zeros(num_resources, dtype=np.int64)
    arrival = np.zeros(len(begin), dtype=np.int64)
    offset = np.empty(len(fabric.links), dtype=np.int64)
    finish = 0
    for i in order:
        job, way, parent = legs.job[i], legs.leg[i, WAY], legs.leg[i, PARENT]
        size = legs.size[job]
        ready = arrival[i]
        if not mirrored:
            ready = legs.ready[job] if parent < 0 else arrival[parent]
        length = _offsets(fabric, hold, way, size, mirrored, offset)
        start = _fit(fabric, hold, way, size, offset, ready, busy, first, count)
        for k in range(fabric.way_start[way], fabric.way_start[way + 1]):
            link = fabric.links[k]
            at = start + offset[k - fabric.way_start[way]]
            until = at + hold[fabric.kind[link], size]
            for r in range(fabric.res_start[link], fabric.res_start[link + 1]):
                _book(busy, first, count, fabric.res[r], at, until)
        begin[i] = start
        end = start + length
        finish = max(finish, end)
        if finish >= limit:
            return finish
        if not mirrored:
            arrival[i] = end
        elif parent >= 0:
            arrival[parent] = max(arrival[parent], end)
    return finish


@nb.njit(cache=True, nogil=True)
def lengths_of(fabric, legs, hold):
    """How long each leg takes."""
    length = np.empty(len(legs.job), dtype=np.int64)
    offset = np.empty(len(fabric.links), dtype=np.int64)
    for i in range(len(legs.job)):
        size = legs.size[legs.job[i]]
        length[i] = _offsets(fabric, hold, legs.leg[i, WAY], size, False, offset)
    return length


@nb.njit(cache=True, nogil=True)
def hops_of(fabric, legs, hold, begin):
    """Every hop of every leg: leg, link and start, and when it arrives at the far end."""
    count = 0
    for i in range(len(legs.job)):
        way = legs.leg[i, WAY]
        count += fabric.way_start[way + 1] - fabric.way_start[way]
    hops = np.empty((count, 4), dtype=np.int64)
    at = 0
    for i in range(len(legs.job)):
        way, size = legs.leg[i, WAY], legs.size[legs.job[i]]
        moment = begin[i]
        for k in range(fabric.way_start[way], fabric.way_start[way + 1]):
            link = fabric.links[k]
            end = moment + hold[fabric.kind[link], size] + fabric.alpha[link]
            hops[at, 0], hops[at, 1], hops[at, 2], hops[at, 3] = i, link, moment, end
            moment = end
            at += 1
    return hops
