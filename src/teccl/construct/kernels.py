"""Compiled inner loops of the constructive schedulers.

They work on the arrays of `Instance` only. Times are integers, in picoseconds or in epochs.
Functions are compiled on first use and cached on disk.
"""

import numpy as np

from teccl._kernels import inner, kernel, maker

_INFINITY = np.int64(2**62)


@inner
def _heap_push(keys, values, size, key, value):
    """Add an event to a binary heap ordered by key, then value."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if keys[parent] < key or (keys[parent] == key and values[parent] <= value):
            break
        keys[i], values[i] = keys[parent], values[parent]
        i = parent
    keys[i], values[i] = key, value
    return size + 1


@inner
def _heap_pop(keys, values, size):
    """Remove the first event; the caller has read it from position zero."""
    size -= 1
    key, value = keys[size], values[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            keys[right] < keys[child]
            or (keys[right] == keys[child] and values[right] < values[child])
        ):
            child = right
        if key < keys[child] or (key == keys[child] and value <= values[child]):
            break
        keys[i], values[i] = keys[child], values[child]
        i = child
    keys[i], values[i] = key, value
    return size


@maker
def _grow(array):
    bigger = np.empty(2 * len(array), dtype=array.dtype)
    bigger[: len(array)] = array
    return bigger


@inner
def _first_free_slot(slot_free, begin, end):
    best = begin
    for i in range(begin + 1, end):
        if slot_free[i] < slot_free[best]:
            best = i
    return best


@inner
def _next_random(state):
    """Xorshift: small, fast and the same on every machine."""
    x = state[0]
    x ^= (x << np.uint64(13)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x ^= x >> np.uint64(7)
    x ^= (x << np.uint64(17)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    state[0] = x
    return x


@inner
def _popcount(x):
    """Number of bits set in a 64-bit word."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@inner
def _lowest_bit(x):
    """Position of the lowest bit set."""
    return _popcount((x & (~x + np.uint64(1))) - np.uint64(1))


@inner
def _is_useful(has, want, src, dst):
    """Whether a node has some chunk that another may still receive."""
    for w in range(has.shape[1]):
        if has[src, w] & want[dst, w]:
            return True
    return False


@inner
def _is_free(route, now, res_start, res, res_offset, slot_start, slot_free):
    """Whether all resources of a route are free when a transfer would hold them."""
    for i in range(res_start[route], res_start[route + 1]):
        slot = _first_free_slot(slot_free, slot_start[res[i]], slot_start[res[i] + 1])
        if slot_free[slot] > now + res_offset[i]:
            return False
    return True


@kernel
def greedy_multicast(
    has,
    want,
    releases,
    route_src,
    route_dst,
    route_length,
    route_order,
    link_start,
    links,
    link_dst,
    res_start,
    res,
    res_offset,
    res_hold,
    slot_start,
    slot_free,
    wake_start,
    wake_offset,
    wake_route_start,
    wake_routes,
    out_start,
    out_routes,
    route_level,
    cluster,
    spread,
    join,
    thrifty,
    longest_first,
    deadline,
    seed,
):
    """Deliver chunks greedily: whenever a route is free it takes the chunk that scores least.

    Parameters
    ----------
    has, want
        Per node, bits of the chunks it holds and of those it may still receive.
    releases
        Rows (time, node, chunk) of data that becomes available later than zero.
    route_level, cluster
        Per route its level, and per level and node the set of nodes that faster routes connect.
    spread
        Per level, cluster and chunk: nodes of the cluster that hold the chunk or will; the last
        level has one cluster, everyone. A route prefers what its target's cluster lacks, then
        what is rare everywhere.
    join
        Whether a passage through a switch also serves other outputs that are free.
    thrifty
        Whether a route never brings a chunk to a cluster that has it already.
    longest_first
        Whether passages through switches with more left to carry choose first.
    deadline
        Transfers that would arrive later are not started.

    Returns
    -------
    Rows (chunk, route, start, transfer, shared links) and the finish time, or -1 when some
    wanted chunk was not delivered.
    """
    num_routes = len(route_src)
    num_chunks = spread.shape[2]
    everywhere = spread.shape[0] - 1
    words = has.shape[1]
    absent = np.full((spread.shape[0], spread.shape[1], words), ~np.uint64(0))
    state = np.array([np.uint64(seed) * np.uint64(2654435761) + np.uint64(88172645463325252)])
    keys = np.empty(1024, dtype=np.int64)
    values = np.empty(1024, dtype=np.int64)
    size = 0
    left = 0
    for node in range(want.shape[0]):
        for w in range(words):
            x = want[node, w]
            while x:
                x &= x - np.uint64(1)
                left += 1
    rows = np.empty((max(left, 1), 5), dtype=np.int64)
    num_rows = 0
    transfers = 0
    finish = np.int64(0)
    num_nodes = want.shape[0]
    marked = np.ones(num_routes, dtype=np.bool_)
    active = np.empty(num_routes, dtype=np.int64)
    turn_keys = np.empty(num_routes, dtype=np.int64)
    turn_routes = np.empty(num_routes, dtype=np.int64)
    num_active = num_routes
    for r in range(num_routes):
        active[r] = r
    chunk_base = np.int64(num_nodes) * num_chunks
    for i in range(releases.shape[0]):
        if size + 1 >= len(keys):
            keys, values = _grow(keys), _grow(values)
        size = _heap_push(
            keys, values, size, releases[i, 0], releases[i, 1] * num_chunks + releases[i, 2]
        )
    now = np.int64(0)
    one = np.uint64(1)
    while True:
        # Events of this instant: arrivals first (small values), then resources that free up.
        while size > 0 and keys[0] <= now:
            value = values[0]
            size = _heap_pop(keys, values, size)
            if value < chunk_base:
                node, chunk = value // num_chunks, value % num_chunks
                has[node, chunk >> 6] |= one << np.uint64(chunk & 63)
                for i in range(out_start[node], out_start[node + 1]):
                    r = out_routes[i]
                    if not marked[r]:
                        marked[r] = True
                        active[num_active] = r
                        num_active += 1
            else:
                wake = value - chunk_base
                for i in range(wake_route_start[wake], wake_route_start[wake + 1]):
                    r = wake_routes[i]
                    if not marked[r]:
                        marked[r] = True
                        active[num_active] = r
                        num_active += 1
        # Ties among routes of equal standing are broken anew each time, so that no pair of
        # ports is served to the end before another.
        waiting = 0
        for i in range(num_active):
            r = active[i]
            # Most routes have nothing to carry or are busy; an arrival or a release wakes them.
            if not _is_useful(has, want, route_src[r], route_dst[r]) or not _is_free(
                r, now, res_start, res, res_offset, slot_start, slot_free
            ):
                marked[r] = False
                continue
            backlog = np.int64(0)
            if longest_first and link_start[r + 1] - link_start[r] > 1:
                level, home = route_level[r], cluster[route_level[r], route_dst[r]]
                for w in range(words):
                    x = has[route_src[r], w] & want[route_dst[r], w] & absent[level, home, w]
                    backlog += _popcount(x)
            rank = (route_order[r] << 44) - (backlog << 20)
            rank += np.int64(_next_random(state) >> np.uint64(44))
            waiting = _heap_push(turn_keys, turn_routes, waiting, rank, r)
        num_active = 0
        while waiting > 0:
            r = turn_routes[0]
            waiting = _heap_pop(turn_keys, turn_routes, waiting)
            marked[r] = False
            u, v = route_src[r], route_dst[r]
            if now + route_length[r] > deadline:
                continue
            if not _is_free(r, now, res_start, res, res_offset, slot_start, slot_free):
                continue
            best, best_score = np.int64(-1), _INFINITY
            level = route_level[r]
            home = cluster[level, v]
            # First among what the target's cluster lacks, else among everything.
            local = False
            for w in range(words):
                if has[u, w] & want[v, w] & absent[level, home, w]:
                    local = True
                    break
            if thrifty and not local:
                continue
            for w in range(words):
                x = has[u, w] & want[v, w]
                if local:
                    x &= absent[level, home, w]
                while x:
                    bit = _lowest_bit(x)
                    x &= x - one
                    chunk = w * 64 + bit
                    near = np.int64(spread[level, home, chunk])
                    value = (near << 40) + (np.int64(spread[everywhere, 0, chunk]) << 8)
                    value += np.int64(_next_random(state) & np.uint64(255))
                    if value < best_score:
                        best, best_score = np.int64(chunk), value
            if best < 0:
                continue
            # Book the route, then let other outputs of the same switch join the passage.
            members = 1
            first_link = links[link_start[r]]
            candidates = (
                out_start[u + 1] - out_start[u]
                if join and link_start[r + 1] - link_start[r] > 1
                else 0
            )
            for k in range(-1, candidates):
                q = r if k < 0 else out_routes[out_start[u] + k]
                shared = 0
                if k >= 0:
                    if q == r or links[link_start[q]] != first_link:
                        continue
                    bit_word, bit_mask = best >> 6, one << np.uint64(best & 63)
                    if not (want[route_dst[q], bit_word] & bit_mask):
                        continue
                    if now + route_length[q] > deadline:
                        continue
                    if spread[route_level[q], cluster[route_level[q], route_dst[q]], best] > 0:
                        continue
                    # Links that an earlier member of this passage has booked already.
                    for m in range(members):
                        p = rows[num_rows - 1 - m, 1]
                        same = 0
                        while (
                            same < link_start[q + 1] - link_start[q]
                            and same < link_start[p + 1] - link_start[p]
                            and links[link_start[q] + same] == links[link_start[p] + same]
                        ):
                            same += 1
                        shared = max(shared, same)
                    # A passage is a tree: it enters every switch once.
                    clash = False
                    for m in range(members):
                        p = rows[num_rows - 1 - m, 1]
                        for a in range(link_start[q] + shared, link_start[q + 1] - 1):
                            for b in range(link_start[p], link_start[p + 1] - 1):
                                if link_dst[links[a]] == link_dst[links[b]]:
                                    clash = True
                    if clash:
                        continue
                    fits = True
                    skip = _resources_of_links(links, link_start, res, res_start, q, shared)
                    for i in range(res_start[q] + skip, res_start[q + 1]):
                        slot = _first_free_slot(
                            slot_free, slot_start[res[i]], slot_start[res[i] + 1]
                        )
                        if slot_free[slot] > now + res_offset[i]:
                            fits = False
                            break
                    if not fits:
                        continue
                    members += 1
                skip = _resources_of_links(links, link_start, res, res_start, q, shared)
                for i in range(res_start[q] + skip, res_start[q + 1]):
                    slot = _first_free_slot(slot_free, slot_start[res[i]], slot_start[res[i] + 1])
                    until = now + res_offset[i] + res_hold[i]
                    slot_free[slot] = max(slot_free[slot], until)
                    for wake in range(wake_start[res[i]], wake_start[res[i] + 1]):
                        time = until - wake_offset[wake]
                        if time > now:
                            if size + 1 >= len(keys):
                                keys, values = _grow(keys), _grow(values)
                            size = _heap_push(keys, values, size, time, chunk_base + wake)
                arrival = now + route_length[q]
                d = route_dst[q]
                want[d, best >> 6] &= ~(one << np.uint64(best & 63))
                for j in range(everywhere + 1):
                    spread[j, cluster[j, d], best] += 1
                    absent[j, cluster[j, d], best >> 6] &= ~(one << np.uint64(best & 63))
                left -= 1
                finish = max(finish, arrival)
                rows[num_rows, 0] = best
                rows[num_rows, 1] = q
                rows[num_rows, 2] = now
                rows[num_rows, 3] = transfers
                rows[num_rows, 4] = shared
                num_rows += 1
                if size + 1 >= len(keys):
                    keys, values = _grow(keys), _grow(values)
                size = _heap_push(keys, values, size, arrival, d * num_chunks + best)
            transfers += 1
            # A route whose resources hold several chunks at once may start another now.
            again = True
            for i in range(res_start[r], res_start[r + 1]):
                if slot_start[res[i] + 1] - slot_start[res[i]] == 1:
                    again = False
            if again:
                marked[r] = True
                active[num_active] = r
                num_active += 1
        if num_active:
            continue
        if left == 0 or size == 0:
            break
        now = max(now, keys[0])
    return rows[:num_rows], finish if left == 0 else np.int64(-1)


@inner
def _resources_of_links(links, link_start, res, res_start, route, count):
    """Number of resource entries that belong to the first `count` links of a route."""
    if count == 0:
        return 0
    if count == link_start[route + 1] - link_start[route]:
        return res_start[route + 1] - res_start[route]
    boundary = links[link_start[route] + count]
    for i in range(res_start[route], res_start[route + 1]):
        if res[i] == boundary:
            return i - res_start[route]
    return 0


@kernel
def replay(
    res_start,
    res,
    res_offset,
    res_hold,
    waits,
    next_start,
    next_task,
    next_lag,
    release,
    order,
    slot_start,
    slot_free,
):
    """Start tasks in a given order, each as early as its inputs and resources allow.

    The order must list every task after those it waits for; -1 marks tasks that came too early.
    """
    start = np.full(len(order), -1, dtype=np.int64)
    ready = release.copy()
    waits = waits.copy()
    for index in range(len(order)):
        t = order[index]
        if waits[t] > 0:
            continue
        now = ready[t]
        for i in range(res_start[t], res_start[t + 1]):
            slot = _first_free_slot(slot_free, slot_start[res[i]], slot_start[res[i] + 1])
            now = max(now, slot_free[slot] - res_offset[i])
        start[t] = now
        for i in range(res_start[t], res_start[t + 1]):
            slot = _first_free_slot(slot_free, slot_start[res[i]], slot_start[res[i] + 1])
            slot_free[slot] = max(slot_free[slot], now + res_offset[i] + res_hold[i])
        for i in range(next_start[t], next_start[t + 1]):
            s = next_task[i]
            waits[s] -= 1
            ready[s] = max(ready[s], now + next_lag[i])
    return start
