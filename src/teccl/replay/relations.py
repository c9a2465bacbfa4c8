"""Relations between moments of sends that a replay keeps: the order of a schedule.

A *moment* is the start or the end of a send, its arrival, or a *gate*, a moment of its own that
comes no earlier than all moments led to it (so that "all of these before each of those" takes as
many relations as there are moments, not their product). A relation says that one moment comes at
least `lag` picoseconds after another.
"""

from dataclasses import dataclass, replace

import numpy as np

from teccl._arrays import NEVER, IntArray, ints
from teccl.replay.feeds import Feeds
from teccl.replay.times import Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """Relations ``moment[after] >= moment[before] + lag``, and limits on starts.

    Parameters
    ----------
    gates
        When each gate was passed in the schedule itself.
    not_before, before_time
        Per send, when it may begin, and the time it must begin before.
    """

    before: IntArray
    after: IntArray
    lag: IntArray
    gates: IntArray
    not_before: IntArray
    before_time: IntArray

    def with_feeds(self, feeds: Feeds) -> "Relations":
        """Add that sends wait for the arrivals and the data that feed them."""
        fed = np.flatnonzero(feeds.feeder >= 0)
        joined = self.plus(feeds.feeder[fed] + 2 * len(feeds.feeder), fed)
        return replace(joined, not_before=np.maximum(self.not_before, feeds.not_before))

    def plus(self, before: IntArray, after: IntArray) -> "Relations":
        """Add relations without lag."""
        return replace(
            self,
            before=np.concatenate([self.before, before]),
            after=np.concatenate([self.after, after]),
            lag=np.concatenate([self.lag, np.zeros_like(before)]),
        )

    def are_kept(self, times: Times) -> bool:
        """Whether they hold for given times."""
        start, end = times.start, times.start + times.held
        moment = np.concatenate([start, end, times.arrival, self.gates])
        kept = (moment[self.after] >= moment[self.before] + self.lag).all()
        return bool(kept and (start >= self.not_before).all())

    def leave_no_room(self, times: Times) -> bool:
        """Whether it is plain that no send could begin earlier: each rests on something.

        For times that keep the relations, of sends that each are a transfer of their own. A send
        rests on its earliest time or, without room, on one that begins before it; following those
        leads to an earliest time.
        """
        starts = len(times.start)
        if len(self.gates) or (self.after >= starts).any():
            return False
        moment = np.concatenate([times.start, times.start + times.held, times.arrival])
        earliest = moment[self.before] + self.lag
        tight = earliest == times.start[self.after]
        tight &= earliest > times.start[self.before % starts]
        rests = times.start == self.not_before
        rests[self.after[tight]] = True
        return bool(rests.all())


class Book:
    """Collects relations; moments are numbered starts, ends, arrivals, then gates."""

    def __init__(self, num_sends: int) -> None:
        self.num_sends = num_sends
        self._parts: list[tuple[IntArray, IntArray, IntArray]] = []
        self._gates: list[IntArray] = []
        self._num_gates = 0
        self.not_before = np.zeros(num_sends, dtype=np.int64)
        self.before_time = np.full(num_sends, NEVER)

    def start(self, rows: IntArray) -> IntArray:
        """Moments at which sends begin."""
        return rows

    def end(self, rows: IntArray) -> IntArray:
        """Moments at which sends free their links."""
        return rows + self.num_sends

    def arrival(self, rows: IntArray) -> IntArray:
        """Moments at which sends are at their far ends."""
        return rows + 2 * self.num_sends

    def open_gates(self, times: IntArray) -> IntArray:
        """New gates, by the times at which the schedule passes them."""
        first = 3 * self.num_sends + self._num_gates
        self._gates.append(times)
        self._num_gates += len(times)
        return first + np.arange(len(times))

    def keep(self, before: IntArray, after: IntArray, lag: IntArray | int = 0) -> None:
        """Relate moments pair by pair."""
        lags = np.broadcast_to(np.asarray(lag, dtype=np.int64), len(before))
        self._parts.append((before, after, lags))

    def close(self) -> Relations:
        """Return everything collected."""
        columns = zip(*self._parts, strict=True) if self._parts else [[ints([])]] * 3
        before, after, lag = (np.concatenate(column) for column in columns)
        gates = np.concatenate([*self._gates, ints([])]).astype(np.int64)
        return Relations(
            before=before,
            after=after,
            lag=lag,
            gates=gates,
            not_before=self.not_before,
            before_time=self.before_time,
        )
