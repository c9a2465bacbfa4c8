"""The least solution of difference constraints, by label correction in a good order."""

import heapq

import numpy as np

from teccl._arrays import IntArray

# Entries that are equal and rest on one another in turn, beyond which it is not plain any more.
_MAX_EQUAL = 32


def is_least(
    x: IntArray, lower: IntArray, before: IntArray, after: IntArray, weight: IntArray
) -> bool:
    """Whether x solves the constraints and nothing in it can be smaller.

    Every entry must rest on its lower limit or, through a constraint that leaves no room, on a
    smaller entry or on an equal one that itself rests; following those leads to a limit. False
    where that is not plain.
    """
    earliest = x[before] + weight
    if (x < lower).any() or (earliest > x[after]).any():
        return False
    rests = x == lower
    is_tight = earliest == x[after]
    rests[after[is_tight & (weight > 0)]] = True
    equal = is_tight & (weight == 0) & ~rests[after]
    before, after = before[equal], after[equal]
    for _ in range(_MAX_EQUAL):
        new = after[rests[before] & ~rests[after]]
        if not len(new):
            break
        rests[new] = True
        is_left = ~rests[after]
        before, after = before[is_left], after[is_left]
    return bool(rests.all())


def least_solution(
    lower: IntArray, before: IntArray, after: IntArray, weight: IntArray, rank: IntArray
) -> IntArray | None:
    """Find the smallest x with ``x >= lower`` and ``x[after] >= x[before] + weight``.

    No entry is constrained by itself.

    Parameters
    ----------
    rank
        Nodes in the order in which they are corrected first; one pass is enough where every
        constraint leads from an earlier to a later node.

    Returns
    -------
    array or None
        None if there is no solution.
    """
    position = np.empty(len(lower), dtype=np.int64)
    position[rank] = np.arange(len(lower))
    before, after = position[before], position[after]
    order = np.argsort(after, kind="stable")
    before, after, weight = before[order], after[order], weight[order]
    x = lower[rank].tolist()
    for u, v, w in zip(before.tolist(), after.tolist(), weight.tolist(), strict=True):
        label = x[u] + w
        if label > x[v]:  # noqa: PLR1730, a call for each of millions of constraints is slow
            x[v] = label
    values = np.array(x, dtype=np.int64)
    open_ends = np.unique(before[values[before] + weight > values[after]])
    if len(open_ends):
        corrected = _in_order(x, before, after, weight)
        if corrected is None:
            corrected = _sweep(x, before, after, weight, open_ends.tolist())
        if corrected is None:
            return None
        values = np.array(corrected, dtype=np.int64)
    return values[position]


def _in_order(
    x: list[int], before: IntArray, after: IntArray, weight: IntArray
) -> list[int] | None:
    """Correct every label once, after all that it depends on; None if some depend on themselves."""
    x = x.copy()
    order = np.argsort(before, kind="stable")
    first = np.searchsorted(before[order], np.arange(len(x) + 1)).tolist()
    targets, weights = after[order].tolist(), weight[order].tolist()
    waits = np.bincount(after, minlength=len(x))
    ready, left, waits = np.flatnonzero(waits == 0).tolist(), len(x), waits.tolist()
    while ready:
        u = ready.pop()
        left -= 1
        for edge in range(first[u], first[u + 1]):
            v, label = targets[edge], x[u] + weights[edge]
            if label > x[v]:  # noqa: PLR1730, as above
                x[v] = label
            waits[v] -= 1
            if not waits[v]:
                ready.append(v)
    return None if left else x


def _sweep(
    x: list[int], before: IntArray, after: IntArray, weight: IntArray, active: list[int]
) -> list[int] | None:
    """Correct labels from the active nodes on, sweep by sweep in the order of the nodes.

    A solvable system settles within as many sweeps as it has nodes. One without solution goes
    round a cycle that raises itself, which shows in the predecessors long before that.
    """
    order = np.argsort(before, kind="stable")
    first = np.searchsorted(before[order], np.arange(len(x) + 1)).tolist()
    targets, weights = after[order].tolist(), weight[order].tolist()
    raised_by = list(range(len(x)))
    sweeps, look_at = 0, 4
    while active:
        if sweeps == look_at:
            if _has_cycle(np.array(raised_by)):
                return None
            look_at *= 2
        sweeps += 1
        heap, queued, later = active, set(active), set()
        heapq.heapify(heap)
        while heap:
            u = heapq.heappop(heap)
            queued.discard(u)
            for edge in range(first[u], first[u + 1]):
                v, label = targets[edge], x[u] + weights[edge]
                if label <= x[v]:
                    continue
                x[v], raised_by[v] = label, u
                if v <= u:
                    later.add(v)
                elif v not in queued:
                    queued.add(v)
                    heapq.heappush(heap, v)
        active = list(later)
    return x


def _has_cycle(raised_by: IntArray) -> bool:
    """Whether following predecessors ends anywhere but at a node that is its own."""
    ahead = raised_by
    for _ in range(len(raised_by).bit_length()):
        ahead = ahead[ahead]
    return bool((raised_by[ahead] != ahead).any())
