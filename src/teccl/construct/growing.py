"""Compiled laying of trees across corridors, under prices that grow with every link used."""

import numpy as np

from teccl._kernels import inner, kernel, maker
from teccl.construct.routing import is_overloaded, next_random, price_of, shuffle
from teccl.construct.wayfinding import cheapest, search_room

# Passes without a gain after which there are no more, and what is one.
_STALE = 2
_GAIN = 1e-4
# Highest price of what is not counted: it may have to be overloaded, and all else must not suffer.
_DEAREST = 50.0


@inner
def _charge(via, sign, ways, market):
    """Add (or take away) the load of a tree's routes and set the prices anew."""
    for v in range(len(via)):
        if via[v] >= 0:
            _book(via[v], sign, ways, market)


@inner
def _book(route, sign, ways, market):
    """Add the load of a route, and set what links cost anew that hold what it holds."""
    res_start, res, hold = ways
    load, price, cost, target, steepness, holders_start, holders, links, counted = market
    for i in range(res_start[route], res_start[route + 1]):
        r = res[i]
        load[r] += sign * hold[i]
        price[r] = price_of(load[r], target, steepness)
        if r >= counted:
            price[r] = min(price[r], _DEAREST)
        for j in range(holders_start[r], holders_start[r + 1]):
            cost[holders[j]] = _cost(holders[j], links, price)


@inner
def _price_of(route, ways, market):
    """What the resources of a route cost."""
    res_start, res, hold = ways
    price = market[1]
    paid = 0.0
    for i in range(res_start[route], res_start[route + 1]):
        paid += hold[i] * price[res[i]]
    return paid


@inner
def _cost(link, links, price):
    """What a link costs: its time, and the prices of what it holds."""
    base, start, res, hold = links
    cost = base[link]
    for i in range(start[link], start[link + 1]):
        cost += hold[i] * price[res[i]]
    return cost


@inner
def _sift_down(keys, values, base, size, place):
    """Restore a heap below a place whose key has grown."""
    key, value = keys[base + place], values[base + place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[base + child + 1] < keys[base + child]:
            child += 1
        if keys[base + child] >= key:
            break
        keys[base + place], values[base + place] = keys[base + child], values[base + child]
        place = child
    keys[base + place], values[base + place] = key, value


@inner
def _sift_up(keys, values, base, place):
    """Restore a heap above a place that is new."""
    key, value = keys[base + place], values[base + place]
    while place > 0:
        parent = (place - 1) // 2
        if keys[base + parent] <= key:
            break
        keys[base + place], values[base + place] = keys[base + parent], values[base + parent]
        place = parent
    keys[base + place], values[base + place] = key, value


@inner
def _nearest(corridor, near_start, near_node, near_link, near, cost, length_weight, far, room):
    """Cost of the cheapest link from the tree into a corridor: the heap's top, brought up to date.

    Costs only grow while a tree does, so the top is the least once its key is right.
    """
    keys, values, sizes = near
    base, size = near_start[corridor], sizes[corridor]
    while size:
        i = values[base]
        paid = cost[near_link[i]] + length_weight * far[near_node[i]]
        if room[near_link[i]] <= 0:
            paid = np.inf
        if paid <= keys[base]:
            return paid
        keys[base] = paid
        _sift_down(keys, values, base, size, 0)
    return np.inf


@inner
def _farthest(corridor, far_start, far_node, far_link, beyond, cost, inside):
    """Cost of the cheapest link out of a corridor to a node that the tree lacks."""
    keys, values, sizes = beyond
    base = far_start[corridor]
    while sizes[corridor]:
        i = values[base]
        paid = 0.0 if far_link[i] < 0 else cost[far_link[i]]
        if inside[far_node[i]]:
            sizes[corridor] -= 1
            last = base + sizes[corridor]
            keys[base], values[base] = keys[last], values[last]
        elif paid <= keys[base]:
            return paid
        else:
            keys[base] = paid
        _sift_down(keys, values, base, sizes[corridor], 0)
    return np.inf


@inner
def _across(corridor, corridors, near, beyond, cost, length_weight, far, room, inside):
    """Cost of the cheapest way through a corridor, from the tree to a node that it lacks."""
    near_start, near_node, near_link, far_start, far_node, far_link = corridors[:6]
    inner_start, inner_link = corridors[6:8]
    paid = _nearest(
        corridor, near_start, near_node, near_link, near, cost, length_weight, far, room
    )
    paid += _farthest(corridor, far_start, far_node, far_link, beyond, cost, inside)
    for i in range(inner_start[corridor], inner_start[corridor + 1]):
        paid += cost[inner_link[i]]
    return paid


@inner
def _beyond(wanted, root, far_start, far_node, far_link, cost, beyond):
    """Put the links to all nodes that are wanted into heaps."""
    keys, values, sizes = beyond
    for c in range(len(sizes)):
        base, size = far_start[c], 0
        for i in range(base, far_start[c + 1]):
            if wanted[far_node[i]] and far_node[i] != root:
                keys[base + size] = 0.0 if far_link[i] < 0 else cost[far_link[i]]
                values[base + size] = i
                size += 1
        sizes[c] = size
        for place in range(size // 2 - 1, -1, -1):
            _sift_down(keys, values, base, size, place)


@inner
def _enter(v, corridors, near, cost, length_weight, far):
    """Put the links by which a node of the tree can be extended into heaps."""
    near_start, near_link = corridors[0], corridors[2]
    touching_start, touching, near_place = corridors[10:]
    keys, values, sizes = near
    for i in range(touching_start[v], touching_start[v + 1]):
        if near_place[i] >= 0:
            c = touching[i]
            place = near_start[c] + sizes[c]
            keys[place] = cost[near_link[near_place[i]]] + length_weight * far[v]
            values[place] = near_place[i]
            _sift_up(keys, values, near_start[c], sizes[c])
            sizes[c] += 1


@maker
def _ways_to(urgent, root, wanted, corridors, length, market, search):
    """Return the nodes on the cheapest ways to urgent nodes, each after the one it hangs on.

    Ways that lead through nodes which are not wanted are left out.
    """
    near_node = corridors[1]
    heap, tree = search
    place = tree[3]
    found = np.empty(len(wanted), dtype=np.int64)
    is_found = np.zeros(len(wanted), dtype=np.bool_)
    is_found[root] = True
    count = 0
    # The links' times are weighted already.
    links, price, weights = market[7], market[1], (1.0, 1.0)
    if not cheapest(root, urgent, corridors, links, price, weights, length, np.inf, heap, tree):
        return found[:0]
    for end in urgent:
        hops = 0
        v = end
        while not is_found[v] and wanted[v]:
            hops += 1
            v = near_node[place[v]]
        if is_found[v]:
            v = end
            for i in range(count + hops - 1, count - 1, -1):
                found[i] = v
                is_found[v] = True
                v = near_node[place[v]]
            count += hops
    return found[:count]


@maker
def _grow(root, urgent, wanted, corridors, length, ways, market, length_weight, most, search, via):
    """Grow a tree by the cheapest additions, each of which is paid for before the next is chosen.

    Ways to urgent nodes come first. Its load stays booked. Returns its cost, infinite when a goal
    is out of reach.
    """
    cost = market[2]
    near_start, near_node, near_link, far_start, far_node, far_link = corridors[:6]
    route_start, route, touching_start, touching = corridors[8:12]
    num = len(near_start) - 1
    near = (
        np.empty(len(near_node)),
        np.empty(len(near_node), dtype=np.int64),
        np.zeros(num, dtype=np.int64),
    )
    beyond = (
        np.empty(len(far_node)),
        np.empty(len(far_node), dtype=np.int64),
        np.zeros(num, dtype=np.int64),
    )
    _beyond(wanted, root, far_start, far_node, far_link, cost, beyond)
    total_cost = np.full(num, np.inf)
    inside = np.zeros(len(via), dtype=np.bool_)
    far = np.zeros(len(via), dtype=np.float64)
    room = most.copy()
    via[:] = -1
    left = 0
    for v in range(len(via)):
        left += wanted[v] and v != root
    total = 0.0
    inside[root] = True
    _enter(root, corridors, near, cost, length_weight, far)
    u = v = root
    if len(urgent):
        entry, place = search[1][2], search[1][3]
        for v in _ways_to(urgent, root, wanted, corridors, length, market, search):
            via[v] = entry[v]
            far[v] = far[near_node[place[v]]] + length[via[v]]
            total += length_weight * far[v] + _price_of(via[v], ways, market)
            _book(via[v], 1.0, ways, market)
            room[near_link[place[v]]] -= 1
            inside[v] = True
            left -= 1
            _enter(v, corridors, near, cost, length_weight, far)
        for c in range(num):
            total_cost[c] = _across(
                c, corridors, near, beyond, cost, length_weight, far, room, inside
            )
    while left:
        for node in (u, v):
            for i in range(touching_start[node], touching_start[node + 1]):
                total_cost[touching[i]] = _across(
                    touching[i], corridors, near, beyond, cost, length_weight, far, room, inside
                )
        # What other corridors share with those may cost more by now, never less.
        while True:
            c = np.argmin(total_cost)
            known = total_cost[c]
            if known == np.inf:
                return np.inf
            total_cost[c] = _across(
                c, corridors, near, beyond, cost, length_weight, far, room, inside
            )
            if total_cost[c] <= known:
                break
        i, j = near[1][near_start[c]], beyond[1][far_start[c]]
        u, v = near_node[i], far_node[j]
        width = far_start[c + 1] - far_start[c]
        via[v] = route[route_start[c] + (i - near_start[c]) * width + j - far_start[c]]
        _book(via[v], 1.0, ways, market)
        far[v] = far[u] + length[via[v]]
        room[near_link[i]] -= 1
        inside[v] = True
        total += total_cost[c]
        left -= 1
        _enter(v, corridors, near, cost, length_weight, far)
    return total


@kernel
def lay_across(
    root,
    goal,
    goals,
    outward,
    paired,
    routes,
    slots,
    links,
    holders,
    inward_corridors,
    outward_corridors,
    length_weight,
    target,
    steepness,
    passes,
    seed,
    enough,
    reserved,
    most,
    urgent,
):
    """Lay a tree between every root and its goal nodes so that the fullest resource is least full.

    As `routing.lay_trees`, for trees that goal nodes alone make up and whose branches each pay for
    the links that they take. The first resources have some time `reserved`, if only none; they are
    those that count where passes are compared, which end when none has more than `enough` beside.
    A tree has so many branches at `most` by each link, and ways to `urgent` nodes are short.
    """
    route_length, res_start, res, res_hold = routes
    num, num_nodes = len(root), goals.shape[1]
    sides = 2 if paired else 1
    trees = np.full((num, sides, num_nodes), -1, dtype=np.int32)
    roots = root.copy()
    load = np.zeros(len(slots), dtype=np.float64)
    counted = len(reserved)
    load[:counted] = reserved
    hold = np.empty(len(res), dtype=np.float64)
    for i in range(len(res)):
        hold[i] = res_hold[i] / slots[res[i]]
    price = np.empty(len(slots), dtype=np.float64)
    for r in range(len(price)):
        price[r] = price_of(load[r], target, steepness)
    ways = res_start, res, hold
    link_length, link_res_start, link_res, link_hold = links
    bases = length_weight * link_length, link_res_start, link_res, link_hold
    cost = np.empty(len(link_length), dtype=np.float64)
    for link in range(len(cost)):
        cost[link] = _cost(link, bases, price)
    market = load, price, cost, target, steepness, holders[0], holders[1], bases, counted
    best_load, stale = np.inf, 0
    best_trees = trees.copy()
    state = np.uint64(seed * 2654435761 + 88172645463325252)
    order = np.arange(num)
    scratch = np.full((sides, num_nodes), -1, dtype=np.int32)
    chosen = np.full((sides, num_nodes), -1, dtype=np.int32)
    searches = search_room(inward_corridors), search_room(outward_corridors)
    for iteration in range(passes):
        state = shuffle(order, state)
        for k in order:
            over = iteration == 0
            for side in range(sides):
                over = over or is_overloaded(trees[k, side], res_start, res, load, target)
            if not over:
                continue
            for side in range(sides):
                _charge(trees[k, side], -1.0, ways, market)
            best_cost, best_root = np.inf, roots[k]
            wanted = goals[goal[k]]
            for attempt in range(3 if paired and iteration > 0 else 1):
                candidate = roots[k]
                if attempt > 0:
                    state = next_random(state)
                    places = np.flatnonzero(wanted)
                    candidate = places[np.int64(state % np.uint64(len(places)))]
                paid = 0.0
                for side in range(sides):
                    away = outward if sides == 1 else side == 1
                    paid += _grow(
                        candidate,
                        urgent,
                        wanted,
                        outward_corridors if away else inward_corridors,
                        route_length,
                        ways,
                        market,
                        length_weight,
                        most,
                        searches[1] if away else searches[0],
                        scratch[side],
                    )
                for side in range(sides):
                    _charge(scratch[side], -1.0, ways, market)
                if paid == np.inf:
                    return best_trees, roots, np.inf
                if paid < best_cost:
                    best_cost, best_root = paid, candidate
                    chosen[:] = scratch
            roots[k] = best_root
            trees[k] = chosen
            for side in range(sides):
                _charge(trees[k, side], 1.0, ways, market)
        peak = (load[:counted] - reserved).max()
        stale = 0 if peak < best_load * (1 - _GAIN) else stale + 1
        if peak < best_load:
            best_load = peak
            best_trees[:] = trees
        if peak <= enough or stale == _STALE:
            break
    return best_trees, roots, best_load
