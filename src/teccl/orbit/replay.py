"""Replay: the order of an orbit schedule at the earliest times.

The transfers of first chunks are the variables. Each begins when its chunk is there, as it was in
the schedule, and each of its hops after the one before it on the link's orbit. These difference
constraints have a least solution, since the schedule is one; it is found by raising starts until
nothing is left to raise.
"""

from dataclasses import replace

import numpy as np

from teccl._arrays import IntArray, expand
from teccl.orbit.schedule import OrbitSchedule


def replayed(schedule: OrbitSchedule) -> OrbitSchedule:
    """Return a correct schedule with every send as early as the order of sends allows."""
    from teccl.orbit.plan.kernels import raise_starts

    transfer = np.unique(schedule.sends["transfer"], return_inverse=True)[1].reshape(-1)
    first = np.full(transfer.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, transfer, schedule.sends["start_ps"])
    lag = schedule.sends["start_ps"] - first[transfer]
    edges = np.concatenate([_turns(schedule, transfer, lag), _feeds(schedule, transfer, lag)])
    # Those that began earlier come first, so that few rounds are needed.
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    edges = edges[np.argsort(rank[edges[:, 1]], kind="stable")]
    starts = raise_starts(len(first), np.ascontiguousarray(edges))
    sends = schedule.sends.copy()
    sends["start_ps"] = starts[transfer] + lag
    made = replace(schedule, sends=sends, claimed_finish_ps=None)
    return replace(made, claimed_finish_ps=made.finish_ps)


def _turns(schedule: OrbitSchedule, transfer: IntArray, lag: IntArray) -> IntArray:
    """Rows of transfer, later transfer and time between their starts, for hops of one resource."""
    fabric, sends = schedule.fabric, schedule.sends
    orbit = fabric.link_orbit(sends["link"])
    edges = [np.empty((0, 3), dtype=np.int64)]
    uses = [(np.arange(len(sends)), orbit)]
    for number in range(len(fabric.shared)):
        sharing = [i for i, link in enumerate(fabric.links) if number in link.shares]
        rows = np.flatnonzero(np.isin(orbit, sharing))
        uses.append((rows, np.zeros(len(rows), dtype=np.int64)))
    for rows, resource in uses:
        ordered = rows[np.lexsort((sends["start_ps"][rows], resource))]
        kept = np.sort(resource)
        same = np.diff(kept) == 0
        a, b = ordered[:-1][same], ordered[1:][same]
        apart = lag[a] + schedule.held_ps[a] - lag[b]
        edges.append(np.column_stack([transfer[a], transfer[b], apart]))
    return np.concatenate(edges)


def _feeds(schedule: OrbitSchedule, transfer: IntArray, lag: IntArray) -> IntArray:
    """The same for arrivals and the sends from there that need them.

    A copied chunk is there from its first arrival on. What comes into a sum before it is sent, or
    after that, does so again.
    """
    fabric, sends, problem = schedule.fabric, schedule.sends, schedule.problem
    src, dst = fabric.link_ends(sends["link"])
    arrival, chunk, start = schedule.arrival_ps, sends["chunk"], sends["start_ps"]
    into, out = np.flatnonzero(dst < fabric.num_gpus), np.flatnonzero(src < fabric.num_gpus)
    into = into[np.lexsort((arrival[into], dst[into], chunk[into]))]
    keys = chunk[into] * fabric.num_gpus + dst[into]
    wanted = chunk[out] * fabric.num_gpus + src[out]
    low, count = np.searchsorted(keys, wanted), np.zeros(len(out), dtype=np.int64)
    count[:] = np.searchsorted(keys, wanted, side="right") - low
    if not problem.reduces:
        count = np.minimum(count, src[out] != problem.owner(chunk[out]))
    comes, goes = into[expand(low, count)], np.repeat(out, count)
    length = lag + arrival - start
    before = arrival[comes] <= start[goes]
    fed = np.column_stack([transfer[comes], transfer[goes], length[comes]])[before]
    # A send from a GPU is the first hop of its transfer; a picosecond keeps what comes later so.
    later = np.column_stack([transfer[goes], transfer[comes], 1 - length[comes]])[~before]
    return np.concatenate([fed, later])
