"""Compiled loop that leads chunks with one destination there around damage.

Every chunk takes the way that arrives first over links that are busy with everything that stays.
Ranks are looked at only where a chunk would hold links for little longer than on a cheapest way,
as the fabric was before the damage; for more where that leads nowhere.
"""

import heapq

import numpy as np

from teccl._kernels import inner, kernel, maker
from teccl.orbit.plan.bookings import fit
from teccl.orbit.plan.grafting import INTO, MEMBERS, OUT, TABLES, apart, commit, passed, reached

_NEVER = np.iinfo(np.int64).max


@kernel
def reroute(images, holders, goals, costs, slacks, lattice, ways, lengths, calendars, room):
    """Lead chunks with one destination there, each on the way that arrives first.

    Parameters
    ----------
    images
        Owner of each chunk, in the order in which they are served.
    holders
        Where the ranks that have each chunk begin, those ranks, and since when.
    goals
        Destination of each chunk.
    costs
        By orbit of GPUs and rank, least time for which links are held on the way there from the
        first GPU of the orbit.
    slacks
        How much longer they may be held, one tried after the other.
    room
        Sends that may be made.

    Returns
    -------
    sends
        Rows of image, way, from, to and start, in order for each image.
    served
        Chunks that were brought to their destinations, or -1 where the room was too small.
    """
    first, holder, since = holders
    num_ranks = ways[TABLES].shape[2]
    sends, count, stamp = np.empty((room, 5), dtype=np.int64), 0, 0
    mark, label = np.full(num_ranks, -1, dtype=np.int64), np.empty(num_ranks, dtype=np.int64)
    via, path = np.empty((num_ranks, 3), dtype=np.int64), np.empty(num_ranks, dtype=np.int64)
    for image in range(len(images)):
        goal = goals[image]
        reached = False
        for slack in slacks:
            stamp += 1
            limit = slack + _cost(images[image], goal, costs, lattice)
            heap = [(_NEVER, np.int64(-1))]
            for at in range(first[image], first[image + 1]):
                rank = holder[at]
                mark[rank], label[rank], via[rank, 0] = stamp, since[at], -1
                left = _cost(rank, goal, costs, lattice)
                heapq.heappush(heap, (since[at] + left, rank))
            frame = (images[image], goal, limit, stamp, mark, label, via)
            reached = _spread(heap, frame, costs, lattice, ways, lengths, calendars)
            if reached:
                break
        if not reached:
            return sends[:count], image
        steps, rank = 0, goal
        while via[rank, 0] >= 0:
            path[steps] = rank
            steps += 1
            rank = via[rank, 1]
        if count + steps > room:
            return sends[:count], -1
        for rank in path[:steps][::-1]:
            way, source, start = via[rank]
            commit(way, source, rank, start, ways, lengths, calendars)
            sends[count] = (image, way, source, rank, start)
            count += 1
    return sends[:count], len(images)


@inner
def _cost(rank, goal, costs, lattice):
    """Least time for which links are held on the way from one rank to another."""
    per_place = lattice[3]
    return costs[rank % per_place, apart(goal, rank // per_place, lattice)]


@maker
def _spread(heap, frame, costs, lattice, ways, lengths, calendars):
    """Give ranks the times at which a chunk can be there until that of the goal is certain."""
    owner, goal, limit, stamp, mark, label, via = frame
    while heap:
        due, rank = heapq.heappop(heap)
        if rank < 0:
            return False
        if rank == goal:
            return True
        if due > label[rank] + _cost(rank, goal, costs, lattice):
            continue
        for way in range(ways[TABLES].shape[1]):
            link = ways[TABLES][OUT, way, rank]
            if link < 0:
                continue
            low, high = reached(way, rank, ways)
            for other in ways[MEMBERS][low:high]:
                if other == rank:
                    continue
                second = ways[TABLES][INTO, way, other]
                ahead = _cost(other, goal, costs, lattice)
                if ahead + _cost(owner, other, costs, lattice) > limit:
                    continue
                soonest = passed(way, rank, other, label[rank], ways, lengths)
                if soonest == _NEVER or (mark[other] == stamp and soonest >= label[other]):
                    continue
                most = _NEVER
                if mark[other] == stamp:
                    most = label[other] - (soonest - label[rank])
                start = fit(link, second, label[rank], most, lengths, calendars)
                arrival = passed(way, rank, other, start, ways, lengths)
                if mark[other] != stamp or arrival < label[other]:
                    mark[other], label[other] = stamp, arrival
                    via[other, 0], via[other, 1], via[other, 2] = way, rank, start
                    heapq.heappush(heap, (arrival + ahead, other))
    return False
