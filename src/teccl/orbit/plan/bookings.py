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
        free for good.
    """
    line, first, start, end, block, freed_first, freed, head, follow, begin, until, _, _ = calendars
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
        before, node = time, head[link]
        while node >= 0 and begin[node] < time + length:
            time = max(time, until[node])
            node = follow[node]
        if time == before:
            return time


@nb.njit(cache=True)
def book(link, start, stop, calendars):
    """Hold a link that is free from one moment to another."""
    head, follow, begin, until, count, tail = calendars[7:]
    tail[link] = max(tail[link], stop)
    previous, node = -1, head[link]
    while node >= 0 and begin[node] < start:
        previous, node = node, follow[node]
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
