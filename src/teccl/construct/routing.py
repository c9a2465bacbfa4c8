"""Compiled routing: paths and trees under prices that grow with the load of each resource."""

import numpy as np

from teccl._kernels import inner, kernel, maker

# Prices are capped, so that a resource far over its target stays comparable to others.
_MAX_EXPONENT = 60.0


@inner
def price_of(load, target, steepness):
    """Price of a resource with some load."""
    return np.exp(min(steepness * (load / target - 1.0), _MAX_EXPONENT))


@inner
def _charge(via, sign, lead, ways, market):
    """Add (or take away) the load of a tree's routes and set the prices anew."""
    own_start, res_start, res, hold, used = ways
    load, price, target, steepness = market
    for v in range(len(via)):
        r = via[v]
        if r >= 0:
            for i in range(_begin(r, lead, own_start, used, res_start), res_start[r + 1]):
                load[res[i]] += sign * hold[i]
                price[res[i]] = price_of(load[res[i]], target, steepness)
            if lead[r] >= 0:
                used[lead[r]] = True
    _forget(via, lead, used)


@inner
def _begin(route, lead, own_start, used, res_start):
    """Place of the first resource that a route pays for: its lead may be paid for already."""
    if lead[route] >= 0 and used[lead[route]]:
        return own_start[route]
    return res_start[route]


@inner
def _forget(via, lead, used):
    for v in range(len(via)):
        if via[v] >= 0 and lead[via[v]] >= 0:
            used[lead[via[v]]] = False


@inner
def is_overloaded(via, res_start, res, load, target):
    """Whether a tree uses a resource that is over its target."""
    for v in range(len(via)):
        if via[v] >= 0:
            for i in range(res_start[via[v]], res_start[via[v] + 1]):
                if load[res[i]] > target:
                    return True
    return False


@inner
def _cost(begin, end, res, hold, price):
    cost = 0.0
    for i in range(begin, end):
        cost += hold[i] * price[res[i]]
    return cost


@inner
def next_random(state):
    """Return the next random number, which is the next state too; the same on every machine."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@inner
def shuffle(order, state):
    """Shuffle in place; return the next state."""
    for i in range(len(order) - 1, 0, -1):
        state = next_random(state)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@kernel
def lay_trees(
    root,
    goal,
    goals,
    may_relay,
    outward,
    paired,
    route_src,
    route_dst,
    route_length,
    lead,
    own_start,
    res_start,
    res,
    res_hold,
    slots,
    out_start,
    out_routes,
    in_start,
    in_routes,
    blend,
    base,
    length_weight,
    target,
    steepness,
    passes,
    seed,
    stretch,
):
    """Lay a tree between every root and its goal nodes so that the fullest resource is least full.

    The first pass lays short trees; each later one takes up the trees on overloaded resources,
    one after another, and lays them again where prices are low. `outward`
    trees lead from the root; inward ones to it. With `paired` every root gets an inward tree
    (side 0) and an outward one (side 1), and the root itself may move among its goal nodes.
    For each set of goals `blend` one makes every branch a cheapest path from what leads to a goal
    already, zero the whole tree cheap; `base` is the load that others have laid. Nodes that are no
    goal may pass data on where `may_relay` says so. Routes of an outward tree with the same `lead`,
    the link into a switch that copies, hold it once: all but one pay from `own_start` on. Trees of
    later passes are no longer than `stretch` times the longest of the first.

    Returns per tree, side and node the route that joins the node to the tree on the root's side,
    -1 where none, and the load of the fullest resource; infinite when a goal is out of reach.
    """
    num_nodes = len(out_start) - 1
    num = len(root)
    sides = 2 if paired else 1
    trees = np.full((num, sides, num_nodes), -1, dtype=np.int32)
    roots = root.copy()
    load = base.copy()
    hold = np.empty(len(res), dtype=np.float64)
    for i in range(len(res)):
        hold[i] = res_hold[i] / slots[res[i]]
    price = np.empty(len(slots))
    for i in range(len(slots)):
        price[i] = price_of(load[i], target, steepness)
    # Contributions to a sum stay apart, also where copies join.
    shared = np.full((sides, len(lead)), -1)
    for side in range(sides):
        if _leads_away(side, sides, outward):
            shared[side] = lead
    used = np.zeros(len(slots), dtype=np.bool_)
    ways = own_start, res_start, res, hold, used
    market = load, price, target, steepness
    best_load = np.inf
    best_trees = trees.copy()
    state = np.uint64(seed * 2654435761 + 88172645463325252)
    order = np.arange(num)
    scratch = np.full((sides, num_nodes), -1, dtype=np.int32)
    chosen = np.full((sides, num_nodes), -1, dtype=np.int32)
    longest = np.zeros(sides)
    for iteration in range(passes):
        state = shuffle(order, state)
        for index in range(num):
            k = order[index]
            if iteration > 0:
                over = False
                for side in range(sides):
                    over = over or is_overloaded(trees[k, side], res_start, res, load, target)
                if not over:
                    continue
            for side in range(sides):
                _charge(trees[k, side], -1.0, shared[side], ways, market)
            best_cost, best_root = np.inf, roots[k]
            wanted = goals[goal[k]]
            tries = 3 if paired and iteration > 0 else 1
            for attempt in range(tries):
                candidate = roots[k]
                if attempt > 0:
                    state = next_random(state)
                    places = np.flatnonzero(wanted)
                    candidate = places[np.int64(state % np.uint64(len(places)))]
                cost = 0.0
                for side in range(sides):
                    away = _leads_away(side, sides, outward)
                    paid, reach = _grow_tree(
                        candidate,
                        away,
                        wanted,
                        may_relay,
                        route_src,
                        route_dst,
                        route_length,
                        shared[side],
                        ways,
                        price,
                        out_start if away else in_start,
                        out_routes if away else in_routes,
                        blend[goal[k]],
                        length_weight if iteration > 0 else 1.0 + length_weight,
                        1.0 if iteration > 0 else 0.0,
                        stretch * longest[side] if iteration > 0 else np.inf,
                        scratch[side],
                    )
                    cost += paid
                    if iteration == 0:
                        longest[side] = max(longest[side], reach)
                    # The first side's load counts when the second grows.
                    _charge(scratch[side], 1.0, shared[side], ways, market)
                for side in range(sides):
                    _charge(scratch[side], -1.0, shared[side], ways, market)
                if cost < best_cost or attempt == 0:
                    best_cost, best_root = cost, candidate
                    chosen[:] = scratch
            if best_cost < np.inf:
                roots[k] = best_root
                trees[k] = chosen
            elif iteration == 0:
                return best_trees, roots, np.inf
            for side in range(sides):
                _charge(trees[k, side], 1.0, shared[side], ways, market)
        peak = load.max()
        if peak < best_load * (1 - 1e-9):
            best_load = peak
            best_trees[:] = trees
    return best_trees, roots, best_load


@inner
def _leads_away(side, sides, outward):
    return outward if sides == 1 else side == 1


@maker
def _grow_tree(
    root,
    outward,
    wanted,
    may_relay,
    route_src,
    route_dst,
    route_length,
    lead,
    ways,
    price,
    adjacent_start,
    adjacent,
    blend,
    length_weight,
    load_weight,
    farthest,
    via,
):
    """Grow one tree by cheapest additions, then cut branches without a goal.

    Returns its cost, infinite when a goal is out of reach, and the time to its farthest goal.
    """
    own_start, res_start, res, hold, used = ways
    num_nodes = len(via)
    inside = np.zeros(num_nodes, dtype=np.bool_)
    best = np.full(num_nodes, np.inf)
    paid = np.zeros(num_nodes, dtype=np.float64)
    far = np.zeros(num_nodes, dtype=np.float64)
    entry = np.full(num_nodes, -1, dtype=np.int64)
    leads_on = np.zeros(num_nodes, dtype=np.bool_)
    leads_on[root] = True
    sequence = np.empty(num_nodes, dtype=np.int64)
    count = 0
    left = 0
    for v in range(num_nodes):
        via[v] = -1
        if wanted[v] and v != root:
            left += 1
    u = root
    inside[u] = True
    while left > 0:
        if u == root or may_relay[u] or wanted[u]:
            for i in range(adjacent_start[u], adjacent_start[u + 1]):
                r = adjacent[i]
                v = route_dst[r] if outward else route_src[r]
                if inside[v] or not (wanted[v] or may_relay[v]):
                    continue
                if far[u] + route_length[r] > farthest:
                    continue
                cost = blend * paid[u]
                if load_weight > 0.0:
                    cost += load_weight * _cost(res_start[r], res_start[r + 1], res, hold, price)
                cost += length_weight * (far[u] + route_length[r])
                if cost < best[v]:
                    best[v] = cost
                    entry[v] = r
        u = -1
        for v in range(num_nodes):
            if not inside[v] and entry[v] >= 0 and (u < 0 or best[v] < best[u]):
                u = v
        if u < 0:
            _forget(via, lead, used)
            return np.inf, np.inf
        r = entry[u]
        near = route_src[r] if outward else route_dst[r]
        if load_weight > 0.0:
            begin = _begin(r, lead, own_start, used, res_start)
            paid[u] = paid[near] + load_weight * _cost(begin, res_start[r + 1], res, hold, price)
        far[u] = far[near] + route_length[r]
        via[u] = r
        inside[u] = True
        sequence[count] = u
        count += 1
        if wanted[u]:
            left -= 1
            # What leads to a goal is paid for: others branch off it as if it cost nothing.
            w = u
            while blend > 0.0 and not leads_on[w]:
                leads_on[w] = True
                paid[w] = 0.0
                for i in range(adjacent_start[w], adjacent_start[w + 1]):
                    q = adjacent[i]
                    v = route_dst[q] if outward else route_src[q]
                    if inside[v] or not (wanted[v] or may_relay[v]):
                        continue
                    if far[w] + route_length[q] > farthest:
                        continue
                    cost = length_weight * (far[w] + route_length[q])
                    if load_weight > 0.0:
                        cost += load_weight * _cost(
                            res_start[q], res_start[q + 1], res, hold, price
                        )
                    if cost < best[v]:
                        best[v] = cost
                        entry[v] = q
                w = route_src[via[w]] if outward else route_dst[via[w]]
        if lead[r] >= 0 and not used[lead[r]]:
            # Others may now join the passage, which costs them less.
            used[lead[r]] = True
            for i in range(adjacent_start[near], adjacent_start[near + 1]):
                q = adjacent[i]
                v = route_dst[q]
                if lead[q] != lead[r] or inside[v] or not (wanted[v] or may_relay[v]):
                    continue
                if far[near] + route_length[q] > farthest:
                    continue
                cost = blend * paid[near] + length_weight * (far[near] + route_length[q])
                if load_weight > 0.0:
                    cost += load_weight * _cost(own_start[q], res_start[q + 1], res, hold, price)
                if cost < best[v]:
                    best[v] = cost
                    entry[v] = q
    _forget(via, lead, used)
    total, reach = 0.0, 0.0
    needed = np.zeros(num_nodes, dtype=np.bool_)
    for index in range(count - 1, -1, -1):
        v = sequence[index]
        r = via[v]
        if wanted[v] or needed[v]:
            near = route_src[r] if outward else route_dst[r]
            needed[near] = True
            begin = _begin(r, lead, own_start, used, res_start)
            total += _cost(begin, res_start[r + 1], res, hold, price)
            total += length_weight * route_length[r]
            reach = max(reach, far[v])
            if lead[r] >= 0:
                used[lead[r]] = True
        else:
            via[v] = -1
    _forget(via, lead, used)
    return total, reach
