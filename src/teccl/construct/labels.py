"""Compiled labels: how the search for a chunk's ways has reached each node so far.

Also what is searched for (jobs) and what was found (rows), as tables that kernels share.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl._kernels import inner
from teccl.construct.timetable import NEVER, Records, length_from, record

IntArray = npt.NDArray[np.int64]

# What a node is to the chunk that is being inserted.
UNSEEN, OPEN, PASSED, HOLDER = 0, 1, 2, 3
# Lists of routes in `NetworkTables.fan`.
FAN_OUT, FAN_INTO, FAN_LEAD = 0, 1, 2
# One candidate in so many is overlooked where the search is to vary.
BLINK = 100


# Columns of the tables, see `timetable`.
JOB = record("size_index", "source", "want")
SOURCE = record("node", "ready")
LEG = record("route", "begin")
ROW = record("route", "start", "head", "shared")
END = record("count", "finish")
LABEL = record(
    "state",
    "key",
    "arrival",
    "spent",
    "via",
    "begin",
    "head",
    "shared",
    "stamp",
    "heap",
    "place",
    "wanted",
    "until",
)


class JobTables(NamedTuple):
    """What is to be delivered; each is one chunk, or one copy of it where nobody copies.

    Parameters
    ----------
    job
        Which of the chunk sizes it has, its first source and first destination. One more marks
        the end.
    source
        Nodes that hold it and from when on.
    want
        Nodes that want it and do not hold it.
    """

    job: Records
    source: Records
    want: IntArray


class Rows(NamedTuple):
    """Where each job travels.

    Parameters
    ----------
    row
        Per job, its routes with their starts, each behind the one that feeds it; the row whose
        passage it belongs to, itself for its own; links that are that one's too.
    end
        Per job, how many routes it takes, and its last arrival.
    """

    row: Records
    end: Records


class Labels(NamedTuple):
    """How the search reaches each node; scratch space, clean between insertions.

    Parameters
    ----------
    node
        Whether it is unseen, open, passed or a holder; what it costs, when the chunk is there, and
        the price of the way from the last holder; the route that leads there, as in `Rows`; how
        many routes were booked when that was found; whether it wants the chunk. Open nodes are in
        a heap, with the place of each. One more holds the size of the heap.
    used
        Per link into a switch, the row of the job's passage over it, -1 for none.
    entered
        Per such link and node, one more than the link by which that passage comes to the node.
    path
        Where buffers are limited, the routes that lead to each node, with their starts. There a
        second label of each node tells how one that holds the chunk is passed again, and `until`
        how long it keeps the chunk to pass it on, for ever where it is the node's own.
    """

    node: Records
    used: IntArray
    entered: IntArray
    path: Records


def empty_labels(num_nodes: int, num_links: int, *, longest: int = 0) -> Labels:
    """Return clean scratch space, with ways of so many routes where buffers are limited."""
    count = 2 * num_nodes + 1 if longest else num_nodes + 1
    node = np.zeros(count, dtype=LABEL)
    node["key"], node["place"] = NEVER, -1
    path = np.zeros((count, longest), dtype=LEG)
    used = np.full(num_links, -1, dtype=np.int64)
    # Mostly never touched, and then no memory is taken.
    entered = np.zeros((num_links, num_nodes), dtype=np.int64)
    return Labels(node=node, used=used, entered=entered, path=path)


def empty_rows(num_jobs: int, most: int) -> Rows:
    """Return rows for jobs that travel nowhere yet, with room for so many each."""
    return Rows(row=np.zeros((num_jobs, most), dtype=ROW), end=np.zeros(num_jobs, dtype=END))


@inner
def draw(random, count):
    """Return a number below a count and move the generator on (xorshift)."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.int64(x >> np.uint64(2)) % count


@inner
def _sift(nodes, i):
    """Move the open node at a place of the heap to where its key belongs."""
    size, node = nodes[len(nodes) - 1].heap, nodes[i].heap
    key = nodes[node].key
    while i > 0 and nodes[nodes[(i - 1) // 2].heap].key > key:
        above = nodes[(i - 1) // 2].heap
        nodes[i].heap = above
        nodes[above].place = i
        i = (i - 1) // 2
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and nodes[nodes[child + 1].heap].key < nodes[nodes[child].heap].key:
            child += 1
        below = nodes[child].heap
        if nodes[below].key >= key:
            break
        nodes[i].heap = below
        nodes[below].place = i
        i = child
    nodes[i].heap = node
    nodes[node].place = i


@inner
def open_node(nodes, node):
    """Put a node in its place among the open ones after its key has changed."""
    if nodes[node].place < 0:
        i = nodes[len(nodes) - 1].heap
        nodes[i].heap = node
        nodes[node].place = i
        nodes[len(nodes) - 1].heap += 1
    nodes[node].state = OPEN
    _sift(nodes, nodes[node].place)


@inner
def close_node(nodes, node, state):
    """Take a node out of the open ones and note what it is from now on."""
    nodes[node].state = state
    i = nodes[node].place
    if i < 0:
        return
    nodes[node].place = -1
    nodes[len(nodes) - 1].heap -= 1
    last = nodes[nodes[len(nodes) - 1].heap].heap
    if last != node:
        nodes[i].heap = last
        nodes[last].place = i
        _sift(nodes, i)


@inner
def mark_passage(net, labels, route, head):
    """Note a route of a passage into a switch that others may join, and the row that heads it."""
    link = net.hop[net.route[0, route].hop].link
    is_joined = net.fan_start[FAN_LEAD, link] < net.fan_start[FAN_LEAD, link + 1]
    if is_joined and labels.used[link] < 0:
        labels.used[link] = head
    if labels.used[link] == head:
        for hop in range(net.route[0, route].hop, net.route[0, route + 1].hop):
            labels.entered[link, net.hop[hop].end] = net.hop[hop].link + 1


@inner
def forget(nodes):
    """Forget all that is not held."""
    for node in range(len(nodes) - 1):
        if nodes[node].state != HOLDER:
            nodes[node].state = UNSEEN
            nodes[node].key = NEVER
            nodes[node].place = -1
    nodes[len(nodes) - 1].heap = 0


@inner
def clean(net, labels, rows, job):
    """Leave the scratch space as it was found."""
    for node in range(len(labels.node) - 1):
        labels.node[node].state = UNSEEN
        labels.node[node].wanted = 0
    forget(labels.node)
    for row in range(rows.end[job].count):
        route = rows.row[job, row].route
        link = net.hop[net.route[0, route].hop].link
        labels.used[link] = -1
        for hop in range(net.route[0, route].hop, net.route[0, route + 1].hop):
            labels.entered[link, net.hop[hop].end] = 0


@inner
def hold(nodes, node, time, until):
    """Note that a node holds the chunk from a time on, and until when for others."""
    nodes[node].until = until
    nodes[node].state = HOLDER
    nodes[node].arrival = time
    nodes[node].key = 0


@inner
def begin_job(net, jobs, labels, rows, job, since):
    """Mark who holds and who wants a job and what is booked of it; returns how many want it.

    Nobody holds it before `since`.
    """
    nodes, left = labels.node, 0
    for i in range(jobs.job[job].want, jobs.job[job + 1].want):
        nodes[jobs.want[i]].wanted = 1
        left += 1
    for i in range(jobs.job[job].source, jobs.job[job + 1].source):
        hold(nodes, jobs.source[i].node, max(since, jobs.source[i].ready), NEVER)
    size = jobs.job[job].size_index
    for i in range(rows.end[job].count):
        row = rows.row[job, i]
        node = net.route[size, row.route].dst
        arrival = row.start + length_from(net, row.route, size, row.start)
        hold(nodes, node, arrival, arrival)
        left -= nodes[node].wanted
        nodes[node].wanted = 0
        mark_passage(net, labels, row.route, row.head)
    return left
