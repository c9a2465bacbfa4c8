"""Compiled search for routes: several between each two GPUs, unlike each other.

The first route of a pair has the least latency, the second the least time for each byte. Those that
follow pay for a link once more each time an earlier one of the pair has used it, so that they use
others where there are any. At last, as in a mesh, come all relays that need no link of these.
"""

import numpy as np

from teccl._kernels import kernel

# Part of the other figure that decides between routes of equal latency, or equal time for a byte.
_TIE = 1e-6
# Searches in a row that find a known route again, after which there is hardly another.
_STALE = 3


@kernel
def _shortest(src, goal, cost, fan_start, fan, way_end, via, dist):
    """Find the cheapest passages from a GPU to another; `via` is the passage into each."""
    dist[:] = np.inf
    is_done = np.zeros(len(dist), dtype=np.bool_)
    dist[src] = 0.0
    via[src] = -1
    while True:
        node, least = -1, np.inf
        for i in range(len(dist)):
            if not is_done[i] and dist[i] < least:
                node, least = i, dist[i]
        if node < 0 or node == goal:
            return
        is_done[node] = True
        for i in range(fan_start[node], fan_start[node + 1]):
            way = fan[i]
            reached = least + cost[way]
            if reached < dist[way_end[way]]:
                dist[way_end[way]] = reached
                via[way_end[way]] = way


@kernel
def _trace(goal, via, way_begin, route):
    """List the passages to a GPU, first to last; returns how many."""
    count, node = 0, goal
    while via[node] >= 0:
        route[count] = via[node]
        node = way_begin[via[node]]
        count += 1
    for i in range(count // 2):
        route[i], route[count - 1 - i] = route[count - 1 - i], route[i]
    return count


@kernel
def _is_known(found, count, start, ways, first, last):
    """Whether a route is among those of its pair."""
    for r in range(first, last):
        if start[r + 1] - start[r] == count:
            same = True
            for k in range(count):
                same = same and ways[start[r] + k] == found[k]
            if same:
                return True
    return False


@kernel
def _costs(way_start, links, per_byte, uses, cost):
    """Set what each passage costs a pair whose routes have used links already."""
    for way in range(len(way_start) - 1):
        cost[way] = 0.0
        for k in range(way_start[way], way_start[way + 1]):
            cost[way] += per_byte[links[k]] * (1 + uses[links[k]])


@kernel
def _use(route, way_start, links, uses):
    """Note that a route of the pair uses its links."""
    for way in route:
        for i in range(way_start[way], way_start[way + 1]):
            uses[links[i]] += 1


@kernel
def _are_unused(route, way_start, links, uses):
    """Whether no route of the pair uses any of the links."""
    for way in route:
        for i in range(way_start[way], way_start[way + 1]):
            if uses[links[i]]:
                return False
    return True


@kernel
def _last(way, dst, way_end, fan_start, fan):
    """Return the first passage that leads on from another to a GPU, -1 if there is none."""
    node = way_end[way]
    for i in range(fan_start[node], fan_start[node + 1]):
        if way_end[fan[i]] == dst:
            return fan[i]
    return -1


@kernel
def _noted(route, count, num_routes, start, ways):
    """Append a route to the list of all; returns their number and the list, grown if need be."""
    end = start[num_routes] + count
    while end > len(ways):
        ways = np.concatenate((ways, np.empty_like(ways)))
    if num_routes + 1 == len(start):
        start = np.concatenate((start, np.empty_like(start)))
    ways[start[num_routes] : end] = route[:count]
    start[num_routes + 1] = end
    return num_routes + 1, start, ways


@kernel
def find_routes(
    way_start, links, way_begin, way_end, fan_start, fan, num_gpus, latency, per_byte, most
):
    """Find routes for all pairs: where those of each pair begin, and the passages of each.

    A pair that no passages join has no route.
    """
    pair_start = np.zeros(num_gpus * num_gpus + 1, dtype=np.int64)
    start = np.zeros(1024, dtype=np.int64)
    ways = np.empty(1024, dtype=np.int64)
    via, dist = np.empty(num_gpus, dtype=np.int64), np.empty(num_gpus)
    route = np.empty(num_gpus, dtype=np.int64)
    cost, uses = np.empty(len(way_start) - 1), np.zeros(len(latency), dtype=np.int64)
    num_routes = 0
    for pair in range(num_gpus * num_gpus):
        src, dst = pair // num_gpus, pair % num_gpus
        first, stale = num_routes, 0
        uses[:] = 0
        for turn in range(most if src != dst else 0):
            if turn == 0:
                _costs(way_start, links, latency + _TIE * per_byte, uses, cost)
            else:
                _costs(way_start, links, per_byte + _TIE * latency, uses, cost)
            _shortest(src, dst, cost, fan_start, fan, way_end, via, dist)
            if dist[dst] == np.inf:
                break
            count = _trace(dst, via, way_begin, route)
            if turn:
                _use(route[:count], way_start, links, uses)
            if _is_known(route, count, start, ways, first, num_routes):
                stale += 1
                if stale == _STALE:
                    break
                continue
            stale = 0
            num_routes, start, ways = _noted(route, count, num_routes, start, ways)
        for i in range(fan_start[src], fan_start[src + 1] if num_routes > first else 0):
            if not _are_unused(fan[i : i + 1], way_start, links, uses):
                continue
            route[0], route[1] = fan[i], _last(fan[i], dst, way_end, fan_start, fan)
            if route[1] >= 0 and _are_unused(route[1:2], way_start, links, uses):
                num_routes, start, ways = _noted(route, 2, num_routes, start, ways)
                _use(route[:2], way_start, links, uses)
        pair_start[pair + 1] = num_routes
    return pair_start, start[: num_routes + 1].copy(), ways[: start[num_routes]].copy()
