"""Compiled balancing: which legs carry each chunk, so that no link is much fuller than others.

Chunks come one after another. Each takes the ways that cost least under prices that grow steeply
with the load of a link; in further passes each is laid anew. A chunk for several GPUs grows a tree:
of all ways from a GPU that has it to one that wants it the cheapest is added until all are served.
"""

import numpy as np

from teccl._kernels import kernel
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
_NOTHING = 4
# Part by which a pass must relieve the fullest resource for another to follow.
_GAIN = 1e-3


@kernel
def _price(load, scale):
    """Price of a resource with some load, over the target if scaled; at scale 0 all are equal."""
    price = np.exp(min(_HIGHEST, _STEEPNESS * (load * scale - 1.0)))
    return _LEAST + price


@kernel
def _charge(use_start, use_res, use_kind, hold, size, way, sign, load, price, scale):
    """Add (or take away) the load of a passage and set the prices anew."""
    for i in range(use_start[way], use_start[way + 1]):
        r = use_res[i]
        load[r] += sign * hold[use_kind[i], size]
        price[r] = _price(load[r], scale)


@kernel
def _cost(use_start, use_res, pace, ways, low, high, price, least):
    """Return what a whole piece costs on the passages of a route, or something beyond `least`."""
    cost = 0.0
    for w in range(low, high):
        for i in range(use_start[ways[w]], use_start[ways[w] + 1]):
            cost += pace[i] * price[use_res[i]]
        if cost >= least:
            return cost
    return cost


@kernel
def _chosen(use_start, use_res, pace, route_start, ways, first, count, price, known, is_first):
    """Return the cheapest of some routes.

    Of chunks that follow one another on a pair the first notes in `known` what routes cost at
    least; as long as loads only grow, others need to look again at the one or two that seem
    cheapest.
    """
    best, least = -1, np.inf
    if is_first:
        for i in range(count):
            low, high = route_start[first + i], route_start[first + i + 1]
            known[i] = _cost(use_start, use_res, pace, ways, low, high, price, least)
            if known[i] < least:
                best, least = i, known[i]
        return first + best
    while True:
        best, least, second = 0, known[0], np.inf
        for i in range(1, count):
            if known[i] < least:
                best, least, second = i, known[i], least
            elif known[i] < second:
                second = known[i]
        low, high = route_start[first + best], route_start[first + best + 1]
        known[best] = _cost(use_start, use_res, pace, ways, low, high, price, np.inf)
        if known[best] <= second:
            return first + best


@kernel
def _nearest(fabric, hold, size, choices, has, is_wanted, price, dist, via):
    """Find the cheapest way from GPUs that have a chunk to one that wants it; returns that one."""
    use_start, use_res, use_kind = fabric.use_start, fabric.use_res, fabric.use_kind
    fan_start, fan, way_end = choices.fan_start, choices.fan, choices.way_end
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
        for i in range(fan_start[node], fan_start[node + 1]):
            way = fan[i]
            end = way_end[way]
            if is_done[end] or has[end] != MISSING:
                continue
            reached = least
            for k in range(use_start[way], use_start[way + 1]):
                reached += hold[use_kind[k], size] * price[use_res[k]]
            if reached < dist[end]:
                dist[end] = reached
                via[end] = way


@kernel
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


@kernel
def _grow(fabric, hold, choices, wanted, job, most, state, leg, load, price, scale):
    """Grow the tree of a chunk by searching; returns how many legs it has, 0 without room."""
    use_start, use_res, use_kind = fabric.use_start, fabric.use_res, fabric.use_kind
    has, is_wanted, dist, via, path = state
    size, source, base = wanted.size[job], wanted.source[job], job * most
    low, high = wanted.start[job], wanted.start[job + 1]
    has[source] = SOURCE
    for e in range(low, high):
        is_wanted[wanted.ends[e]] = True
    count, has_room = 0, True
    for _ in range(high - low):
        end = _nearest(fabric, hold, size, choices, has, is_wanted, price, dist, via)
        hops = _traced(choices, end, via, path)
        has_room = count + hops <= most
        if not has_room:
            break
        is_wanted[end] = False
        parent = has[choices.way_begin[path[0]]]
        for k in range(hops):
            _charge(use_start, use_res, use_kind, hold, size, path[k], 1.0, load, price, scale)
            leg[base + count, WAY], leg[base + count, PARENT] = path[k], parent
            parent = base + count
            has[choices.way_end[path[k]]] = parent
            count += 1
    has[source] = MISSING
    for e in range(low, high):
        is_wanted[wanted.ends[e]] = False
    for i in range(base, base + count):
        has[choices.way_end[leg[i, WAY]]] = MISSING
        if not has_room:
            way = leg[i, WAY]
            _charge(use_start, use_res, use_kind, hold, size, way, -1.0, load, price, scale)
    return count if has_room else 0


@kernel
def _lay(leg, at, ways, low, high):
    """Write down the passages of a route one after another; returns where they end."""
    for w in range(low, high):
        leg[at, WAY], leg[at, PARENT] = ways[w], -1 if w == low else at - 1
        at += 1
    return at


@kernel
def _mark_full(use_start, use_res, leg, count, most, load, limit, is_full):
    """Mark chunks of which some leg holds a resource that is full; returns how many."""
    marked = 0
    for job in range(len(count)):
        is_full[job] = False
        for i in range(job * most, job * most + count[job]):
            for k in range(use_start[leg[i, WAY]], use_start[leg[i, WAY] + 1]):
                if load[use_res[k]] >= limit:
                    is_full[job] = True
        marked += is_full[job]
    return marked


@kernel
def _run_end(source, size, start, ends, order, begin):
    """Return where chunks end that follow one another with the same source, goal and size."""
    job = order[begin]
    if start[job + 1] - start[job] != 1:
        return begin + 1
    for i in range(begin + 1, len(order)):
        other = order[i]
        if source[job] != source[other] or size[job] != size[other]:
            return i
        if start[other + 1] - start[other] != 1 or ends[start[job]] != ends[start[other]]:
            return i
    return len(order)


@kernel
def _pass(fabric, hold, choices, wanted, order, state, known, is_full, searches, laid, market):
    """Let the marked chunks choose anew, one run of equal ones after another.

    Before there is a target only the routes of least latency and least time are looked at. Arrays
    are taken out of their tuples once, as every time counts references.
    """
    leg, count, most = laid
    load, price, scale = market
    use_start, use_res, use_kind = fabric.use_start, fabric.use_res, fabric.use_kind
    pair_start, route_start, ways = choices.pair_start, choices.route_start, choices.ways
    source, sizes, start, ends = wanted
    # Routes are compared by what a whole piece would cost, the first of the sizes.
    pace = np.empty(len(use_kind))
    for i in range(len(use_kind)):
        pace[i] = hold[use_kind[i], 0]
    begin = 0
    while begin < len(order):
        end = _run_end(source, sizes, start, ends, order, begin)
        size = sizes[order[begin]]
        for job in order[begin:end]:
            for i in range(job * most, job * most + (count[job] if is_full[job] else 0)):
                way = leg[i, WAY]
                _charge(use_start, use_res, use_kind, hold, size, way, -1.0, load, price, scale)
        is_first = True
        for job in order[begin:end]:
            if not is_full[job]:
                continue
            low, high = start[job], start[job + 1]
            if searches or high - low > 1:
                count[job] = _grow(
                    fabric, hold, choices, wanted, job, most, state, leg, load, price, scale
                )
                if count[job]:
                    continue
            at = job * most
            for e in range(low, high):
                pair = source[job] * choices.num_gpus + ends[e]
                first, number = pair_start[pair], pair_start[pair + 1] - pair_start[pair]
                route = _chosen(
                    use_start,
                    use_res,
                    pace,
                    route_start,
                    ways,
                    first,
                    number if scale > 0.0 else min(number, 2),
                    price,
                    known,
                    is_first,
                )
                is_first = high - low > 1
                for w in range(route_start[route], route_start[route + 1]):
                    way = ways[w]
                    _charge(use_start, use_res, use_kind, hold, size, way, 1.0, load, price, scale)
                at = _lay(leg, at, ways, route_start[route], route_start[route + 1])
            count[job] = at - job * most
        begin = end


@kernel
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
    )
    known = np.empty(np.diff(choices.pair_start).max())
    is_full = np.ones(len(order), dtype=np.bool_)
    best, best_count, best_load = leg.copy(), count.copy(), load.copy()
    target, fullest, aim = 0.0, np.inf, _AIM
    again, marked = 0, 0
    for turn in range(_PASSES):
        scale = 1.0 / target if target > 0.0 else 0.0
        for r in range(num_resources):
            price[r] = _price(load[r], scale)
        if turn > 0:
            marked = _mark_full(
                fabric.use_start, fabric.use_res, leg, count, most, load, _FULL * target, is_full
            )
            again += marked
            if again > care.again:
                break
        searches = turn > 0 and marked * len(choices.way_begin) <= care.patience
        _pass(
            fabric,
            hold,
            choices,
            wanted,
            order,
            state,
            known,
            is_full,
            searches,
            (leg, count, most),
            (load, price, scale),
        )
        if load.max() < fullest * (1.0 - _GAIN):
            fullest = load.max()
            best[:], best_count[:], best_load[:] = leg, count, load
        elif aim > _LAST_AIM:
            break
        else:
            aim = (1.0 + aim) / 2.0
            again += _NOTHING * marked
        target = aim * load.max()
    return best, best_count, best_load
