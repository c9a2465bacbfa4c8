"""Windows: the least T at which links, each open from its head to T less its tail, have room.

A link that may be used from `head` until `T - tail` carries the integral of its rate in between.
As a function of T that grows by pieces: from `head + tail` on with the rate at `head`, and with
another rate whenever `T - tail` passes a step of the link's profile. The room of several windows is
the sum, so that it is described by moments at which the rate of growth changes.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
# Pairs (from when, bytes per picosecond), the first from time zero.
Steps = tuple[tuple[Fraction, Fraction], ...]
Change = tuple[Fraction, Fraction]

FAR = np.int64(2**60)


class Gate(NamedTuple):
    """Links that carry data at one joint rate: one link, or those that share a capacity.

    Parameters
    ----------
    links
        Their numbers.
    steps
        Bytes per picosecond over time.
    hold, slots
        Time for which a whole chunk occupies the gate, and chunks it takes at once.
    toll
        Bytes that could pass in the overhead of one transfer more, at least.
    """

    links: IntArray
    steps: Steps
    hold: int
    slots: int
    toll: Fraction = Fraction(0)

    @property
    def rate(self) -> Fraction:
        """The most that the gate ever carries, in bytes per picosecond."""
        return max(rate for _, rate in self.steps)

    def window(self, head: int, tail: int) -> list[Change]:
        """Changes in the growth of the room between a head and T less a tail."""
        last, changes = Fraction(0), list[Change]()
        for start, rate in self.steps:
            changes.append((max(start, Fraction(head)) + tail, rate - last))
            last = rate
        return changes


def fastest_of(members: list[Steps]) -> Steps:
    """Return the largest of several rates over time."""
    moments = sorted({start for steps in members for start, _ in steps})
    rates = [max(_rate_at(steps, moment) for steps in members) for moment in moments]
    return tuple(zip(moments, rates, strict=True))


def _rate_at(steps: Steps, moment: Fraction) -> Fraction:
    return next(rate for start, rate in reversed(steps) if start <= moment)


def carried(steps: Steps, opened: int, closed: int) -> Fraction:
    """Return the bytes that fit into a window of time.

    Examples
    --------
    >>> carried(((Fraction(0), Fraction(2)), (Fraction(3), Fraction(1))), 1, 5)
    Fraction(6, 1)
    """
    total = Fraction(0)
    ends = [*(start for start, _ in steps[1:]), Fraction(closed)]
    for (start, rate), end in zip(steps, ends, strict=True):
        span = min(end, Fraction(closed)) - max(start, Fraction(opened))
        total += rate * max(span, Fraction(0))
    return total


class Estimates:
    """Rooms of some gates in floating point, for many windows."""

    def __init__(self, gates: list[Gate]) -> None:
        self._size = np.array([len(gate.steps) for gate in gates])
        self._first = np.cumsum(self._size) - self._size
        self._start = np.array([float(start) for gate in gates for start, _ in gate.steps])
        rate = np.array([float(rate) for gate in gates for _, rate in gate.steps])
        self._change = np.diff(rate, prepend=0.0)
        self._change[self._first] = rate[self._first]

    def least_time(self, head: IntArray, tail: IntArray, gate: IntArray, total: float) -> float:
        """Least T at which windows, each of some gate, have room for a total."""
        size = self._size[gate]
        window = np.repeat(np.arange(len(gate)), size)
        place = np.arange(len(window)) - np.repeat(np.cumsum(size) - size, size)
        row = self._first[gate[window]] + place
        moments = np.maximum(self._start[row], head[window]) + tail[window]
        return least_estimate(moments, self._change[row], total)


def room_changes(gates: list[Gate], heads: list[int], tails: list[int]) -> Iterator[Change]:
    """Yield the changes in the room of gates with their heads and tails, equal ones as one."""
    counts: dict[tuple[int, int, int], int] = {}
    # Links of a kind have one and the same object, which is found much faster than by its value.
    steps = {id(gate.steps): gate for gate in gates}
    for gate, head, tail in zip(gates, heads, tails, strict=True):
        key = (id(gate.steps), head, tail)
        counts[key] = counts.get(key, 0) + 1
    for (kind, head, tail), count in counts.items():
        for moment, change in steps[kind].window(head, tail):
            yield moment, change * count


def least_estimate(moments: IntArray | FloatArray, changes: FloatArray, total: float) -> float:
    """Least T at which a room that grows by changes at moments reaches a total."""
    order = np.argsort(moments)
    speed = np.cumsum(changes[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        times = (total + np.cumsum(changes[order] * moments[order])) / speed
    following = np.append(moments[order][1:], np.inf)
    return float(times[np.argmax((times <= following) & (speed > 0))])


def least_time(changes: Iterable[Change], total: Fraction) -> int:
    """Least T at which a room that grows by changes reaches a total, exactly, rounded down.

    Examples
    --------
    >>> least_time([(Fraction(2), Fraction(1)), (Fraction(5), Fraction(1))], Fraction(7))
    7
    >>> least_time([(Fraction(0), Fraction(2)), (Fraction(3), Fraction(-1))], Fraction(7))
    4
    """
    ordered = sorted(changes, key=lambda change: change[0])
    speed, shift = Fraction(0), Fraction(0)
    for position, (moment, change) in enumerate(ordered):
        speed += change
        shift += change * moment
        if speed <= 0:
            continue
        time = (total + shift) / speed
        if position + 1 == len(ordered) or time <= ordered[position + 1][0]:
            return int(time)
    return int(FAR)
