"""Compiled booking: chunks laid into calendars of links, one after another, each where it fits.

A chunk is carried by legs, each a passage from GPU to GPU through any switches between them. A leg
may begin when the leg that brings the chunk to its sender has arrived, and holds every resource of
its links, a link or a shared capacity, from an offset on. In mirrored time everything runs
backwards: legs from the last to the first, each from its end to its start.
"""

import numpy as np

from teccl._kernels import kernel
from teccl.exchange.tables import PARENT, WAY


@kernel
def _room(fabric, legs, num_resources):
    """Where the calendar of each resource begins, with room for all that may be booked."""
    leg, use_start, use_res = legs.leg, fabric.use_start, fabric.use_res
    first = np.zeros(num_resources + 1, dtype=np.int64)
    for i in range(leg.shape[0]):
        for k in range(use_start[leg[i, WAY]], use_start[leg[i, WAY] + 1]):
            first[use_res[k] + 1] += 1
    for r in range(num_resources):
        first[r + 1] += first[r]
    return first


@kernel
def _first_free(busy, low, high, start, hold):
    """Return the earliest time from a start on at which a calendar has room, and before what."""
    if high == low or busy[high - 1, 1] <= start:
        return start, high
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
    return start, a


@kernel
def _book(busy, low, high, a, begin, end):
    """Book a free time before interval `a`, merging those that touch; returns how many are more."""
    joins_before = a > low and busy[a - 1, 1] == begin
    joins_after = a < high and busy[a, 0] == end
    if joins_before and joins_after:
        busy[a - 1, 1] = busy[a, 1]
        for i in range(a, high - 1):
            busy[i, 0], busy[i, 1] = busy[i + 1, 0], busy[i + 1, 1]
        return -1
    if joins_before:
        busy[a - 1, 1] = end
        return 0
    if joins_after:
        busy[a, 0] = begin
        return 0
    for i in range(high, a, -1):
        busy[i, 0], busy[i, 1] = busy[i - 1, 0], busy[i - 1, 1]
    busy[a, 0], busy[a, 1] = begin, end
    return 1


@kernel
def _steps(links, kind, alpha, hold, low, high, size, mirrored, offset, held):
    """Note from when and how long each link of a passage is held; returns how long that takes."""
    length = 0
    for k in range(low, high):
        link = links[k]
        offset[k - low], held[k - low] = length, hold[kind[link], size]
        length += held[k - low] + alpha[link]
    if mirrored:
        for k in range(high - low):
            offset[k] = length - offset[k] - held[k]
    return length


@kernel
def _fit(links, res_start, res, low, high, offset, held, ready, busy, first, count, place):
    """Return the earliest start of a passage at which all that it holds is free.

    Notes in `place`, for each resource of a link, before what interval it is free then.
    """
    start, k, fitting = ready, low, 0
    # Links in turn, until as many as there are have fitted one after another.
    while fitting < high - low:
        link = links[k]
        begin = start + offset[k - low]
        moved = begin
        for i in range(res_start[link], res_start[link + 1]):
            r = res[i]
            moved, place[i] = _first_free(busy, first[r], first[r] + count[r], moved, held[k - low])
        fitting = fitting + 1 if moved == begin else 0
        # What one link holds alone fits where it was moved to.
        if moved > begin and res_start[link + 1] - res_start[link] == 1:
            fitting = 1
        start += moved - begin
        k = k + 1 if k + 1 < high else low
    return start


@kernel
def book_all(fabric, legs, hold, order, num_resources, mirrored, begin, limit):
    """Book legs in an order, note when each begins and return the last arrival.

    Parents come first, in mirrored time last. In mirrored time `begin` counts backwards from the
    end. A finish at or beyond `limit` ends the booking early. Arrays are taken out of their tuples
    here, once: every time counts references.
    """
    way_start, links, kind, alpha, res_start, res = fabric[:6]
    leg, job, sizes, ready_of = legs
    first = _room(fabric, legs, num_resources)
    busy = np.empty((first[num_resources] + 1, 2), dtype=np.int64)
    count = np.zeros(num_resources, dtype=np.int64)
    arrival = np.zeros(len(begin), dtype=np.int64)
    offset, held = np.empty((2, len(links)), dtype=np.int64)
    place = np.empty(len(res), dtype=np.int64)
    finish = 0
    for i in order:
        way, parent, size = leg[i, WAY], leg[i, PARENT], sizes[job[i]]
        low, high = way_start[way], way_start[way + 1]
        ready = arrival[i]
        if not mirrored:
            ready = ready_of[job[i]] if parent < 0 else arrival[parent]
        length = _steps(links, kind, alpha, hold, low, high, size, mirrored, offset, held)
        start = _fit(
            links, res_start, res, low, high, offset, held, ready, busy, first, count, place
        )
        for k in range(low, high):
            at = start + offset[k - low]
            for e in range(res_start[links[k]], res_start[links[k] + 1]):
                r = res[e]
                last = first[r] + count[r]
                # Another link of the passage may have booked the same shared capacity.
                a = min(place[e], last)
                while a > first[r] and busy[a - 1, 0] > at:
                    a -= 1
                while a < last and busy[a, 0] < at:
                    a += 1
                count[r] += _book(busy, first[r], last, a, at, at + held[k - low])
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


@kernel
def lengths_of(fabric, legs, hold):
    """How long each leg takes."""
    way_start, links, kind, alpha = fabric[:4]
    leg, job, sizes, _ = legs
    length = np.zeros(len(job), dtype=np.int64)
    for i in range(len(job)):
        for k in range(way_start[leg[i, WAY]], way_start[leg[i, WAY] + 1]):
            length[i] += hold[kind[links[k]], sizes[job[i]]] + alpha[links[k]]
    return length


@kernel
def hops_of(fabric, legs, hold, begin):
    """Every hop of every leg: leg, link and start, and when it arrives at the far end."""
    way_start, links, kind, alpha = fabric[:4]
    leg, job, sizes, _ = legs
    count = 0
    for i in range(len(job)):
        count += way_start[leg[i, WAY] + 1] - way_start[leg[i, WAY]]
    hops = np.empty((count, 4), dtype=np.int64)
    at = 0
    for i in range(len(job)):
        way, size = leg[i, WAY], sizes[job[i]]
        moment = begin[i]
        for k in range(way_start[way], way_start[way + 1]):
            link = links[k]
            end = moment + hold[kind[link], size] + alpha[link]
            hops[at, 0], hops[at, 1], hops[at, 2], hops[at, 3] = i, link, moment, end
            moment = end
            at += 1
    return hops
