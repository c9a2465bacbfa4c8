"""Compiled maximum flows of whole numbers on small graphs, given as matrices of capacities."""

import numpy as np

from teccl._kernels import inner, kernel


@inner
def _levels(rest, source, sink, level, queue):
    """Number nodes by their distance from the source over arcs with room; whether the sink has one.

    The search ends at the sink's distance, beyond which no shortest way leads; -1 for no sink.
    """
    level[:] = -1
    level[source] = 0
    queue[0] = source
    head, tail = 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        if sink >= 0 and level[sink] >= 0 and level[node] >= level[sink]:
            break
        for other in range(len(rest)):
            if level[other] < 0 and rest[node, other] > 0:
                level[other] = level[node] + 1
                queue[tail] = other
                tail += 1
    return sink >= 0 and level[sink] >= 0


@kernel
def push_flow(rest, source, sink, limit):
    """Push as much flow as there is room for, up to a limit, and return how much that is.

    `rest` is what capacities leave and is changed: by shortest ways, all of one length at a time
    (Dinic), each of which fills an arc.
    """
    count = len(rest)
    level = np.empty(count, dtype=np.int64)
    queue = np.empty(count, dtype=np.int64)
    way = np.empty(count, dtype=np.int64)
    following = np.empty(count, dtype=np.int64)
    total = 0
    while total < limit and _levels(rest, source, sink, level, queue):
        following[:] = 0
        depth = 0
        way[0] = source
        while depth >= 0 and total < limit:
            node = way[depth]
            if node == sink:
                amount = limit - total
                for i in range(depth):
                    amount = min(amount, rest[way[i], way[i + 1]])
                back = depth
                for i in range(depth - 1, -1, -1):
                    rest[way[i], way[i + 1]] -= amount
                    rest[way[i + 1], way[i]] += amount
                    if rest[way[i], way[i + 1]] == 0:
                        back = i
                total += amount
                depth = back
                continue
            other = following[node]
            while other < count and not (rest[node, other] > 0 and level[other] == level[node] + 1):
                other += 1
            following[node] = other
            if other < count:
                depth += 1
                way[depth] = other
            else:
                depth -= 1
                if depth >= 0:
                    following[way[depth]] += 1
    return total


@kernel
def reached(rest, source):
    """Whether each node can be reached from a source over arcs that have room."""
    level = np.empty(len(rest), dtype=np.int64)
    _levels(rest, source, -1, level, np.empty(len(rest), dtype=np.int64))
    return level >= 0


@kernel
def narrowest(capacity, source, members, limit):
    """Return the least flow from a source to a member, as far as it is below a limit, and to whom.

    The member is -1 where none gets less than the limit.
    """
    least, worst = limit, -1
    for member in members:
        found = push_flow(capacity.copy(), source, member, least)
        if found < least:
            least, worst = found, member
    return least, worst
