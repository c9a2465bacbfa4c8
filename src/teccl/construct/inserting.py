"""Compiled insertion: a chunk's tree grown into a timetable, nearest destination first.

From all nodes that hold the chunk a time-dependent Dijkstra search finds the destination that
can have it first. The way there is booked, its nodes hold the chunk from then on, and the search
goes on. What was found before a booking may be outdated by it, but only be too early: it is
looked at again when its turn comes.
"""

import numpy as np

from teccl._kernels import inner, kernel, maker
from teccl.construct.labels import (
    BLINK,
    FAN_INTO,
    FAN_LEAD,
    FAN_OUT,
    HOLDER,
    PASSED,
    UNSEEN,
    begin_job,
    clean,
    close_node,
    draw,
    forget,
    mark_passage,
    open_node,
)
from teccl.construct.limited import book_waits, insert_limited
from teccl.construct.params import BOOK_STEPS
from teccl.construct.timetable import NEVER, book, earliest, is_free, length_from, room

# Elementary steps of looking at a route.
_TRY = 4
# What a picosecond after the end is worth, beside those before it.
_LATE = 1000


@inner
def _reach(nodes, node, key, arrival, spent, route, begin, head, shared, stamp):
    """Note a better way to a node."""
    label = nodes[node]
    label.key = key
    label.arrival = arrival
    label.spent = spent
    label.via = route
    label.begin = begin
    label.head = head
    label.shared = shared
    label.stamp = stamp
    open_node(nodes, node)


@inner
def _lateness(net, arrival):
    """What a way costs that comes after everything is due: more than any price."""
    return max(np.int64(0), arrival - net.due) * _LATE


@inner
def _try_route(net, table, nodes, size, route, goal, stamp, work):
    """Offer the node at the end of a route the way over it, a passage of its own."""
    way = net.route[size, route]
    spent = way.price
    if nodes[way.src].state != HOLDER:
        spent += nodes[way.src].spent
    ahead = net.distance[size, way.dst, goal] if goal >= 0 else 0
    least = nodes[way.src].arrival + way.length + spent + ahead
    work[0] += _TRY
    if least >= nodes[way.dst].key or (goal >= 0 and least >= nodes[goal].key):
        return
    begin = earliest(net, table, route, size, nodes[way.src].arrival, work)
    arrival = begin + length_from(net, route, size, begin)
    key = arrival + spent + ahead + _lateness(net, arrival + ahead)
    if key < nodes[way.dst].key:
        _reach(nodes, way.dst, key, arrival, spent, route, begin, -1, 0, stamp)


@inner
def common_start(net, one, other):
    """Number of links with which two routes begin alike."""
    first, last = net.route[0, one].hop, net.route[0, one + 1].hop
    begin, end = net.route[0, other].hop, net.route[0, other + 1].hop
    count = 0
    while (
        first + count < last
        and begin + count < end
        and net.hop[first + count].link == net.hop[begin + count].link
    ):
        count += 1
    return count


@inner
def _common_links(net, labels, route):
    """Links that a route shares with the passage over its first one; 0 if it may not join.

    A way that has parted from the passage must not meet it again in another switch.
    """
    first, last = net.route[0, route].hop, net.route[0, route + 1].hop
    entered = labels.entered[net.hop[first].link]
    common = 0
    while first + common < last:
        hop = net.hop[first + common]
        if entered[hop.end] != hop.link + 1:
            break
        common += 1
    for k in range(first + common, last):
        if entered[net.hop[k].end] != 0:
            return 0
    return common


@inner
def _try_join(net, table, labels, rows, job, size, route, goal, stamp, work):
    """Offer the node at the end of a route a branch of the passage over its first link."""
    way, nodes = net.route[size, route], labels.node
    head = labels.used[net.hop[way.hop].link]
    begin = rows.row[job, head].start
    ahead = net.distance[size, way.dst, goal] if goal >= 0 else 0
    work[0] += _TRY
    if begin + way.length + ahead >= nodes[way.dst].key:
        return
    shared = _common_links(net, labels, route)
    hops = net.route[size, route + 1].hop - way.hop
    if shared == 0 or shared == hops:
        return
    # A circuit keeps the rate it has: one that would be slower, or faster, goes on its own.
    first = net.route[size, rows.row[job, head].route].entry
    if net.entry[size, first].hold != net.entry[size, way.entry].hold:
        return
    spent = way.price * (hops - shared) // hops
    arrival = begin + length_from(net, route, size, begin)
    key = arrival + spent + ahead + _lateness(net, arrival + ahead)
    if key < nodes[way.dst].key and is_free(net, table, route, shared, size, begin, work):
        _reach(nodes, way.dst, key, arrival, spent, route, begin, head, shared, stamp)


@inner
def _leave(net, table, nodes, size, node, goal, stamp, blink, random, work):
    """Offer everyone whom a node reaches the way over it; straight to the goal first."""
    for turn in range(2 if goal >= 0 else 1):
        for i in range(net.fan_start[FAN_OUT, node], net.fan_start[FAN_OUT, node + 1]):
            route = net.fan[i]
            end = net.route[size, route].dst
            if goal >= 0 and (end == goal) != (turn == 0):
                continue
            if nodes[end].state == HOLDER or (blink and draw(random, BLINK) == 0):
                continue
            _try_route(net, table, nodes, size, route, goal, stamp, work)


@inner
def _look_again(net, table, labels, rows, job, size, node, goal, stamp, work):
    """Find the best way to a node once more, from all that hold or pass the chunk."""
    nodes = labels.node
    nodes[node].key = NEVER
    for i in range(net.fan_start[FAN_INTO, node], net.fan_start[FAN_INTO, node + 1]):
        route = net.fan[i]
        state = nodes[net.route[size, route].src].state
        if state in (HOLDER, PASSED):
            _try_route(net, table, nodes, size, route, goal, stamp, work)
        if labels.used[net.hop[net.route[size, route].hop].link] >= 0:
            _try_join(net, table, labels, rows, job, size, route, goal, stamp, work)
    if nodes[node].key == NEVER:
        close_node(nodes, node, UNSEEN)


@inner
def _is_current(net, table, labels, size, node, stamp, work):
    """Whether a node's way is still as it was found."""
    label = labels.node[node]
    if label.stamp == stamp:
        return True
    # The passage that a branch joins may have grown another one that is in its way.
    if label.head >= 0 and _common_links(net, labels, label.via) != label.shared:
        return False
    if not is_free(net, table, label.via, label.shared, size, label.begin, work):
        return False
    label.stamp = stamp
    return True


@inner
def _book_way(net, table, labels, rows, job, size, way, count):
    """Book the way to a node, first route first; its nodes hold the chunk now."""
    end = rows.end[job]
    for k in range(count - 1, -1, -1):
        label, row = labels.node[way[k]], rows.row[job, end.count]
        row.route = label.via
        row.start = label.begin
        row.head = end.count if label.head < 0 else label.head
        row.shared = label.shared
        book(net, table, label.via, label.shared, size, label.begin, job, True)
        mark_passage(net, labels, label.via, row.head)
        end.count += 1
        end.finish = max(end.finish, label.arrival)
        close_node(labels.node, way[k], HOLDER)
        label.key = 0


@inner
def _go_on(net, table, labels, rows, job, size, first, goal, blink, random, work):
    """Search on from the rows from `first` on: from their ends, and from their passages."""
    stamp = rows.end[job].count
    for row in range(first, stamp):
        route = rows.row[job, row].route
        end = net.route[size, route].dst
        _leave(net, table, labels.node, size, end, goal, stamp, blink, random, work)
        link = net.hop[net.route[size, route].hop].link
        if labels.used[link] >= 0:
            for i in range(net.fan_start[FAN_LEAD, link], net.fan_start[FAN_LEAD, link + 1]):
                other = net.fan[i]
                if labels.node[net.route[size, other].dst].state != HOLDER:
                    _try_join(net, table, labels, rows, job, size, other, goal, stamp, work)


@inner
def _from_holders(net, jobs, table, labels, rows, job, goal, blink, random, work):
    """Begin the search at all that hold the chunk."""
    size, stamp = jobs.job[job].size_index, rows.end[job].count
    for i in range(jobs.job[job].source, jobs.job[job + 1].source):
        node = jobs.source[i].node
        _leave(net, table, labels.node, size, node, goal, stamp, blink, random, work)
    _go_on(net, table, labels, rows, job, size, np.int64(0), goal, blink, random, work)


@inner
def _way_to(net, table, labels, size, node, way, stamp, work):
    """List the nodes from one back to the first that no holder reaches; returns how many.

    None if something on the way has become later since it was found.
    """
    nodes, count = labels.node, 0
    while nodes[node].state != HOLDER:
        way[count] = node
        if not _is_current(net, table, labels, size, node, stamp, work):
            return 0
        # A relay may have been reached anew since, and then later.
        if count > 0 and nodes[node].arrival > nodes[way[count - 1]].begin:
            return 0
        count += 1
        if nodes[node].head >= 0:
            break
        node = net.route[size, nodes[node].via].src
    return count


@maker
def insert(net, jobs, table, labels, rows, job, blink, since, random, work):
    """Insert what is left of a job; whether all who want it are served.

    What a job has in `rows` already is booked and stays. With `blink` some ways are overlooked at
    random. Nothing starts before `since`.
    """
    if net.buffer >= 0:
        return insert_limited(net, jobs, table, labels, rows, job, blink, since, random, work)
    size, nodes = jobs.job[job].size_index, labels.node
    left = begin_job(net, jobs, labels, rows, job, since)
    # With one destination the search aims at it.
    goal = np.int64(-1)
    if left == 1:
        for i in range(jobs.job[job].want, jobs.job[job + 1].want):
            if nodes[jobs.want[i]].wanted:
                goal = jobs.want[i]
    way = np.empty(len(nodes), dtype=np.int64)
    is_again = left > 0
    while left > 0:
        stamp = rows.end[job].count
        if is_again:
            forget(nodes)
            _from_holders(net, jobs, table, labels, rows, job, goal, blink, random, work)
            is_again = False
        if nodes[len(nodes) - 1].heap == 0:
            # What was overlooked may be the only way.
            if not blink:
                break
            blink, is_again = False, True
            continue
        node = nodes[0].heap
        if not _is_current(net, table, labels, size, node, stamp, work):
            _look_again(net, table, labels, rows, job, size, node, goal, stamp, work)
        elif not nodes[node].wanted:
            close_node(nodes, node, PASSED)
            _leave(net, table, nodes, size, node, goal, stamp, blink, random, work)
        else:
            count = _way_to(net, table, labels, size, node, way, stamp, work)
            is_again = count == 0
            if is_again:
                continue
            if stamp + count > rows.row.shape[1]:
                break
            _book_way(net, table, labels, rows, job, size, way, count)
            work[0] += BOOK_STEPS * count
            nodes[node].wanted = 0
            left -= 1
            if left:
                _go_on(net, table, labels, rows, job, size, stamp, goal, blink, random, work)
    clean(net, labels, rows, job)
    return left == 0


@inner
def book_job(net, jobs, table, rows, job, is_new):
    """Book all that a job has in its rows, or cancel that."""
    size = jobs.job[job].size_index
    for i in range(rows.end[job].count):
        row = rows.row[job, i]
        book(net, table, row.route, row.shared, size, row.start, job, is_new)
    if net.buffer > 0:
        book_waits(net, table, rows, job, size, is_new)


@inner
def remove(net, jobs, table, rows, job):
    """Cancel all bookings of a job and forget its rows."""
    book_job(net, jobs, table, rows, job, False)
    rows.end[job].count = 0
    rows.end[job].finish = 0


@kernel
def insert_all(
    net, jobs, table, labels, rows, order, first, more, is_alone, alone, random, work, until
):
    """Insert jobs in an order from the first on; returns where it stopped for lack of room.

    Or because so much work was done. The negative of that, less one, where a job cannot be served,
    or has no room for the routes it takes. Each job adds up to `more` bookings to a resource, waits
    in a node among them. With `is_alone` each is taken out again at once, and `alone` says when it
    ended.
    """
    left = 0
    # Typed, because numba compiles a function anew for each constant that it is given.
    blink, begin = np.bool_(False), np.int64(0)
    for k in range(first, len(order)):
        job = order[k]
        if left < more:
            left = room(table)
        if left < more or work[0] >= until:
            return k
        left -= more
        is_served = insert(net, jobs, table, labels, rows, job, blink, begin, random, work)
        if net.buffer >= 0 and not is_served:
            # Whoever has the chunk could not keep it until others were in its way no more.
            remove(net, jobs, table, rows, job)
            last = begin
            for other in order[:k]:
                last = max(last, rows.end[other].finish)
            is_served = insert(net, jobs, table, labels, rows, job, blink, last, random, work)
        if is_alone:
            alone[job] = rows.end[job].finish
            remove(net, jobs, table, rows, job)
        if not is_served:
            return -k - 1
    return len(order)


@kernel
def book_rows(net, jobs, table, rows, job, planned, work):
    """Book rows of a plan, sorted by job and start; whether all their times are free."""
    for i in range(len(job)):
        j = job[i]
        size, route, start, shared = (
            jobs.job[j].size_index,
            planned[i, 1],
            planned[i, 2],
            planned[i, 4],
        )
        if not is_free(net, table, route, shared, size, start, work):
            return False
        book(net, table, route, shared, size, start, j, True)
        end = rows.end[j]
        row = rows.row[j, end.count]
        row.route = route
        row.start = start
        row.shared = shared
        # Rows of one passage follow each other, its own first.
        is_branch = end.count > 0 and shared > 0 and planned[i, 3] == planned[i - 1, 3]
        row.head = rows.row[j, end.count - 1].head if is_branch else end.count
        end.count += 1
        end.finish = max(end.finish, start + length_from(net, route, size, start))
        if net.buffer > 0 and (i + 1 == len(job) or job[i + 1] != j):
            book_waits(net, table, rows, j, size, True)
    return True
