"""Feeds: from which arrival, or from its own data, a GPU sends a copied chunk."""

from dataclasses import dataclass

import numpy as np

from teccl._arrays import IntArray, locate, new_run
from teccl.errors import ScheduleError
from teccl.replay.times import Times
from teccl.schedule.columns import Sends
from teccl.schedule.ordering import order_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeds:
    """What sends that leave GPUs wait for.

    Parameters
    ----------
    feeder
        Per send, the send whose arrival feeds it, -1 where none does.
    not_before
        Per send, when its GPU's own data is ready, 0 where it sends no own data.
    """

    feeder: IntArray
    not_before: IntArray

    def same_as(self, other: "Feeds") -> bool:
        """Whether every send waits for the same."""
        same = np.array_equal(self.feeder, other.feeder)
        return same and np.array_equal(self.not_before, other.not_before)


def feeds_of(sends: Sends, times: Times) -> Feeds:
    """Choose for each send what its GPU held first: its own data or the earliest arrival.

    Where nothing may be copied, the i-th forward of a chunk is fed by its i-th arrival.

    Raises
    ------
    ScheduleError
        If a GPU sends what it never holds.
    """
    feeder = np.full(len(sends), -1, dtype=np.int64)
    not_before = np.zeros(len(sends), dtype=np.int64)
    leaving = np.flatnonzero(sends.from_gpu & ~sends.combines)
    arriving = np.flatnonzero(sends.to_gpu & ~sends.combines)
    # Ties go by names that stay the same when sends are re-timed, so that replays repeat.
    arriving = arriving[_by_arrival(sends, times, arriving)]
    is_source = sends.is_source(sends.chunk[leaving], sends.src[leaving])
    place = np.zeros(len(leaving), dtype=np.int64)
    if not sends.problem.copy:
        place = np.where(is_source, 0, _place_in_line(sends, times, leaving))
    found = _nth_arrival(sends, arriving, leaving, place)
    ready = own_ready(sends, leaving)
    own = is_source & ((found < 0) | (ready <= times.arrival[found]))
    if (~own & (found < 0)).any():
        raise ScheduleError("a gpu sends what it does not hold; verify the schedule first")
    feeder[leaving] = np.where(own, -1, found)
    not_before[leaving] = np.where(own, ready, 0)
    return Feeds(feeder=feeder, not_before=not_before)


def own_ready(sends: Sends, rows: IntArray) -> IntArray:
    """When the data that each send's GPU holds itself may leave."""
    ready = sends.problem.ready_ps()
    return ready[sends.problem.chunks.tenant[sends.chunk[rows]], sends.src[rows]]


def _by_arrival(sends: Sends, times: Times, rows: IntArray) -> IntArray:
    """Order of sends by what they bring where, then by when."""
    key = _keys(sends, rows, sends.dst)
    order = order_by(key)
    if new_run(key[order]).all():
        # Nothing arrives twice, as mostly, so that there is nothing else to compare.
        return order
    return order_by(key, times.arrival[rows], sends.transfer[rows], sends.link[rows])


def _keys(sends: Sends, rows: IntArray, node: IntArray) -> IntArray:
    return sends.keys(sends.chunk[rows], node[rows])


def _place_in_line(sends: Sends, times: Times, leaving: IntArray) -> IntArray:
    """How many sends of the same chunk left the same GPU before each."""
    key = _keys(sends, leaving, sends.src)
    order = np.lexsort((sends.link[leaving], sends.transfer[leaving], times.start[leaving], key))
    begins = np.flatnonzero(new_run(key[order]))
    run = np.cumsum(new_run(key[order])) - 1
    place = np.empty(len(leaving), dtype=np.int64)
    place[order] = np.arange(len(leaving)) - begins[run]
    return place


def _nth_arrival(sends: Sends, arriving: IntArray, leaving: IntArray, place: IntArray) -> IntArray:
    """Return the send that brings the place-th arrival at each leaving send's GPU, or -1."""
    if not len(arriving):
        return np.full(len(leaving), -1, dtype=np.int64)
    keys, wanted = _keys(sends, arriving, sends.dst), _keys(sends, leaving, sends.src)
    found = locate(keys, wanted) + place
    inside = np.minimum(found, len(keys) - 1)
    is_there = (found < len(keys)) & (keys[inside] == wanted)
    return np.where(is_there, arriving[inside], -1)
