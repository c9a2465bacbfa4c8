"""When links and shared capacities are free: calendars of integer time."""

from bisect import bisect_left, bisect_right
from typing import Protocol


class Calendar(Protocol):
    """What a resource promises to carry, and when it can carry more."""

    def first_free(self, start: int, length: int, rate: int) -> int:
        """Return the earliest time from `start` on that leaves room for `length` at `rate`."""
        ...

    def add(self, start: int, length: int, rate: int) -> None:
        """Book a time that is free."""
        ...


class ExclusiveCalendar:
    """A resource that carries one transfer at a time, whatever its rate."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        # Disjoint busy intervals in order of time; those that touch are merged.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def first_free(self, start: int, length: int, rate: int) -> int:  # noqa: ARG002
        """Return the earliest free time, in a gap if one is long enough."""
        ends = self._ends
        if not ends or start >= ends[-1]:
            return start
        starts = self._starts
        i = bisect_right(ends, start)
        while i < len(starts) and starts[i] < start + length:
            start = ends[i]
            i += 1
        return start

    def add(self, start: int, length: int, rate: int) -> None:  # noqa: ARG002
        """Book a time that is free."""
        starts, ends, end = self._starts, self._ends, start + length
        i = len(starts) if not ends or start >= ends[-1] else bisect_left(starts, start)
        joins_before = i > 0 and ends[i - 1] == start
        joins_after = i < len(starts) and starts[i] == end
        if joins_before and joins_after:
            ends[i - 1] = ends.pop(i)
            del starts[i]
        elif joins_before:
            ends[i - 1] = end
        elif joins_after:
            starts[i] = start
        else:
            starts.insert(i, start)
            ends.insert(i, end)


class RateCalendar:
    """A link that carries several circuits at once while their rates fit its own.

    Parameters
    ----------
    capacity
        The link's rate, in the unit of the rates that are booked.
    """

    __slots__ = ("_capacity", "_times", "_used")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        # From _times[i] to the next entry the rate _used[i] is booked.
        self._times: list[int] = [0]
        self._used: list[int] = [0]

    def first_free(self, start: int, length: int, rate: int) -> int:
        """Return the earliest time from which the rate is free for long enough."""
        times, used = self._times, self._used
        room = self._capacity - rate
        i = bisect_right(times, start) - 1
        while i < len(times) and times[i] < start + length:
            if used[i] > room:
                # The last entry is always idle, so there is a next one.
                start = times[i + 1]
            i += 1
        return start

    def add(self, start: int, length: int, rate: int) -> None:
        """Book a rate that is free."""
        first, last = self._split(start), self._split(start + length)
        for i in range(first, last):
            self._used[i] += rate
        for i in (last, first):
            if i > 0 and self._used[i] == self._used[i - 1]:
                del self._times[i], self._used[i]

    def _split(self, time: int) -> int:
        """Make `time` an entry of its own and return where it is."""
        i = bisect_left(self._times, time)
        if i == len(self._times) or self._times[i] != time:
            self._times.insert(i, time)
            self._used.insert(i, self._used[i - 1])
        return i
