r"""How much a gate moves by transfers of any size, each with its overhead and its own deadline.

Let transfers follow one another on a gate, each for an overhead o and c for every byte, and let one
of b bytes end no later than L less w b: the larger it is, the longer it takes behind the gate. Then
the first j of them move at most

.. math:: B_j = B_{j-1} + \min\left(M, \frac{L - j o - c B_{j-1}}{c + w}\right)

bytes, with M the largest piece, because the j-th ends at :math:`j o + c B_j` or later, and the
right side grows with :math:`B_{j-1}`. The same holds backwards in time, for pieces that come to the
gate the later the larger they are.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from teccl.bounds.windows import FAR

# Transfers of a gate whose overheads are told apart; further ones are taken to have none.
MOST_TRANSFERS = 64
# Parts of a byte in which bytes are counted, rounded up.
GRAIN = 2**10


class Room(NamedTuple):
    """Gates that are alike, and the time that is lost before and behind them.

    Parameters
    ----------
    away
        Picoseconds of T in which the gates cannot be used, whatever the size of a piece.
    overhead
        Picoseconds of each transfer beside its bytes.
    pace, wait
        Picoseconds that each byte takes of the gate, and of the time there is besides.
    largest
        Bytes of the largest piece.
    times
        How often this room is there: gates that are alike times what each of their bytes counts.
    """

    away: int
    overhead: int
    pace: Fraction
    wait: Fraction
    largest: Fraction
    times: int = 1

    def bytes_by(self, time: int) -> Fraction:
        """Return the most bytes, rounded up to parts of one, that one of the gates moves by T.

        Examples
        --------
        >>> room = Room(10, 2, Fraction(1), Fraction(1), Fraction(100))
        >>> [float(room.bytes_by(time)) for time in (12, 16, 20)]
        [0.0, 2.0, 5.0]
        """
        left = time - self.away
        if left <= 0:
            return Fraction(0)
        if not self.overhead:
            return left / self.pace
        most, total, rest = _grains(self.largest), 0, Fraction(left)
        for j in range(1, MOST_TRANSFERS + 1):
            rest = left - j * self.overhead - self.pace * total / GRAIN
            if rest <= 0:
                return Fraction(total, GRAIN)
            total += min(most, _grains(rest / (self.pace + self.wait)))
        return Fraction(total, GRAIN) + rest / self.pace


def _grains(value: Fraction) -> int:
    """Parts of a byte, rounded up."""
    return -(-value.numerator * GRAIN // value.denominator)


class Share(NamedTuple):
    """Rooms that together count for no more than a limit, so many times; None without a limit."""

    rooms: Sequence[Room]
    limit: Fraction | None = None
    times: int = 1

    def bytes_by(self, time: int) -> Fraction:
        """Return what counts of all rooms by T."""
        total = sum((room.times * room.bytes_by(time) for room in self.rooms), Fraction(0))
        return self.times * (total if self.limit is None else min(total, self.limit))


def least_end(shares: Sequence[Share], need: Fraction, known: int) -> int | None:
    """Return the least T with room for what is needed, rounded down; None if that is known."""

    def room(time: int) -> Fraction:
        return sum((share.bytes_by(time) for share in shares), Fraction(0))

    if room(known) >= need:
        return None
    low, high = known, 2 * known + 1
    while room(high) < need:
        low, high = high, 2 * high
        if high > FAR:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if room(middle) < need else (low, middle)
    return high if room(high) == need else low
