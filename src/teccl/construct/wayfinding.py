"""Compiled laying of paths, source by source, under prices that grow with the load of resources."""

import numpy as np

from teccl._kernels import inner, kernel, maker
from teccl.construct.kernels import _heap_pop, _heap_push
from teccl.construct.routing import price_of, shuffle


@maker
def _empty_market(res, res_hold, slots, target, steepness):
    """Return how long routes hold a share of each resource, and loads and prices without any."""
    load = np.zeros(len(slots), dtype=np.float64)
    price = np.full(len(slots), price_of(0.0, target, steepness))
    hold = np.empty(len(res), dtype=np.float64)
    for i in range(len(res)):
        hold[i] = res_hold[i] / slots[res[i]]
    return hold, (load, price, target, steepness)


@inner
def _charge(first, last, hops, sign, res_start, res, hold, market):
    """Add (or take away) the load of the routes of a path and set the prices anew."""
    load, price, target, steepness = market
    for h in range(first, last):
        for i in range(res_start[hops[h]], res_start[hops[h] + 1]):
            load[res[i]] += sign * hold[i]
            price[res[i]] = price_of(load[res[i]], target, steepness)


@maker
def _overloaded(chosen, first, last, hops, res_start, res, load, target):
    """Of some paths, those that use a resource which is over its target."""
    found = np.empty(len(chosen), dtype=np.int64)
    count = 0
    for k in chosen:
        is_over = False
        for h in range(first[k], last[k]):
            for i in range(res_start[hops[h]], res_start[hops[h] + 1]):
                is_over = is_over or load[res[i]] > target
            if is_over:
                break
        if is_over:
            found[count] = k
            count += 1
    return found[:count]


@inner
def _link_cost(link, links, price, load_weight, length_weight):
    """What a link costs: its time, and the prices of what it holds."""
    length, start, res, hold = links
    cost = length_weight * length[link]
    if load_weight > 0.0:
        for i in range(start[link], start[link + 1]):
            cost += load_weight * hold[i] * price[res[i]]
    return cost


@inner
def cheapest(root, ends, corridors, links, price, weights, route_length, farthest, heap, tree):
    """Find cheapest paths from a node to some others; false when one of them is out of reach.

    Paths lead from nodes into corridors, which are numbered after the nodes, and out of them; each
    node gets the last route and where that begins, each corridor where it is entered. Of those that
    cost the same the first is settled first, so that ways do not depend on the heap.
    """
    near_start, near_node, near_link, far_start, far_node, far_link = corridors[:6]
    inner_start, inner_link, route_start, route = corridors[6:10]
    touching_start, touching, near_place = corridors[10:]
    load_weight, length_weight = weights
    keys, values = heap
    cost, far, entry, place, is_settled, is_end = tree
    num_nodes = len(touching_start) - 1
    cost[:] = np.inf
    is_settled[:] = False
    left = 0
    for v in ends:
        left += v != root and not is_end[v]
        is_end[v] = v != root
    cost[root], far[root] = 0.0, 0.0
    size = _heap_push(keys, values, 0, 0.0, root)
    while size and left:
        u = values[0]
        size = _heap_pop(keys, values, size)
        if is_settled[u]:
            continue
        is_settled[u] = True
        if u < num_nodes:
            left -= is_end[u]
            for i in range(touching_start[u], touching_start[u + 1]):
                c = touching[i]
                if near_place[i] < 0 or is_settled[num_nodes + c]:
                    continue
                link = near_link[near_place[i]]
                paid = cost[u] + _link_cost(link, links, price, load_weight, length_weight)
                for j in range(inner_start[c], inner_start[c + 1]):
                    paid += _link_cost(inner_link[j], links, price, load_weight, length_weight)
                if paid < cost[num_nodes + c]:
                    cost[num_nodes + c] = paid
                    entry[num_nodes + c] = near_place[i]
                    size = _heap_push(keys, values, size, paid, num_nodes + c)
            continue
        c = u - num_nodes
        before = far[near_node[entry[u]]]
        for j in range(far_start[c], far_start[c + 1]):
            v = far_node[j]
            width = far_start[c + 1] - far_start[c]
            r = route[route_start[c] + (entry[u] - near_start[c]) * width + j - far_start[c]]
            if is_settled[v] or r < 0 or before + route_length[r] > farthest:
                continue
            paid = cost[u]
            if far_link[j] >= 0:
                paid += _link_cost(far_link[j], links, price, load_weight, length_weight)
            if paid < cost[v]:
                cost[v], far[v], entry[v], place[v] = paid, before + route_length[r], r, entry[u]
                size = _heap_push(keys, values, size, paid, v)
    for v in ends:
        is_end[v] = False
    return left == 0


@maker
def search_room(corridors):
    """Return a heap and a tree for `cheapest`."""
    num_nodes, count = len(corridors[10]) - 1, len(corridors[0]) - 1
    # Whatever is settled is entered from each side once.
    room = len(corridors[1]) + len(corridors[4]) + 1
    heap = np.empty(room), np.empty(room, dtype=np.int64)
    tree = (
        np.empty(num_nodes + count),
        np.zeros(num_nodes),
        np.empty(num_nodes + count, dtype=np.int64),
        np.empty(num_nodes, dtype=np.int64),
        np.zeros(num_nodes + count, dtype=np.bool_),
        np.zeros(num_nodes, dtype=np.bool_),
    )
    return heap, tree


@inner
def _trace(root, end, entry, place, near_node, hops, first):
    """Write the routes of a path behind those that there are; returns how many it has."""
    count = 0
    v = end
    while v != root:
        v = near_node[place[v]]
        count += 1
    v = end
    for h in range(first + count - 1, first - 1, -1):
        hops[h] = entry[v]
        v = near_node[place[v]]
    return count


@maker
def _with_room(hops, used, count):
    """Return the hops with room for so many more."""
    if used + count <= len(hops):
        return hops
    bigger = np.empty(2 * (used + count), dtype=hops.dtype)
    for h in range(used):
        bigger[h] = hops[h]
    return bigger


@maker
def _gathered(first, last, hops):
    """Return paths one after the other in their order, without those that were given up."""
    starts = np.zeros(len(first) + 1, dtype=np.int64)
    for k in range(len(first)):
        starts[k + 1] = starts[k] + last[k] - first[k]
    routes = np.empty(starts[-1], dtype=np.int64)
    for k in range(len(first)):
        for h in range(last[k] - first[k]):
            routes[starts[k] + h] = hops[first[k] + h]
    return starts, routes


@maker
def _batches(chosen, source, num_nodes, most, state):
    """Sort paths by source, at random otherwise, into batches of so many of one source at most.

    Returns the paths, where batches begin, in what order they have their turn and the next state.
    """
    state = shuffle(chosen, state)
    place = np.zeros(num_nodes + 1, dtype=np.int64)
    for k in chosen:
        place[source[k] + 1] += 1
    for v in range(num_nodes):
        place[v + 1] += place[v]
    begin = np.empty(len(chosen) + 1, dtype=np.int64)
    count = 0
    for v in range(num_nodes):
        for i in range(place[v], place[v + 1], most):
            begin[count] = i
            count += 1
    begin[count] = len(chosen)
    ordered = np.empty_like(chosen)
    for k in chosen:
        ordered[place[source[k]]] = k
        place[source[k]] += 1
    turns = np.arange(count)
    state = shuffle(turns, state)
    return ordered, begin, turns, state


@kernel
def lay_paths(
    source,
    end,
    most,
    routes,
    slots,
    links,
    corridors,
    length_weight,
    target,
    steepness,
    passes,
    seed,
    stretch,
):
    """Lay a path from every source to its end so that the fullest resource is least full.

    As `routing.lay_trees`, but paths of one source are laid in batches, of so many at `most`, each
    along one tree of cheapest paths: prices stay as they are until the batch is laid.

    Returns a CSR list of each path's routes, and the load of the fullest resource; infinite when an
    end is out of reach.
    """
    route_length, res_start, res, res_hold = routes
    num, num_nodes = len(source), len(corridors[10]) - 1
    first, last = np.zeros(num, dtype=np.int64), np.zeros(num, dtype=np.int64)
    hops, used = np.empty(4 * num + num_nodes, dtype=np.int64), 0
    hold, market = _empty_market(res, res_hold, slots, target, steepness)
    load, price = market[:2]
    heap, tree = search_room(corridors)
    _, far, entry, place, _, _ = tree
    state = np.uint64(seed * 2654435761 + 88172645463325252)
    best_load = np.inf
    best_starts, best_routes = _gathered(first, last, hops)
    longest = 0.0
    for iteration in range(passes):
        chosen = np.arange(num)
        if iteration > 0:
            chosen = _overloaded(chosen, first, last, hops, res_start, res, load, target)
        if len(chosen) == 0:
            break
        chosen, begin, turns, state = _batches(chosen, source, num_nodes, most, state)
        weights = (0.0, 1.0 + length_weight) if iteration == 0 else (1.0, length_weight)
        farthest = np.inf if iteration == 0 else stretch * longest
        for turn in turns:
            batch = chosen[begin[turn] : begin[turn + 1]]
            if iteration > 0:
                # Others may have made room by now.
                batch = _overloaded(batch, first, last, hops, res_start, res, load, target)
                if len(batch) == 0:
                    continue
            for k in batch:
                _charge(first[k], last[k], hops, -1.0, res_start, res, hold, market)
            root = source[batch[0]]
            is_found = cheapest(
                root,
                end[batch],
                corridors,
                links,
                price,
                weights,
                route_length,
                farthest,
                heap,
                tree,
            )
            if not is_found and iteration == 0:
                return best_starts, best_routes, np.inf
            for k in batch:
                if is_found:
                    hops = _with_room(hops, used, num_nodes)
                    count = _trace(root, end[k], entry, place, corridors[1], hops, used)
                    first[k], last[k] = used, used + count
                    used += count
                    if iteration == 0:
                        longest = max(longest, far[end[k]])
                _charge(first[k], last[k], hops, 1.0, res_start, res, hold, market)
        starts, laid = _gathered(first, last, hops)
        peak = load.max()
        if peak < best_load * (1 - 1e-9):
            best_load = peak
            best_starts, best_routes = starts, laid
        # What was given up is left out before the next pass.
        used = len(laid)
        for h in range(used):
            hops[h] = laid[h]
        for k in range(num):
            first[k], last[k] = starts[k], starts[k + 1]
    return best_starts, best_routes, best_load


@kernel
def choose_routes(begin, option, routes, slots, length_weight, target, steepness, passes, seed):
    """Choose one of its own routes for every path so that the fullest resource is least full.

    Returns the routes, and the load of the fullest resource.
    """
    route_length, res_start, res, res_hold = routes
    hold, market = _empty_market(res, res_hold, slots, target, steepness)
    load, price = market[:2]
    num = len(begin) - 1
    first, last = np.arange(num), np.arange(1, num + 1)
    chosen = np.full(num, -1)
    best, best_load = chosen.copy(), np.inf
    state = np.uint64(seed * 2654435761 + 88172645463325252)
    for iteration in range(passes):
        turns = np.arange(num)
        if iteration > 0:
            turns = _overloaded(turns, first, last, chosen, res_start, res, load, target)
        state = shuffle(turns, state)
        for k in turns:
            if iteration > 0:
                _charge(k, k + 1, chosen, -1.0, res_start, res, hold, market)
            least = np.inf
            for j in range(begin[k], begin[k + 1]):
                r = option[j]
                cost = length_weight * route_length[r]
                for i in range(res_start[r], res_start[r + 1]):
                    cost += hold[i] * price[res[i]]
                if cost < least:
                    least, chosen[k] = cost, r
            _charge(k, k + 1, chosen, 1.0, res_start, res, hold, market)
        if load.max() < best_load * (1 - 1e-9):
            best, best_load = chosen.copy(), load.max()
        if len(turns) == 0:
            break
    return best, best_load
