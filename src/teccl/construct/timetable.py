"""Compiled timetables: what every link and shared capacity has booked, and when a route is free.

Bookings come and go. An exclusive resource keeps its busy intervals in order, those that touch
merged; a counted one, which carries several transfers at once, keeps the load from each moment on.
Both also list who begins when, so that neighbours in time are found.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl._kernels import inner, kernel

IntArray = npt.NDArray[np.int64]
Records = npt.NDArray[np.void]

# Elementary steps of a look at a calendar, which is a search among its bookings.
LOOK = 8
LONG_AGO = -(2**62)
NEVER = 2**62


def record(*names: str) -> np.dtype[np.void]:
    """Return the type of a table's rows, whose columns are whole numbers."""
    return np.dtype((np.record, [(name, np.int64) for name in names]))


# Columns of the tables. Tables of records, not an array for each column, because the time that
# kernels take to compile grows with the number of arrays that they pass on.
ROUTE = record("src", "dst", "entry", "hop", "length", "price")
ENTRY = record("res", "load", "offset", "hold")
HOP = record("link", "entry", "end")
LINK = record("step", "alpha", "overhead")
STEP = record("time", "rate")
BUSY = record("begin", "end")
WHO = record("begin", "job")
COUNT = record("busy", "who")


class NetworkTables(NamedTuple):
    """Routes and what they hold; nothing in it changes but prices.

    Parameters
    ----------
    route
        Per chunk size and route: the nodes at its ends, its first entry and hop, its length, and
        what it costs beside time. One more marks the end.
    entry
        Per chunk size, what routes hold: which resource, how much of it, from when, for how long.
    hop
        Links of routes: which, its first entry, the node it leads to. One more marks the end.
    limit
        What each resource carries at a time; more than one makes it a counted one.
    fan_start, fan
        Three CSR lists of routes: by the node they leave, by the node they enter, and by the link
        into a switch that they begin with, where passages may join.
    distance
        Per size, shortest time from node to node if nothing is in the way.
    link, step, units
        Where rates change over time: each link's first step and latency, the moment and the rate
        of each step, and the chunk sizes in the same unit. Entries are timed hop by hop then.
        Empty otherwise.
    buffer
        Received chunks that may wait in a GPU to be passed on, -1 for any number.
    single
        Whether no node may receive a chunk twice.
    due
        When everything should have come; ways that are later are dearer than any that are not.
    """

    route: Records
    entry: Records
    hop: Records
    limit: IntArray
    fan_start: IntArray
    fan: IntArray
    distance: IntArray
    link: Records
    step: Records
    units: IntArray
    buffer: int
    single: bool
    due: int


class Timetable(NamedTuple):
    """Bookings of all resources, a row each; where buffers are limited, then one of each node.

    Parameters
    ----------
    busy
        Busy intervals of an exclusive resource; moments and loads from then on of a counted one.
    who
        Every booking's begin, in order, and its job.
    count
        How many of both there are.
    """

    busy: Records
    who: Records
    count: Records


def empty_timetable(num_resources: int, room: int) -> Timetable:
    """Return a timetable without bookings that has room for so many on each resource."""
    return Timetable(
        busy=np.zeros((num_resources, 2 * room + 2), dtype=BUSY),
        who=np.zeros((num_resources, room), dtype=WHO),
        count=np.zeros(num_resources, dtype=COUNT),
    )


def enlarged(table: Timetable) -> Timetable:
    """Return the same timetable with twice the room."""
    larger = empty_timetable(len(table.count), 2 * table.who.shape[1])
    for old, new in zip(table, larger, strict=True):
        new[tuple(slice(0, n) for n in old.shape)] = old
    return larger


@inner
def _first_end_above(busy, high, limit):
    """Index of the first of so many ascending ends that is above a limit."""
    low = 0
    while low < high:
        middle = (low + high) // 2
        if busy[middle].end > limit:
            high = middle
        else:
            low = middle + 1
    return low


@inner
def first_begin_above(busy, high, limit):
    """Index of the first of so many ascending begins that is above a limit."""
    low = 0
    while low < high:
        middle = (low + high) // 2
        if busy[middle].begin > limit:
            high = middle
        else:
            low = middle + 1
    return low


@inner
def _first_free(busy, count, begin, hold, room, is_counted, work):
    """Return the earliest time from `begin` on from which a resource has room for long enough."""
    if is_counted:
        i = max(0, first_begin_above(busy, count, begin) - 1)
        while i < count and busy[i].begin < begin + hold:
            work[0] += 1
            if busy[i].end > room:
                begin = max(begin, busy[i + 1].begin)
            i += 1
        return begin
    if count == 0 or begin >= busy[count - 1].end:
        return begin
    i = _first_end_above(busy, count, begin)
    while i < count and busy[i].begin < begin + hold:
        work[0] += 1
        begin = busy[i].end
        i += 1
    return begin


@inner
def transmission(net, link, size, begin):
    """Time that a chunk takes on a link whose rate changes, from a moment on, overhead first."""
    left = net.units[size]
    i, last = net.link[link].step, net.link[link + 1].step - 1
    now = begin + net.link[link].overhead
    while i < last and net.step[i + 1].time <= now:
        i += 1
    while i < last and left > net.step[i].rate * (net.step[i + 1].time - now):
        left -= net.step[i].rate * (net.step[i + 1].time - now)
        now = net.step[i + 1].time
        i += 1
    return now - begin - (-left // net.step[i].rate)


@inner
def _moment(net, route, hop, size, start):
    """When a hop of a route begins, rates as they are then; the one after the last is arrival."""
    now = start
    for before in range(net.route[size, route].hop, hop):
        link = net.hop[before].link
        now += transmission(net, link, size, now) + net.link[link].alpha
    return now


@inner
def length_from(net, route, size, start):
    """Time from the start of a route to the arrival."""
    if len(net.step) == 0:
        return net.route[size, route].length
    return _moment(net, route, net.route[size, route + 1].hop, size, start) - start


@inner
def _span(net, route, hop, i, size, start):
    """From when and for how long a route that starts at a time holds an entry of a hop."""
    if len(net.step) == 0:
        return start + net.entry[size, i].offset, net.entry[size, i].hold
    begin = _moment(net, route, hop, size, start)
    return begin, transmission(net, net.hop[hop].link, size, begin)


@inner
def _free_from(net, table, i, size, begin, hold, work):
    """Return from when on, not before `begin`, what an entry takes is free for long enough."""
    work[0] += LOOK
    entry = net.entry[size, i]
    limit = net.limit[entry.res]
    busy, count = table.busy[entry.res], table.count[entry.res].busy
    return _first_free(busy, count, begin, hold, limit - entry.load, limit > 1, work)


@inner
def _earliest_profiled(net, table, route, size, time, work):
    """`earliest` where rates change: hops follow each other, each at its own time."""
    start = time
    hop = net.route[size, route].hop
    while hop < net.route[size, route + 1].hop:
        now = _moment(net, route, hop, size, start)
        free = now
        for i in range(net.hop[hop].entry, net.hop[hop + 1].entry):
            hold = transmission(net, net.hop[hop].link, size, free)
            free = _free_from(net, table, i, size, free, hold, work)
        hop += 1
        if free > now:
            # The least start from which this hop begins no earlier; then all are looked at again.
            low, high = start + 1, free
            hop = net.route[size, route].hop
            blocked = hop
            while net.hop[blocked + 1].entry <= i:
                blocked += 1
            while low < high:
                middle = (low + high) // 2
                if _moment(net, route, blocked, size, middle) >= free:
                    high = middle
                else:
                    low = middle + 1
            start = low
    return start


@inner
def earliest(net, table, route, size, time, work):
    """Return the least start from a time on at which all that a route holds is free."""
    if len(net.step):
        return _earliest_profiled(net, table, route, size, time, work)
    first, last = net.route[size, route].entry, net.route[size, route + 1].entry
    now, agreed, i = time, 0, first
    while agreed < last - first:
        begin = now + net.entry[size, i].offset
        free = _free_from(net, table, i, size, begin, net.entry[size, i].hold, work)
        agreed += 1
        if free > begin:
            now += free - begin
            agreed = 1
        i += 1
        if i == last:
            i = first
    return now


@inner
def is_free(net, table, route, shared, size, start, work):
    """Whether a route is free at a start, its first `shared` links aside."""
    for hop in range(net.route[size, route].hop + shared, net.route[size, route + 1].hop):
        for i in range(net.hop[hop].entry, net.hop[hop + 1].entry):
            begin, hold = _span(net, route, hop, i, size, start)
            if _free_from(net, table, i, size, begin, hold, work) > begin:
                return False
    return True


@inner
def _insert_at(busy, count, place, begin, end):
    for k in range(count, place, -1):
        busy[k].begin = busy[k - 1].begin
        busy[k].end = busy[k - 1].end
    busy[place].begin = begin
    busy[place].end = end


@inner
def _delete_at(busy, count, place):
    for k in range(place, count - 1):
        busy[k].begin = busy[k + 1].begin
        busy[k].end = busy[k + 1].end


@inner
def add_load(busy, count, begin, end, load):
    """Change what a counted resource carries between two moments; returns how many there are."""
    if count == 0:
        busy[0].begin, busy[0].end = LONG_AGO, 0
        count = 1
    for time in (begin, end):
        i = first_begin_above(busy, count, time - 1)
        if i == count or busy[i].begin != time:
            _insert_at(busy, count, i, time, busy[i - 1].end)
            count += 1
    first = first_begin_above(busy, count, begin - 1)
    last = first_begin_above(busy, count, end - 1)
    for i in range(first, last):
        busy[i].end += load
    for i in (last, first):
        if busy[i].end == busy[i - 1].end:
            _delete_at(busy, count, i)
            count -= 1
    return count


@inner
def _occupy(busy, count, begin, end):
    """Add a busy interval, joined with those it touches; returns how many there are."""
    i = _first_end_above(busy, count, begin - 1)
    joins_before = i < count and busy[i].end == begin
    after = i + 1 if joins_before else i
    joins_after = after < count and busy[after].begin == end
    if joins_before and joins_after:
        busy[i].end = busy[after].end
        _delete_at(busy, count, after)
        return count - 1
    if joins_before:
        busy[i].end = end
    elif joins_after:
        busy[after].begin = begin
    else:
        _insert_at(busy, count, i, begin, end)
        return count + 1
    return count


@inner
def _vacate(busy, count, begin, end):
    """Take a busy time out of the interval it lies in; returns how many there are."""
    i = _first_end_above(busy, count, begin)
    stays_before, stays_after = busy[i].begin < begin, busy[i].end > end
    if stays_before and stays_after:
        _insert_at(busy, count, i + 1, end, busy[i].end)
        busy[i].end = begin
        return count + 1
    if stays_before:
        busy[i].end = begin
    elif stays_after:
        busy[i].begin = end
    else:
        _delete_at(busy, count, i)
        return count - 1
    return count


@inner
def _note(who, count, begin, job, is_new):
    """List a booking, or strike it off."""
    place = first_begin_above(who, count, begin - 1)
    if is_new:
        for k in range(count, place, -1):
            who[k].begin = who[k - 1].begin
            who[k].job = who[k - 1].job
        who[place].begin = begin
        who[place].job = job
        return
    while who[place].job != job:
        place += 1
    for k in range(place, count - 1):
        who[k].begin = who[k + 1].begin
        who[k].job = who[k + 1].job


@inner
def book(net, table, route, shared, size, start, job, is_new):
    """Book a route from a start on, its first `shared` links aside, or cancel that."""
    for hop in range(net.route[size, route].hop + shared, net.route[size, route + 1].hop):
        for i in range(net.hop[hop].entry, net.hop[hop + 1].entry):
            r, load = net.entry[size, i].res, net.entry[size, i].load
            begin, hold = _span(net, route, hop, i, size, start)
            busy, count = table.busy[r], table.count[r].busy
            if net.limit[r] > 1:
                count = add_load(busy, count, begin, begin + hold, load if is_new else -load)
            elif is_new:
                count = _occupy(busy, count, begin, begin + hold)
            else:
                count = _vacate(busy, count, begin, begin + hold)
            table.count[r].busy = count
            _note(table.who[r], table.count[r].who, begin, job, is_new)
            table.count[r].who += 1 if is_new else -1


@inner
def room(table):
    """Number of bookings that may still be added to each resource.

    Nobody lists who waits in a node, but each who does takes two moments at most.
    """
    most = 0
    for r in range(len(table.count)):
        most = max(most, table.count[r].who, (table.count[r].busy + 1) // 2)
    return table.who.shape[1] - most


@kernel
def all_distances(src, dst, length, num, far):
    """Return the shortest time from each node to each other, `far` where there is no way."""
    distance = np.full((num, num), far, dtype=np.int64)
    for route in range(len(src)):
        a, b = src[route], dst[route]
        distance[a, b] = min(distance[a, b], length[route])
    for node in range(num):
        distance[node, node] = 0
    for middle in range(num):
        for a in range(num):
            if distance[a, middle] < far:
                for b in range(num):
                    way = distance[a, middle] + distance[middle, b]
                    if way < distance[a, b]:
                        distance[a, b] = way
    return distance
