"""Levels: one global order of the transfers, as fine as the schedule or as coarse as needed.

A transfer has a higher level than every transfer whose data it carries. Transfers of one level on
one connection may therefore be joined into one operation, whatever else happens: all that an
operation waits for has a lower level, so nothing can wait in a circle.
"""

from bisect import bisect_left
from dataclasses import dataclass

from teccl.exporters.lowering.transfers import MERGE, SEND, Transfers

_MAX_PASSES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Which transfers touch the same copy of a chunk, and in which order.

    Parameters
    ----------
    feeders
        Per transfer, arrivals at its sender that its data includes.
    followers
        Pairs (earlier, later): the later changes a place from which the earlier is sent, and no
        data leads from one to the other.
    successors
        The same where the earlier changes that place too, and their order matters.
    available
        Per transfer, when its data was complete at the sender.
    needed
        Per transfer, when its receiver first sends it on.
    quiet_since
        Per transfer, the last event at the receiver's copy before it arrives.
    """

    feeders: list[list[int]]
    followers: list[tuple[int, int]]
    successors: list[tuple[int, int]]
    available: list[int]
    needed: list[int]
    quiet_since: list[int]


def history_of(transfers: Transfers, combined: list[bool]) -> History:
    """Walk over all events and note who uses what."""
    count = len(transfers)
    feeders: list[list[int]] = [[] for _ in range(count)]
    followers: list[tuple[int, int]] = []
    successors: list[tuple[int, int]] = []
    available, needed, quiet = [0] * count, [1 << 62] * count, [0] * count
    arrived: dict[tuple[int, int], list[int]] = {}
    sent: dict[tuple[int, int], list[int]] = {}
    last: dict[tuple[int, int], int] = {}
    lineage = [0] * count
    # Transfers of one chunk are numbered, so that a set of them is the bits of an integer.
    number: dict[int, int] = {}
    for time, action, t in transfers.events():
        chunk = transfers.chunk[t]
        if action == SEND:
            place = (transfers.src[t], chunk)
            feeders[t] = list(arrived.get(place, ()))
            for feeder in feeders[t]:
                needed[feeder] = min(needed[feeder], time)
                lineage[t] |= lineage[feeder]
            number[chunk] = number.get(chunk, 0) + 1
            lineage[t] |= 1 << number[chunk]
            available[t] = last.get(place, 0) if feeders[t] else 0
            if combined[chunk]:
                sent.setdefault(place, []).append(t)
            continue
        place = (transfers.dst[t], chunk)
        if combined[chunk]:
            # What the data of this arrival includes is ordered before it anyway.
            apart = [e for e in sent.get(place, ()) if lineage[e] & ~lineage[t]]
            followers += [(earlier, t) for earlier in apart]
            apart = [e for e in arrived.get(place, ()) if lineage[e] & ~lineage[t]]
            # Two that are combined may come in any order.
            stores = not transfers.merges[t]
            successors += [(e, t) for e in apart if stores or not transfers.merges[e]]
            quiet[t] = max((transfers.start[e] for e in sent.get(place, ())), default=0)
            quiet[t] = max(quiet[t], last.get(place, 0))
            sent.pop(place, None)
        if action == MERGE:
            arrived.setdefault(place, []).append(t)
        else:
            arrived[place] = [t]
        last[place] = time
    return History(
        feeders=feeders,
        followers=followers,
        successors=successors,
        available=available,
        needed=needed,
        quiet_since=quiet,
    )


def exact_levels(transfers: Transfers, history: History) -> list[int]:
    """Levels in the order of starts; sends that lose no time by it share the level of the first.

    A send joins the one before it on its connection if its data was there when that one began and
    the receiver passes on nothing of the earlier before the later has arrived.
    """
    starts = sorted(set(transfers.start))
    level = [bisect_left(starts, start) for start in transfers.start]
    begun: dict[tuple[int, int], tuple[int, int, int]] = {}
    for t, start in enumerate(transfers.start):
        connection = (transfers.src[t], transfers.dst[t])
        if connection in begun:
            first, since, passed_on = begun[connection]
            joins = (
                history.available[t] <= since
                and history.quiet_since[t] <= since
                and passed_on >= transfers.arrival[t]
            )
            if joins:
                level[t] = first
                begun[connection] = (first, since, min(passed_on, history.needed[t]))
                continue
        begun[connection] = (level[t], start, history.needed[t])
    return _settled(level, history)


def window_levels(transfers: Transfers, history: History, window: int) -> list[int]:
    """Levels by windows of time: what starts in one window shares a level where it can."""
    return _settled([start // window for start in transfers.start], history)


def _settled(level: list[int], history: History) -> list[int]:
    """Raise levels until every transfer is above what it carries and not below what it follows."""
    for _ in range(_MAX_PASSES):
        changed = False
        # Feeders start earlier and so stand earlier in the list.
        for t, feeders in enumerate(history.feeders):
            for feeder in feeders:
                if level[t] <= level[feeder]:
                    level[t] = level[feeder] + 1
        for earlier, later in history.successors:
            if level[later] <= level[earlier]:
                level[later] = level[earlier] + 1
                changed = True
        for earlier, later in history.followers:
            if level[later] < level[earlier]:
                level[later] = level[earlier]
                changed = True
        if not changed:
            break
    return level
