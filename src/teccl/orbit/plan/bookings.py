"""Bookings: compiled calendars of single links around the images of an orbit schedule.

All links of an orbit are busy at the same times, so these are kept once for each orbit. A link
differs from the others of its orbit by what is *freed*, images that were removed, and by what is
*booked* beside them. Times are whole picoseconds.
"""

import numpy as np

from teccl._kernels import inner

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


@inner
def next_free(link, time, length, calendars):
    """Return the first moment from a time on at which a link is free for so long."""
    return _free_from(link, time, length, _cursor(link, time, calendars), calendars)[0]


@inner
def _cursor(link, time, calendars):
    """First booking, image and freed image of a link that may end after a time."""
    images, freed, table = calendars[IMAGES], calendars[FREED], calendars[LINKS]
    node, stop = table[PLACE, link], table[PLACE, link] + table[COUNT, link]
    node = _halved(calendars[BOOKS][UNTIL], node, stop, time)
    orbit = table[LINE, link]
    if orbit < 0:
        return node, np.int64(0), np.int64(0)
    first = calendars[FIRST]
    at = _halved(images[END], first[orbit], first[orbit + 1], time)
    gap = _halved(freed, table[FREED_FIRST, link], table[FREED_FIRST, link + 1], at - 1)
    return node, at, gap


@inner
def _free_from(link, time, length, cursor, calendars):
    """Return when a link is free for so long from a time on, and the cursor there.

    Cursors only move on, so that looking farther on does not begin with a search.
    """
    node, at, gap = cursor
    books, images, freed, table = (
        calendars[BOOKS],
        calendars[IMAGES],
        calendars[FREED],
        calendars[LINKS],
    )
    stop, orbit = table[PLACE, link] + table[COUNT, link], table[LINE, link]
    high, gaps = at, gap
    if orbit >= 0:
        high, gaps = calendars[FIRST][orbit + 1], table[FREED_FIRST, link + 1]
    while True:
        before = time
        node = _near(books[UNTIL], node, stop, time)
        while node < stop and books[BEGIN, node] < time + length:
            time = books[UNTIL, node]
            node += 1
        at = _near(images[END], at, high, time)
        gap = _near(freed, gap, gaps, at - 1)
        while at < high and images[START, at] < time + length:
            while gap < gaps and freed[gap] < at:
                gap += 1
            if gap < gaps and freed[gap] == at:
                at += 1
                continue
            last = images[BLOCK, at]
            if gap < gaps and freed[gap] <= last:
                last = freed[gap] - 1
            time = images[END, last]
            at = last + 1
        if time == before:
            return time, (node, at, gap)


@inner
def _near(values, low, high, most):
    """First place between two at which rising values exceed a number, near ones tried first."""
    reach = 1
    while low + reach <= high and values[low + reach - 1] <= most:
        low += reach
        reach *= 2
    return _halved(values, low, min(high, low + reach - 1), most)


@inner
def _halved(values, low, high, most):
    """First place between two at which rising values exceed a number."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= most:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def book(link, start, stop, length, calendars):
    """Hold a link from one moment to another; what it is booked for inside is held, too.

    All sends on a link are equally long, so that shorter gaps are of no use.
    """
    calendars[LINKS][TAIL, link] = max(calendars[LINKS][TAIL, link], stop)
    node = calendars[LINKS][PLACE, link]
    last = node + calendars[LINKS][COUNT, link]
    node = _halved(calendars[BOOKS][BEGIN], node, last, start - 1)
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


@inner
def _move(node, place, calendars):
    """Keep a booking elsewhere."""
    calendars[BOOKS][BEGIN, place] = calendars[BOOKS][BEGIN, node]
    calendars[BOOKS][UNTIL, place] = calendars[BOOKS][UNTIL, node]


@inner
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


@inner
def fit(first, second, time, most, lengths, calendars):
    """Return when a chunk can begin to cross a link and then at once another, if that is given.

    Later than `most` is of no use: some later moment is returned then.
    """
    held = lengths[0, first]
    near, far = _cursor(first, time, calendars), (np.int64(0), np.int64(0), np.int64(0))
    time, near = _free_from(first, time, held, near, calendars)
    if second >= 0:
        lag, takes = held + lengths[1, first], lengths[0, second]
        far = _cursor(second, time + lag, calendars)
        there, far = _free_from(second, time + lag, takes, far, calendars)
        while there != time + lag and there - lag <= most:
            time, near = _free_from(first, there - lag, held, near, calendars)
            if time != there - lag:
                there, far = _free_from(second, time + lag, takes, far, calendars)
        time = there - lag
    return time
