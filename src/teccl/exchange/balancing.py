"""Compiled balancing: which legs carry each chunk, so that no link is much fuller than others.

Chunks come one after another. Each takes the ways that cost least under prices that grow steeply
with the load of a link; in further passes each is laid anew. A chunk for several GPUs grows a tree:
of all ways from a GPU that has it to one that wants it the cheapest is added until all are served.
"""

import numba as nb
import numpy as np

from teccl.exchange.tables import PARENT, WAY

# In place of the leg that brings a chunk to a GPU: it starts there, or is not there.
SOURCE, MISSING = -1, -2

# How fast a price grows as the load nears the target, the exponent at which it stops growing, and
# the price of what is empty, which keeps routes short.
_STEEPNESS = 30.0
_HIGHEST = 60.0
_LEAST = 1e-3
# The target as a part of the fullest resource's load before a pass: low at first, higher after each
# pass that gains nothing, up to the last.
_AIM = 0.5
_LAST_AIM = 0.9
# Part of the fullest resource's load from which on a chunk's ways are looked at again.
_FULL = 0.9
# Passes at most; it ends before when there is nothing left to gain.
_PASSES = 16
# How much more the choices of a pass count that gained nothing.
_NOTHING = 2
# Part by which a pass must relieve the fullest resource for another to follow.
_GAIN = 1e-3


@nb.njit(cache=True, nogil=True)
def _price(load, target):
    """Price of a resource with some load; all are equal while there is no target."""
    if target == 0.0:
        return 1.0
    return _LEAST + np.exp(min(_HIGHEST, _STEEPNESS * (load / target - 1.0)))


@nb.njit(cache=True, nogil=True)
def _charge(fabric, hold, size, way, sign, load, price, target):
    """Add (or take away) the load of a passage and set the prices anew."""
    for i in range(fabric.use_start[way], fabric.use_start[way + 1]):
        r = fabric.use_res[i]
        load[r] += sign * hold[fabric.use_kind[i], size]
        price[r] = _price(load[r], target)


@nb.njit(cache=True, nogil=True)
def _cost(fabric, hold, size, choices, route, price, least):
    """Return what a route costs, or something beyond `least`."""
    cost = 0.0
    for w in range(choices.route_start[route], choices.route_start[route + 1]):
        way = choices.ways[w]
        for i in range(fabric.use_start[way], fabric.use_start[way + 1]):
            cost += hold[fabric.use_kind[i], size] * price[fabric.use_res[i]]
        if cost >= least:
            return cost
    return cost


@nb.njit(cache=True, nogil=True)
def _chosen(fabric, hold, size, choices, src, dst, price, has_target, known, is_first, path):
    """Take the cheapest of the routes of a pair; returns how many passages it has.

    While there is no target only the two of least latency and least time are looked at. Of chunks
    that follow one another on a pair the first notes in `known` what routes cost at least; as long
    as loads only grow, others need to look again at the one or two that seem cheapest.
    """
    pair = src * choices.num_gpus + dst
    first, last = choices.pair_start[pair], choices.pair_start[pair + 1]
    count = last - first if has_target else min(last - first, 2)
    if is_first:
        least = np.inf
        for i in range(count):
            known[i] = _cost(fabric, hold, size, choices, first + i, price, least)
            least = min(least, known[i])
    best = -1
    while True:
        cheapest = 0
        for i in range(1, count):
            if known[i] < known[cheapest]:
                cheapest = i
        if cheapest == best:
            break
        best = cheapest
        known[best] = _cost(fabric, hold, size, choices, first + best, price, np.inf)
    low, high = choices.route_start[first + best], choices.route_start[first + best + 1]
    path[: high - low] = choices.ways[low:high]
    return high - low


@nb.njit(cache=True, nogil=True)
def _nearest(fabric, hold, size, choices, has, is_wanted, price, dist, via):
    """Find the cheapest way from GPUs that have a chunk to one that wants it; returns that one."""
    is_done = np.zeros(len(has), dtype=np.bool_)
    for node in range(len(has)):
        dist[node] = 0.0 if has[node] != MISSING else np.inf
        via[node] = -1
    while True:
        node, least = -1, np.inf
        for i in range(len(has)):
            if not is_done[i] and dist[i] < least:
                node, least = i, dist[i]
        if node < 0 or is_wanted[node]:
            return node
        is_done[node] = True
        for i in range(choices.fan_start[node], choices.fan_start[node + 1]):
            way = choices.fan[i]
            end = choices.way_end[way]
            if is_done[end] or has[end] != MISSING:
                continue
            reached = least
            for k in range(fabric.use_start[way], fabric.use_start[way + 1]):
                reached += hold[fabric.use_kind[k], size] * price[fabric.use_res[k]]
            if reached < dist[end]:
                dist[end] = reached
                via[end] = way


@nb.njit(cache=True, nogil=True)
def _traced(choices, node, via, path):
    """List the passages found to a GPU, first to last; returns how many."""
    count = 0
    while via[node] >= 0:
        path[count] = via[node]
        node = choices.way_begin[via[node]]
        count += 1
    for i in range(count // 2):
        path[i], path[count - 1 - i] = path[count - 1 - i], path[i]
    return count


@nb.njit(cache=True, nogil=True)
def _lay(
    fabric, hold, choices, wanted, job, most, state, leg, load, price, target, searches, is_first
):
    """Grow the tree of a chunk; returns how many legs it has."""
    has, is_wanted, dist, via, path, known = state
    size, source, base = wanted.size[job], wanted.source[job], job * most
    low, high = wanted.start[job], wanted.start[job + 1]
    has[source] = SOURCE
    for e in range(low, high):
        is_wanted[wanted.ends[e]] = True
    count = 0
    for _ in range(high - low):
        hops = most + 1
        if searches or high - low > 1:
            end = _nearest(fabric, hold, size, choices, has, is_wanted, price, dist, via)
            hops = _traced(choices, end, via, path)
        if count + hops > most:
            end = wanted.ends[low]
            hops = _chosen(
                fabric,
                hold,
                size,
                choices,
                source,
                end,
                price,
                target > 0.0,
                known,
                is_first,
                path,
            )
        is_wanted[end] = False
        parent = has[choices.way_begin[path[0]]]
        for k in range(hops):
            _charge(fabric, hold, size, path[k], 1.0, load, price, target)
            leg[base + count, WAY], leg[base + count, PARENT] = path[k], parent
            parent = base + count
            has[choices.way_end[path[k]]] = parent
            count += 1
            # A relay may want the chunk too.
            is_wanted[choices.way_end[path[k]]] = False
    has[source] = MISSING
    for i in range(base, base + count):
        has[choices.way_end[leg[i, WAY]]] = MISSING
    return count


@nb.njit(cache=True, nogil=True)
def _is_in_the_way(fabric, leg, low, high, load, limit):
    """Whether some leg of a chunk holds a resource that is full."""
    for i in range(low, high):
        for k in range(fabric.use_start[leg[i, WAY]], fabric.use_start[leg[i, WAY] + 1]):
            if load[fabric.use_res[k]] >= limit:
                return True
    return False


@nb.njit(cache=True, nogil=True)
def _run_end(wanted, order, begin):
    """Return where chunks end that follow one another with the same source, goal and size."""
    job = order[begin]
    low = wanted.start[job]
    for i in range(begin + 1, len(order)):
        other = order[i]
        same = wanted.source[job] == wanted.source[other] and wanted.size[job] == wanted.size[other]
        goals = wanted.start[other]
        if wanted.start[job + 1] - low != 1 or wanted.start[other + 1] - goals != 1:
            return i
        if not same or wanted.ends[low] != wanted.ends[goals]:
            return i
    return len(order)


@nb.njit(cache=True, nogil=True)
def balance(fabric, hold, choices, wanted, order, num_resources, most, care):
    """Choose legs for all chunks; returns the legs of each, how many, and the loads.

    Parameters
    ----------
    order
        Chunks in the order in which they choose.
    most
        Legs for which each chunk has room.
    care
        When to end.
    """
    num_gpus = choices.num_gpus
    leg = np.empty((len(order) * most, 2), dtype=np.int64)
    count = np.zeros(len(order), dtype=np.int64)
    load = np.zeros(num_resources)
    price = np.zeros(num_resources)
    state = (
        np.full(num_gpus, MISSING, dtype=np.int64),
        np.zeros(num_gpus, dtype=np.bool_),
        np.empty(num_gpus),
        np.empty(num_gpus, dtype=np.int64),
        np.empty(num_gpus, dtype=np.int64),
        np.empty(np.diff(choices.pair_start).max()),
    )
    is_full = np.ones(len(order), dtype=np.bool_)
    best, best_count, best_load = leg.copy(), count.copy(), load.copy()
    target, fullest, aim = 0.0, np.inf, _AIM
    again = 0
    for turn in range(_PASSES):
        for r in range(num_resources):
            price[r] = _price(load[r], target)
        if turn > 0:
            for job in order:
                low, high = job * most, job * most + count[job]
                is_full[job] = _is_in_the_way(fabric, leg, low, high, load, _FULL * target)
            again += is_full.sum()
            if again > care.again:
                break
        searches = turn > 0 and is_full.sum() * len(choices.way_begin) <= care.patience
        begin = 0
        while begin < len(order):
            end = _run_end(wanted, order, begin)
            for job in order[begin:end]:
                for i in range(job * most, job * most + (count[job] if is_full[job] else 0)):
                    _charge(fabric, hold, wanted.size[job], leg[i, WAY], -1.0, load, price, target)
            is_first = True
            for job in order[begin:end]:
                if is_full[job]:
                    count[job] = _lay(
                        fabric,
                        hold,
                        choices,
                        wanted,
                        job,
                        most,
                        state,
                        leg,
                        load,
                        price,
                        target,
                        searches,
                        is_first,
                    )
                    # A search that found a way has noted no costs of routes.
                    is_first = searches
            begin = end
        if load.max() < fullest * (1.0 - _GAIN):
            fullest = load.max()
            best[:], best_count[:], best_load[:] = leg, count, load
        elif aim > _LAST_AIM:
            break
        else:
            aim = (1.0 + aim) / 2.0
            again += _NOTHING * is_full.sum()
        target = aim * load.max()
    return best, best_count, best_load
