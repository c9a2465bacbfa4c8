"""Compiled timetables of link orbits: when they are used by sends that are under way.

A way through several switches uses its last links long after the first, and shorter ways pass in
between.
"""

import numpy as np

from teccl._kernels import inner, maker

# Separate times at which a link orbit is to be used later: ways have few links, so that few of
# their sends are under way at once. Where there are more, the gap between the first two is lost.
_BOOKED = 64


@maker
def blank(num_orbits):
    """Calendars of link orbits on which nothing is booked.

    How many times each has, when these begin and end, and how often it was used.
    """
    shape = (num_orbits, _BOOKED)
    return (
        np.zeros(num_orbits, dtype=np.int64),
        np.empty(shape, dtype=np.int64),
        np.empty(shape, dtype=np.int64),
        np.zeros(num_orbits, dtype=np.int64),
    )


@inner
def earliest(way, now, ways, calendars):
    """When a way can begin so that each of its link orbits is free when it is used."""
    steps, lags, _, held = ways
    count, begin, end, _ = calendars
    start, step = now, 0
    while step < steps.shape[1] and steps[way, step] >= 0:
        orbit = steps[way, step]
        time = start + lags[way, step]
        for i in range(count[orbit]):
            if end[orbit, i] > time and begin[orbit, i] < time + held[orbit]:
                time = end[orbit, i]
        step += 1
        if time > start + lags[way, step - 1]:
            start, step = time - lags[way, step - 1], 0
    return start


@inner
def occupy(way, when, ways, calendars):
    """Hold the link orbits of a way for a chunk; nothing begins before it any more."""
    steps, lags, _, held = ways
    for step in range(steps.shape[1]):
        orbit = steps[way, step]
        if orbit < 0:
            break
        start = when + lags[way, step]
        _book(orbit, start, start + held[orbit], when, calendars)


@inner
def _book(orbit, start, stop, now, calendars):
    """Book a link orbit that is free, forgetting what is over and joining what is adjacent."""
    count, begins, ends, used = calendars
    used[orbit] += 1
    begin, end = begins[orbit], ends[orbit]
    kept = 0
    for i in range(count[orbit]):
        if end[i] > now:
            begin[kept], end[kept] = begin[i], end[i]
            kept += 1
    at = kept
    while at > 0 and begin[at - 1] > start:
        at -= 1
    if at > 0 and end[at - 1] == start:
        end[at - 1] = stop
        if at < kept and begin[at] == stop:
            end[at - 1] = end[at]
            for i in range(at, kept - 1):
                begin[i], end[i] = begin[i + 1], end[i + 1]
            kept -= 1
        count[orbit] = kept
        return
    if kept == _BOOKED:
        end[0] = end[1]
        for i in range(1, kept - 1):
            begin[i], end[i] = begin[i + 1], end[i + 1]
        kept -= 1
        if at == 1:
            count[orbit] = kept
            return
        at = max(0, at - 1)
    for i in range(kept, at, -1):
        begin[i], end[i] = begin[i - 1], end[i - 1]
    begin[at], end[at] = start, stop
    count[orbit] = kept + 1
