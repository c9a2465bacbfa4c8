"""Bookings: compiled calendars of single links around the images of an orbit schedule.

All links of an orbit are busy at the same times, so these are kept once for each orbit. A link
differs from the others of its orbit by what is *freed*, images that were removed, and by what is
*booked* beside them. Times are whole picoseconds.
"""

import numba as nb
import numpy as np


@nb.njit(cache=True)
def next_free(link, time, length, calendars):
    """Return the first moment from a time on at which a link is free for so long.

    Parameters
    ----------
    calendars
        The orbit whose images each link carries, -1 for none; where those of an orbit begin;
        their starts, ends and the last of those that follow one another without a useful gap;
        where what is freed of each link begins; positions of freed images; the first booking of
        each link; by booking the next one, its start and end; how many there are; when each link is
        free for good; the booking of each link that was looked at last.
    """
    line, first, start, end, block, freed_first, freed = calendars[:7]
    follow, begin, until = calendars[8:11]
    orbit = line[link]
    while True:
        if orbit >= 0:
            low, high = first[orbit], first[orbit + 1]
            at = low + np.searchsorted(end[low:high], time, side="right")
            gap, gaps = freed_first[link], freed_first[link + 1]
            gap += np.searchsorted(freed[gap:gaps], at)
            while at < high and start[at] < time + length:
                while gap < gaps and freed[gap] < at:
                    gap += 1
                if gap < gaps and freed[gap] == at:
                    at += 1
                    continue
                last = block[at]
                if gap < gaps and freed[gap] <= last:
                    last = freed[gap] - 1
                time = end[last]
                at = last + 1
        before = time
        previous, node = _look(link, time, calendars)
        if previous >= 0:
            time = max(time, until[previous])
        while node >= 0 and begin[node] < time + length:
            time = max(time, until[node])
            previous, node = node, follow[node]
        calendars[13][link] = previous
        if time == before:
            return time


@nb.njit(cache=True)
def _look(link, time, calendars):
    """Return the last booking of a link that begins before a time, and the next.

    What was looked at last is near, since chunks are served in the order of their times.
    """
    head, follow, begin, last = calendars[7], calendars[8], calendars[9], calendars[13]
    previous, node = np.int64(-1), head[link]
    if last[link] >= 0 and begin[last[link]] < time:
        previous, node = last[link], follow[last[link]]
    while node >= 0 and begin[node] < time:
        previous, node = node, follow[node]
    return previous, node


@nb.njit(cache=True)
def book(link, start, stop, calendars):
    """Hold a link that is free from one moment to another."""
    head, follow, begin, until, count, tail, last = calendars[7:]
    tail[link] = max(tail[link], stop)
    previous, node = _look(link, start, calendars)
    # All sends on a link are equally long, so that shorter gaps are of no use.
    length = stop - start
    here = previous
    if previous >= 0 and start - until[previous] < length:
        until[previous] = stop
    else:
        here = count[0]
        count[0] += 1
        begin[here], until[here], follow[here] = start, stop, node
        if previous < 0:
            head[link] = here
        else:
            follow[previous] = here
    if node >= 0 and begin[node] - stop < length:
        until[here], follow[here] = until[node], follow[node]
    last[link] = here


@nb.njit(cache=True)
def fit(first, second, time, held, alpha, calendars):
    """Return when a chunk can begin to cross a link and then at once another, if that is given."""
    lag = held[first] + alpha[first]
    while True:
        time = next_free(first, time, held[first], calendars)
        if second < 0:
            return time
        there = next_free(second, time + lag, held[second], calendars)
        if there == time + lag:
            return time
        time = there - lag
