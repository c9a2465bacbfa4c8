"""Levels: one global order of the transfers, as fine as the schedule or as coarse as needed.

A transfer has a higher level than every transfer whose data it carries. Transfers of one level on
one connection may therefore be joined into one operation, whatever else happens: all that an
operation waits for has a lower level, so nothing can wait in a circle.
"""

from dataclasses import dataclass

import numpy as np

from teccl.formats.msccl.write.gpu_transfers import Flags, GpuTransfers, Integers

_MAX_PASSES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Which transfers touch the same copy of a chunk, and in which order.

    Parameters
    ----------
    feeder_first, feeder_count, feeders
        Per transfer, where in `feeders` the arrivals at its sender stand that its data includes.
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

    feeder_first: Integers
    feeder_count: Integers
    feeders: Integers
    followers: Integers
    successors: Integers
    available: Integers
    needed: Integers
    quiet_since: Integers


def history_of(transfers: GpuTransfers, combined: Flags, ranks: int) -> History:
    """Walk over all events and note who uses what."""
    from teccl.formats.msccl.write.compiled import history

    events = transfers.events(len(combined))
    first, count, feeders, followers, successors, available, needed, quiet = history(
        events.transfer,
        events.action,
        events.first,
        transfers.src,
        transfers.dst,
        transfers.start,
        transfers.arrival,
        transfers.merges,
        combined,
        ranks,
    )
    return History(
        feeder_first=first,
        feeder_count=count,
        feeders=feeders,
        followers=followers.reshape(-1, 2),
        successors=successors.reshape(-1, 2),
        available=available,
        needed=needed,
        quiet_since=quiet,
    )


def exact_levels(transfers: GpuTransfers, history: History, ranks: int) -> Integers:
    """Levels in the order of starts; sends that lose no time by it share the level of the first.

    A send joins the one before it on its connection if its data was there when that one began and
    the receiver passes on nothing of the earlier before the later has arrived.
    """
    from teccl.formats.msccl.write.compiled import join_levels

    _, level = np.unique(transfers.start, return_inverse=True)
    join_levels(
        level,
        transfers.src,
        transfers.dst,
        transfers.start,
        transfers.arrival,
        history.available,
        history.needed,
        history.quiet_since,
        ranks,
    )
    return _settled(level, history)


def window_levels(transfers: GpuTransfers, history: History, window: int) -> Integers:
    """Levels by windows of time: what starts in one window shares a level where it can."""
    return _settled(transfers.start // window, history)


def _settled(level: Integers, history: History) -> Integers:
    """Raise levels until every transfer is above what it carries and not below what it follows."""
    from teccl.formats.msccl.write.compiled import settle_levels

    settle_levels(
        level,
        history.feeder_first,
        history.feeder_count,
        history.feeders,
        history.followers,
        history.successors,
        _MAX_PASSES,
    )
    return level
