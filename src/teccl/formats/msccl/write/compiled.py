"""Compiled inner loops of the lowering, over transfers and steps as arrays.

Events are sorted by chunk, then time, what happens, and transfer: nothing that happens to a chunk
concerns another. Functions are compiled on first use and cached on disk.
"""

import numpy as np

from teccl._kernels import kernel

# What happens to a GPU's copy of a chunk at one instant, in this order.
MERGE, REPLACE, SEND = range(3)
_NEVER = np.int64(1 << 62)


@kernel
def _grown(array):
    bigger = np.empty(2 * len(array), dtype=array.dtype)
    for i in range(len(array)):
        bigger[i] = array[i]
    return bigger


@kernel
def useful(events, action, first, src, dst, combined, is_source, is_wanted):
    """Say which transfers bring something new that leads to a destination.

    Parameters
    ----------
    events, action
        Transfer and kind of every event.
    first
        Place of each chunk's first event, and of the end.
    src, dst
        Ranks of every transfer.
    combined
        Whether contributions to a chunk are combined.
    is_source, is_wanted
        By chunk and rank.
    """
    kept = np.zeros(len(src), dtype=np.bool_)
    useless = np.zeros(len(src), dtype=np.bool_)
    for chunk in range(len(first) - 1):
        begin, end = first[chunk], first[chunk + 1]
        if not combined[chunk]:
            held = is_source[chunk].copy()
            for e in range(begin, end):
                t = events[e]
                if action[e] != SEND:
                    useless[t] = held[dst[t]]
                    held[dst[t]] = True
        # Backwards: a place is live while its content will still be wanted or sent.
        live = is_wanted[chunk].copy()
        for e in range(end - 1, begin - 1, -1):
            t = events[e]
            if action[e] == SEND:
                if kept[t]:
                    live[src[t]] = True
            elif not useless[t] and live[dst[t]]:
                kept[t] = True
                live[dst[t]] = action[e] == MERGE
    return kept


@kernel
def history(events, action, first, src, dst, start, arrival, merges, combined, ranks):
    """Walk over the events of each chunk and note who uses what; see `History`."""
    count = len(src)
    available = np.zeros(count, dtype=np.int64)
    needed = np.full(count, _NEVER)
    quiet = np.zeros(count, dtype=np.int64)
    feeder_first = np.zeros(count, dtype=np.int64)
    feeder_count = np.zeros(count, dtype=np.int64)
    feeders = np.empty(max(16, count), dtype=np.int64)
    num_feeders = 0
    followers = np.empty(max(16, count), dtype=np.int64)
    num_followers = 0
    successors = np.empty(16, dtype=np.int64)
    num_successors = 0
    most = 0
    for chunk in range(len(first) - 1):
        most = max(most, first[chunk + 1] - first[chunk])
    # Transfers of one chunk are numbered, so that a set of them is a row of bits.
    number = np.zeros(count, dtype=np.int64)
    lineage = np.zeros((most // 2 + 1, most // 128 + 1), dtype=np.uint64)
    arrived = np.empty((ranks, most), dtype=np.int64)
    sent = np.empty((ranks, most), dtype=np.int64)
    num_arrived = np.zeros(ranks, dtype=np.int64)
    num_sent = np.zeros(ranks, dtype=np.int64)
    last = np.zeros(ranks, dtype=np.int64)
    for chunk in range(len(first) - 1):
        for rank in range(ranks):
            num_arrived[rank] = num_sent[rank] = last[rank] = 0
        seen = 0
        for e in range(first[chunk], first[chunk + 1]):
            t = events[e]
            if action[e] == SEND:
                rank = src[t]
                number[t] = seen
                own = lineage[seen]
                for word in range(len(own)):
                    own[word] = 0
                own[seen >> 6] |= np.uint64(1) << np.uint64(seen & 63)
                seen += 1
                feeder_first[t], feeder_count[t] = num_feeders, num_arrived[rank]
                while num_feeders + num_arrived[rank] > len(feeders):
                    feeders = _grown(feeders)
                for i in range(num_arrived[rank]):
                    feeder = arrived[rank, i]
                    feeders[num_feeders] = feeder
                    num_feeders += 1
                    needed[feeder] = min(needed[feeder], start[t])
                    for word in range(len(own)):
                        own[word] |= lineage[number[feeder], word]
                if num_arrived[rank]:
                    available[t] = last[rank]
                if combined[chunk]:
                    sent[rank, num_sent[rank]] = t
                    num_sent[rank] += 1
                continue
            rank = dst[t]
            stores = action[e] == REPLACE
            if combined[chunk]:
                own = lineage[number[t]]
                quiet[t] = last[rank]
                for i in range(num_sent[rank]):
                    earlier = sent[rank, i]
                    quiet[t] = max(quiet[t], start[earlier])
                    # What the data of this arrival includes is ordered before it anyway.
                    if _reaches_beyond(lineage[number[earlier]], own):
                        if num_followers + 2 > len(followers):
                            followers = _grown(followers)
                        followers[num_followers] = earlier
                        followers[num_followers + 1] = t
                        num_followers += 2
                for i in range(num_arrived[rank]):
                    earlier = arrived[rank, i]
                    # Two that are combined may come in any order.
                    if (stores or not merges[earlier]) and _reaches_beyond(
                        lineage[number[earlier]], own
                    ):
                        if num_successors + 2 > len(successors):
                            successors = _grown(successors)
                        successors[num_successors] = earlier
                        successors[num_successors + 1] = t
                        num_successors += 2
                num_sent[rank] = 0
            if stores:
                num_arrived[rank] = 0
            arrived[rank, num_arrived[rank]] = t
            num_arrived[rank] += 1
            last[rank] = arrival[t]
    return (
        feeder_first,
        feeder_count,
        feeders[:num_feeders],
        followers[:num_followers],
        successors[:num_successors],
        available,
        needed,
        quiet,
    )


@kernel
def _reaches_beyond(one, other):
    """Whether a set has a member that another has not."""
    for word in range(len(one)):
        if one[word] & ~other[word]:
            return True
    return False


@kernel
def join_levels(level, src, dst, start, arrival, available, needed, quiet, ranks):
    """Give sends that lose no time by it the level of the one before on their connection."""
    first = np.full(ranks * ranks, -1)
    since = np.zeros(ranks * ranks, dtype=np.int64)
    passed_on = np.zeros(ranks * ranks, dtype=np.int64)
    for t in range(len(src)):
        c = src[t] * ranks + dst[t]
        if (
            first[c] >= 0
            and available[t] <= since[c]
            and quiet[t] <= since[c]
            and passed_on[c] >= arrival[t]
        ):
            level[t] = first[c]
            passed_on[c] = min(passed_on[c], needed[t])
        else:
            first[c], since[c], passed_on[c] = level[t], start[t], needed[t]


@kernel
def settle_levels(level, feeder_first, feeder_count, feeders, followers, successors, passes):
    """Raise levels until each transfer is above what it carries and not below what it follows."""
    for _ in range(passes):
        changed = False
        # Feeders start earlier and so stand earlier in the list.
        for t in range(len(level)):
            for i in range(feeder_first[t], feeder_first[t] + feeder_count[t]):
                level[t] = max(level[t], level[feeders[i]] + 1)
        for i in range(len(successors)):
            earlier, later = successors[i]
            if level[later] <= level[earlier]:
                level[later] = level[earlier] + 1
                changed = True
        for i in range(len(followers)):
            earlier, later = followers[i]
            if level[later] < level[earlier]:
                level[later] = level[earlier]
                changed = True
        if not changed:
            break


@kernel
def block_positions(first, piece, group, weight, pieces, neighbours, passes, tiny):
    """Order the pieces of each block so that those that travel together are neighbours.

    Parameters
    ----------
    first
        Place of each block's first transfer, and of the end.
    piece, group
        Of every transfer, sorted by block, group and piece; those of a group travel together.
    weight
        What neighbours of a group save, by group.
    pieces
        Pieces of a block.
    neighbours, passes, tiny
        How many others are tried as a piece's neighbour, how often, and gains that are rounding.

    Returns
    -------
    array
        Position by block and piece.
    """
    result = np.empty((len(first) - 1, pieces), dtype=np.int64)
    for block in range(len(first) - 1):
        shared = np.zeros((pieces, pieces), dtype=np.float32)
        begin = first[block]
        while begin < first[block + 1]:
            end = begin
            while end < first[block + 1] and group[end] == group[begin]:
                end += 1
            saved = np.float32(weight[group[begin]])
            for i in range(begin, end):
                row = shared[piece[i]]
                for other in piece[i + 1 : end]:
                    row[other] += saved
            begin = end
        for i in range(pieces):
            for j in range(i):
                shared[i, j] = shared[j, i]
        tour = _tour(shared)
        _improve(shared, tour, neighbours, passes, tiny)
        for place in range(pieces):
            result[block, tour[place]] = place
    return result


@kernel
def _tour(shared):
    """Go from piece to piece, always to the one that shares most."""
    size = len(shared)
    tour = np.empty(size, dtype=np.int64)
    left = np.ones(size, dtype=np.bool_)
    tour[0] = 0
    left[0] = False
    for i in range(1, size):
        best = -1
        for other in range(size):
            if left[other] and (best < 0 or shared[tour[i - 1], other] > shared[tour[i - 1], best]):
                best = other
        tour[i] = best
        left[best] = False
    return tour


@kernel
def _nearest(shared, most):
    """For each piece, those that share most with it, best first, -1 where there are fewer."""
    nearest = np.full((len(shared), most), -1)
    for piece in range(len(shared)):
        own = nearest[piece]
        for other in range(len(shared)):
            value = shared[piece, other]
            last = own[most - 1]
            if other == piece or value <= 0 or (last >= 0 and value <= shared[piece, last]):
                continue
            place = most - 1
            while place > 0 and (own[place - 1] < 0 or shared[piece, own[place - 1]] < value):
                own[place] = own[place - 1]
                place -= 1
            own[place] = other
    return nearest


@kernel
def _gain(shared, order, first, last):
    """What reversing order[first .. last] gains: two neighbourhoods end, two begin."""
    gain = 0.0
    if first > 0:
        before = order[first - 1]
        gain += shared[before, order[last]] - shared[before, order[first]]
    if last + 1 < len(order):
        after = order[last + 1]
        gain += shared[order[first], after] - shared[order[last], after]
    return gain


@kernel
def _improve(shared, order, neighbours, passes, tiny):
    """Reverse stretches of a tour while that gains (2-opt), to make near pieces neighbours."""
    size = len(order)
    place = np.empty(size, dtype=np.int64)
    for i in range(size):
        place[order[i]] = i
    nearest = _nearest(shared, min(neighbours, size))
    for _ in range(passes):
        changed = False
        for piece in range(size):
            for other in nearest[piece]:
                if other < 0:
                    break
                low, high = min(place[piece], place[other]), max(place[piece], place[other])
                # The second of the two moves to the first, or the first to the second.
                first, last = low + 1, high
                if _gain(shared, order, low, high - 1) > _gain(shared, order, first, last):
                    first, last = low, high - 1
                if first >= last or _gain(shared, order, first, last) <= tiny:
                    continue
                changed = True
                while first < last:
                    order[first], order[last] = order[last], order[first]
                    place[order[first]], place[order[last]] = first, last
                    first, last = first + 1, last - 1
        if not changed:
            break


@kernel
def _note(latest, touched, num_touched, block, step, other):
    """Remember another block's latest step; return how many blocks are remembered."""
    b = block[other]
    if b == block[step]:
        return num_touched
    if latest[b] < 0:
        touched[num_touched] = b
        num_touched += 1
    latest[b] = max(latest[b], other)
    return num_touched


@kernel
def _candidates(block, reads, writes, count, num_blocks, num_cells):
    """For each step, the latest step of every other block whose accesses it must come after.

    The result is each step's first place in a list of steps, and that list.
    """
    size = len(block)
    written = np.full(num_cells, -1)
    # Readers of a cell since it was written are a chain.
    reader = np.full(num_cells, -1)
    reads_of = np.empty(max(16, size), dtype=np.int64)
    chain = np.empty(max(16, size), dtype=np.int64)
    num_reads = 0
    latest = np.full(num_blocks, -1)
    touched = np.empty(num_blocks, dtype=np.int64)
    first = np.zeros(size + 1, dtype=np.int64)
    found = np.empty(max(16, size), dtype=np.int64)
    num_found = 0
    for step in range(size):
        num_touched = 0
        if reads[step] >= 0:
            for cell in range(reads[step], reads[step] + count[step]):
                if written[cell] >= 0:
                    num_touched = _note(latest, touched, num_touched, block, step, written[cell])
                if num_reads == len(chain):
                    reads_of, chain = _grown(reads_of), _grown(chain)
                reads_of[num_reads], chain[num_reads] = step, reader[cell]
                reader[cell] = num_reads
                num_reads += 1
        if writes[step] >= 0:
            for cell in range(writes[step], writes[step] + count[step]):
                if written[cell] >= 0:
                    num_touched = _note(latest, touched, num_touched, block, step, written[cell])
                node = reader[cell]
                while node >= 0:
                    num_touched = _note(latest, touched, num_touched, block, step, reads_of[node])
                    node = chain[node]
                reader[cell] = -1
                written[cell] = step
        while num_found + num_touched > len(found):
            found = _grown(found)
        begin = num_found
        for i in range(num_touched):
            other = latest[touched[i]]
            latest[touched[i]] = -1
            # In order; there are few, and a sort would take long to compile.
            place = num_found
            while place > begin and found[place - 1] > other:
                found[place] = found[place - 1]
                place -= 1
            found[place] = other
            num_found += 1
        first[step + 1] = num_found
    return first, found[:num_found]


@kernel
def _take_latest(now, kept, begin):
    """Add to a clock what another knows."""
    # Loops over a slice become vector instructions, those with an offset do not.
    other = kept[begin : begin + len(now)]
    for i in range(len(now)):
        now[i] = max(now[i], other[i])


@kernel
def waits(block, place, pair, reads, writes, count, num_blocks, num_cells):
    """What each step must wait for, without what follows anyway.

    Parameters
    ----------
    block, place
        Of every step; steps stand in the global order, each block's by place.
    pair
        The send that a receive takes its data from, -1 for other steps.
    reads, writes
        First cell that a step reads and writes, -1 for none.
    count
        Cells that it reads or writes.
    num_blocks, num_cells
        Of all GPUs together.

    Returns
    -------
    first, found
        Each step's first place in a list of steps to wait for, and that list.
    """
    size = len(block)
    begin, candidate = _candidates(block, reads, writes, count, num_blocks, num_cells)
    # How often the clock of each step will still be asked for.
    uses = np.zeros(size, dtype=np.int64)
    for other in candidate:
        uses[other] += 1
    for other in pair:
        if other >= 0:
            uses[other] += 1
    clock = np.zeros((num_blocks, num_blocks), dtype=np.int16)
    # Clocks that will be asked for again, one after another.
    kept = np.empty(64 * num_blocks, dtype=np.int16)
    row = np.full(size, -1)
    free = np.arange(64)
    num_free = 64
    first = np.zeros(size + 1, dtype=np.int64)
    found = np.empty(len(candidate), dtype=np.int64)
    num_found = 0
    for step in range(size):
        now = clock[block[step]]
        if pair[step] >= 0:
            other = pair[step]
            _take_latest(now, kept, row[other] * num_blocks)
            uses[other] -= 1
            if not uses[other]:
                free[num_free] = row[other]
                num_free += 1
        # Later steps know of earlier ones, so those that remain are tried from the last back.
        for i in range(begin[step + 1] - 1, begin[step] - 1, -1):
            other = candidate[i]
            if now[block[other]] <= place[other]:
                found[num_found] = other
                num_found += 1
                _take_latest(now, kept, row[other] * num_blocks)
            uses[other] -= 1
            if not uses[other]:
                free[num_free] = row[other]
                num_free += 1
        first[step + 1] = num_found
        now[block[step]] = place[step] + 1
        if uses[step]:
            if not num_free:
                num_free = len(kept) // num_blocks
                free = np.arange(num_free, 3 * num_free)
                kept = _grown(kept)
            num_free -= 1
            row[step] = free[num_free]
            own = kept[row[step] * num_blocks : (row[step] + 1) * num_blocks]
            for i in range(num_blocks):
                own[i] = now[i]
    return first, found[:num_found]
