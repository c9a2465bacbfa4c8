"""Bookings: compiled calendars of single links around the images of an orbit schedule.

All links of an orbit are busy at the same times, so these are kept once for each orbit. A link
differs from the others of its orbit by what is *freed*, images that were removed, and by what is
*booked* beside them. Times are whole picoseconds.
"""

import numpy as np

from teccl._kernels import kernel

_NEVER = np.iinfo(np.int64).max


# What calendars are made of. Few arrays with several rows: every call counts the references to all
# arrays that it is given, which took longer than the rest.
(LINKS, FIRST, IMAGES, FREED, BOOKS, LEFT) = range(6)
# By link: the orbit whose images it carries, -1 for none; where what is freed of it begins; where
# its bookings begin, how many there are and for how many there is room; when it is free for good.
(LINE, FREED_FIRST, PLACE, COUNT, ROOM, TAIL) = range(6)
# By image, orbit by orbit, where those of each begin being `FIRST`: its start, its end and the last
# of those that follow one another without a useful gap. `FREED` are positions of images.
(START, END, BLOCK) = range(3)
# By booking, in order for each link. `LEFT` is where there is room for more.
(BEGIN, UNTIL) = range(2)


@kernel
def next_free(link, time, length, calendars):
    """Return the first moment from a time on at which a link is free for so long."""
    orbit = calendars[LINKS][LINE, link]
    while True:
        before = time
        node, stop = _look(link, time, calendars)
        if node > calendars[LINKS][PLACE, link]:
            time = max(time, calendars[BOOKS][UNTIL, node - 1])
        while node < stop and calendars[BOOKS][BEGIN, node] < time + length:
            time = max(time, calendars[BOOKS][UNTIL, node])
            node += 1
        if orbit < 0:
            return time
        at, high, gap, gaps = _images_from(link, orbit, time, calendars)
        while at < high and calendars[IMAGES][START, at] < time + length:
            while gap < gaps and calendars[FREED][gap] < at:
                gap += 1
            if gap < gaps and calendars[FREED][gap] == at:
                at += 1
                continue
            last = calendars[IMAGES][BLOCK, at]
            if gap < gaps and calendars[FREED][gap] <= last:
                last = calendars[FREED][gap] - 1
            time = calendars[IMAGES][END, last]
            at = last + 1
        if time == before:
            return time


@kernel
def _look(link, time, calendars):
    """Return the first booking of a link that begins at a time or later, and where they end."""
    low = calendars[LINKS][PLACE, link]
    stop = high = low + calendars[LINKS][COUNT, link]
    while low < high:
        middle = (low + high) // 2
        if calendars[BOOKS][BEGIN, middle] < time:
            low = middle + 1
        else:
            high = middle
    return low, stop


@kernel
def _images_from(link, orbit, time, calendars):
    """First image that ends after a time, where its orbit's end, and the same of freed ones."""
    low, stop = calendars[FIRST][orbit], calendars[FIRST][orbit + 1]
    high = stop
    while low < high:
        middle = (low + high) // 2
        if calendars[IMAGES][END, middle] <= time:
            low = middle + 1
        else:
            high = middle
    gap, gaps = calendars[LINKS][FREED_FIRST, link], calendars[LINKS][FREED_FIRST, link + 1]
    high = gaps
    while gap < high:
        middle = (gap + high) // 2
        if calendars[FREED][middle] < low:
            gap = middle + 1
        else:
            high = middle
    return low, stop, gap, gaps


@kernel
def book(link, start, stop, length, calendars):
    """Hold a link from one moment to another; what it is booked for inside is held, too.

    All sends on a link are equally long, so that shorter gaps are of no use.
    """
    calendars[LINKS][TAIL, link] = max(calendars[LINKS][TAIL, link], stop)
    node, last = _look(link, start, calendars)
    if node > calendars[LINKS][PLACE, link] and start - calendars[BOOKS][UNTIL, node - 1] < length:
        node -= 1
        stop = max(calendars[BOOKS][UNTIL, node], stop)
    else:
        node, last = _insert(link, node, calendars)
        calendars[BOOKS][BEGIN, node] = start
    after = node + 1
    while after < last and calendars[BOOKS][BEGIN, after] - stop < length:
        stop = max(stop, calendars[BOOKS][UNTIL, after])
        after += 1
    calendars[BOOKS][UNTIL, node] = stop
    merged = after - node - 1
    if merged > 0:
        for other in range(after, last):
            _move(other, other - merged, calendars)
        calendars[LINKS][COUNT, link] -= merged


@kernel
def _move(node, place, calendars):
    """Keep a booking elsewhere."""
    calendars[BOOKS][BEGIN, place] = calendars[BOOKS][BEGIN, node]
    calendars[BOOKS][UNTIL, place] = calendars[BOOKS][UNTIL, node]


@kernel
def _insert(link, node, calendars):
    """Make room for a booking before another; return where it is, and where a link's end."""
    first, count = calendars[LINKS][PLACE, link], calendars[LINKS][COUNT, link]
    if count == calendars[LINKS][ROOM, link]:
        moved = calendars[LEFT][0] - first
        for other in range(first, first + count):
            _move(other, other + moved, calendars)
        calendars[LINKS][ROOM, link] = 2 * count + 4
        calendars[LEFT][0] += 2 * count + 4
        calendars[LINKS][PLACE, link] = first = first + moved
        node += moved
    for other in range(first + count, node, -1):
        _move(other - 1, other, calendars)
    calendars[LINKS][COUNT, link] = count + 1
    return node, first + count + 1


@kernel
def fit(first, second, time, lengths, calendars):
    """Return when a chunk can begin to cross a link and then at once another, if that is given."""
    held = lengths[0, first]
    time = next_free(first, time, held, calendars)
    if second >= 0:
        lag, takes = held + lengths[1, first], lengths[0, second]
        there = next_free(second, time + lag, takes, calendars)
        while there != time + lag:
            time = next_free(first, there - lag, held, calendars)
            if time != there - lag:
                there = next_free(second, time + lag, takes, calendars)
    return time
