"""Compiled insertion where received chunks must not wait in GPUs, or only so many at a time.

A source sends its own chunk whenever it likes, so a way from a source is one piece that may begin
later: where a relay has no room for the chunk until the next link is free, the whole way moves. A
GPU that has the chunk already passes it on as long as it may keep it. It may also be passed again,
without a pause, by a further copy from the source.
"""

from teccl._kernels import inner
from teccl.construct.labels import (
    BLINK,
    FAN_OUT,
    HOLDER,
    PASSED,
    begin_job,
    clean,
    close_node,
    draw,
    forget,
    hold,
    open_node,
)
from teccl.construct.timetable import (
    LOOK,
    NEVER,
    add_load,
    book,
    earliest,
    first_begin_above,
    length_from,
)


@inner
def _has_place(busy, count, begin, end, limit, work):
    """Whether a buffer has room for one more chunk between two moments."""
    i = max(0, first_begin_above(busy, count, begin) - 1)
    while i < count and busy[i].begin < end:
        work[0] += 1
        if busy[i].end >= limit:
            return False
        i += 1
    return limit > 0


@inner
def book_waits(net, table, rows, job, size, is_new):
    """Book how long each arrival of a job waits to be passed on, or cancel that."""
    count = rows.end[job].count
    for i in range(count):
        node = net.route[size, rows.row[job, i].route].dst
        start = rows.row[job, i].start
        arrival = start + length_from(net, rows.row[job, i].route, size, start)
        # It waits until it is last passed on before the chunk arrives there again.
        again, until = NEVER, arrival
        for k in range(count):
            other = rows.row[job, k]
            if net.route[size, other.route].dst == node:
                time = other.start + length_from(net, other.route, size, other.start)
                if time > arrival or (time == arrival and k > i):
                    again = min(again, time)
        for k in range(count):
            other = rows.row[job, k]
            if net.route[size, other.route].src == node and other.start < again:
                until = max(until, other.start)
        if until > arrival:
            r = len(net.limit) + node
            load = 1 if is_new else -1
            table.count[r].busy = add_load(table.busy[r], table.count[r].busy, arrival, until, load)


@inner
def _time_way(net, table, nodes, path, count, size, time, is_movable, work):
    """Time the routes of a way, each as soon as it may start; returns the arrival or `NEVER`."""
    limit = net.buffer
    start = time
    k, now = 0, start
    while k < count:
        route = path[k].route
        node = net.route[size, route].src
        begin = earliest(net, table, route, size, now, work)
        if k == 0 and is_movable:
            start = begin
        elif begin > now:
            since = max(now, nodes[node].until) if k == 0 else now
            r = len(net.limit) + node
            # Where the chunk has been before it is passed through without a pause.
            is_first = k == 0 or nodes[node].state != HOLDER
            if begin > since and not (
                is_first
                and _has_place(table.busy[r], table.count[r].busy, since, begin, limit, work)
            ):
                if not is_movable:
                    return NEVER
                start += begin - now
                k, now = 0, start
                continue
        path[k].begin = begin
        now = begin + length_from(net, route, size, begin)
        k += 1
    return now


@inner
def _extend(net, table, labels, size, at, route, is_movable, goal, work):
    """Offer the node at the end of a route the way to a label's node and on over the route."""
    nodes, num = labels.node, (len(labels.node) - 1) // 2
    way = net.route[size, route]
    end = way.dst
    if nodes[end].state == HOLDER:
        if nodes[end].until == NEVER or net.single:
            return
        end += num
    ahead = net.distance[size, way.dst, goal] if goal >= 0 else 0
    spent = nodes[at].spent + way.price
    work[0] += 2
    least = nodes[at].arrival + way.length + spent + ahead
    if least >= nodes[end].key or (goal >= 0 and least >= nodes[goal].key):
        return
    count = nodes[at].stamp
    if count + 1 > labels.path.shape[1]:
        return
    scratch = labels.path[len(nodes) - 1]
    for k in range(count):
        scratch[k].route = labels.path[at, k].route
    scratch[count].route = route
    first = nodes[at].head
    time = nodes[first].arrival
    if count > 0 and is_movable:
        time = labels.path[at, 0].begin
    # The whole way is timed anew.
    work[0] += LOOK * count
    arrival = _time_way(net, table, nodes, scratch, count + 1, size, time, is_movable, work)
    key = arrival + spent + ahead
    if arrival == NEVER or key >= nodes[end].key:
        return
    nodes[end].key = key
    nodes[end].arrival = arrival
    nodes[end].spent = spent
    nodes[end].stamp = count + 1
    nodes[end].head = first
    for k in range(count + 1):
        labels.path[end, k].route = scratch[k].route
        labels.path[end, k].begin = scratch[k].begin
    open_node(nodes, end)


@inner
def _search(net, table, labels, size, goal, blink, random, work):
    """Find the way to the goal, or with none to the nearest node that wants the chunk, or -1."""
    nodes, num = labels.node, (len(labels.node) - 1) // 2
    forget(nodes)
    for node in range(num):
        if nodes[node].state == HOLDER:
            nodes[node].spent = 0
            nodes[node].stamp = 0
            nodes[node].head = node
    holder, at = 0, -1
    while True:
        # All holders first, then open nodes, the least key first.
        while holder < num and nodes[holder].state != HOLDER:
            holder += 1
        if holder < num:
            at = holder
            holder += 1
        elif nodes[len(nodes) - 1].heap == 0:
            return -1
        else:
            at = nodes[0].heap
            if at < num and (at == goal or (goal < 0 and nodes[at].wanted)):
                return at
            close_node(nodes, at, PASSED)
        is_movable = nodes[nodes[at].head].until == NEVER
        node = at % num
        for i in range(net.fan_start[FAN_OUT, node], net.fan_start[FAN_OUT, node + 1]):
            if not (blink and draw(random, BLINK) == 0):
                _extend(net, table, labels, size, at, net.fan[i], is_movable, goal, work)


@inner
def _book_path(net, table, labels, rows, job, size, end):
    """Book the way to a node; returns how many that want the chunk it serves."""
    nodes, served = labels.node, 0
    is_fresh = True
    if net.buffer > 0:
        book_waits(net, table, rows, job, size, False)
    for k in range(nodes[end].stamp):
        route, begin = labels.path[end, k].route, labels.path[end, k].begin
        row = rows.row[job, rows.end[job].count]
        row.route = route
        row.start = begin
        row.head = rows.end[job].count
        row.shared = 0
        rows.end[job].count += 1
        book(net, table, route, 0, size, begin, job, True)
        arrival = begin + length_from(net, route, size, begin)
        rows.end[job].finish = max(rows.end[job].finish, arrival)
        node, source = net.route[size, route].dst, net.route[size, route].src
        # One that is passed again keeps nothing longer for that.
        if is_fresh:
            nodes[source].until = max(nodes[source].until, begin)
        is_fresh = nodes[node].state != HOLDER
        if is_fresh:
            close_node(nodes, node, HOLDER)
            hold(nodes, node, arrival, arrival)
            served += nodes[node].wanted
            nodes[node].wanted = 0
    if net.buffer > 0:
        book_waits(net, table, rows, job, size, True)
    return served


@inner
def _farthest(net, jobs, nodes, job):
    """Return the node that wants a job and is farthest from those that had it first."""
    size, most, found = jobs.job[job].size_index, -1, -1
    for i in range(jobs.job[job].want, jobs.job[job + 1].want):
        node = jobs.want[i]
        if nodes[node].wanted:
            least = NEVER
            for k in range(jobs.job[job].source, jobs.job[job + 1].source):
                least = min(least, net.distance[size, jobs.source[k].node, node])
            if least > most:
                most, found = least, node
    return found


@inner
def insert_limited(net, jobs, table, labels, rows, job, blink, since, random, work):
    """Insert a job that has no rows; whether all who want it are served.

    The farthest destination goes first, as all on the way to it are served too; when the search
    varies, sometimes the nearest.
    """
    size, nodes = jobs.job[job].size_index, labels.node
    left = begin_job(net, jobs, labels, rows, job, since)
    is_near = blink and draw(random, 2) == 0
    while left > 0:
        goal = -1 if is_near else _farthest(net, jobs, nodes, job)
        end = _search(net, table, labels, size, goal, blink, random, work)
        if end < 0 or rows.end[job].count + nodes[end].stamp > rows.row.shape[1]:
            if not blink:
                break
            # What was overlooked may be the only way.
            blink = False
            continue
        left -= _book_path(net, table, labels, rows, job, size, end)
    clean(net, labels, rows, job)
    return left == 0
