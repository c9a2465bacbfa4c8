"""Compiled shortening of packed trees: they exchange arcs, so that loads stay as they are."""

import numpy as np

from teccl._kernels import inner, kernel


@inner
def _measure(parent, cost, arrival, size):
    """Work out when each node of a tree is reached, and how many nodes hang on it."""
    size[:] = 0
    for node in range(len(parent)):
        time, at = 0, node
        while parent[at] >= 0:
            size[at] += 1
            time += cost[parent[at], at]
            at = parent[at]
        arrival[node] = time


@inner
def _hangs_on(parent, node, other):
    """Whether one node is another, or below it, in a tree."""
    while node >= 0 and node != other:
        node = parent[node]
    return node == other


@inner
def _take_free(parent, arrival, free, cost, node):
    """Let a node hang on an earlier one by an arc that no tree takes; whether it did."""
    before, best = parent[node], -1
    for other in range(len(parent)):
        if free[other, node] == 0 or (best < 0 and other == before):
            continue
        time = arrival[other] + cost[other, node]
        limit = arrival[node] if best < 0 else arrival[best] + cost[best, node]
        if time < limit and not _hangs_on(parent, other, node):
            best = other
    if best < 0:
        return False
    free[before, node] += 1
    free[best, node] -= 1
    parent[node] = best
    return True


@kernel
def shorten(parents, free, cost, looks):
    """Let trees exchange arcs while the times at which they reach their nodes add up to less.

    Two trees may swap the arcs by which they reach a node, and a tree may take one that is free.

    Parameters
    ----------
    parents
        Per tree and node, where it hangs; -1 at the root and where the tree does not lead. Changed.
    free
        Matrix of arcs that no tree takes. Changed.
    cost
        Time that an arc takes.
    looks
        How many of the trees that follow a tree it may swap arcs with.
    """
    trees, count = parents.shape
    arrival = np.zeros((trees, count), dtype=np.int64)
    size = np.zeros((trees, count), dtype=np.int64)
    for tree in range(trees):
        _measure(parents[tree], cost, arrival[tree], size[tree])
    has_changed = True
    while has_changed:
        has_changed = False
        for node in range(count):
            for one in range(trees):
                before = parents[one, node]
                if before < 0:
                    continue
                if _take_free(parents[one], arrival[one], free, cost, node):
                    _measure(parents[one], cost, arrival[one], size[one])
                    before, has_changed = parents[one, node], True
                for other in range(one + 1, min(trees, one + 1 + looks)):
                    after = parents[other, node]
                    if after < 0 or after == before:
                        continue
                    gain = size[one, node] * (
                        arrival[one, node] - arrival[one, after] - cost[after, node]
                    ) + size[other, node] * (
                        arrival[other, node] - arrival[other, before] - cost[before, node]
                    )
                    if (
                        gain <= 0
                        or _hangs_on(parents[one], after, node)
                        or _hangs_on(parents[other], before, node)
                    ):
                        continue
                    parents[one, node], parents[other, node] = after, before
                    _measure(parents[one], cost, arrival[one], size[one])
                    _measure(parents[other], cost, arrival[other], size[other])
                    before, has_changed = after, True
    return arrival
