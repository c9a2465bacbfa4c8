"""How many epochs are enough: horizons tried between what is proven and what is known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import ceil

from teccl.problem import Problem
from teccl.timegrid import TimeGrid

# Epochs of the coarse grids on which the paper looks for a feasible total time.
COARSE_EPOCHS = (4, 8, 12)
# Candidate total times, as multiples of a lower bound, and how often they are tried.
COARSE_FACTORS = tuple(Fraction(n, 4) for n in (4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64))
# Horizons that were proven too short one after the other before larger steps are taken.
PATIENCE = 2
# Horizons that may stay open before the search is given up.
MAX_OPEN = 10
# Growth of the horizon while nothing is known to be enough.
GROWTH = Fraction(5, 4)


class Answer(StrEnum):
    """What asking for a horizon yielded."""

    ENOUGH = "enough"
    TOO_SHORT = "too short"
    OPEN = "open"


@dataclass(slots=True, kw_only=True)
class Closing:
    """Closes in on the least horizon from both sides.

    Parameters
    ----------
    lower
        Fewer epochs are proven impossible.
    upper
        A known schedule's epochs, None while there is none.
    limit
        More epochs are not wanted, None for any number.
    gap
        Fraction by which `upper` may exceed `lower` in the end.

    Examples
    --------
    >>> closing = Closing(lower=3, upper=9)
    >>> for horizon in closing:
    ...     closing.note(horizon, Answer.ENOUGH if horizon >= 6 else Answer.TOO_SHORT, horizon)
    >>> closing.lower, closing.upper
    (6, 6)
    """

    lower: int
    upper: int | None = None
    limit: int | None = None
    gap: Fraction = Fraction(0)
    open_up_to: int = -1
    failures: int = 0
    opens: int = 0

    @property
    def is_closed(self) -> bool:
        """Whether nothing better is wanted or possible."""
        return self.upper is not None and self.upper <= self.lower * (1 + self.gap)

    def note(self, horizon: int, answer: Answer, epochs: int | None = None) -> None:
        """Learn what asking for a horizon yielded.

        Parameters
        ----------
        epochs
            Length of the schedule that was found, at most the horizon.
        """
        if answer is Answer.ENOUGH:
            found = horizon if epochs is None else epochs
            self.upper = found if self.upper is None else min(self.upper, found)
            self.failures = 0
        elif answer is Answer.TOO_SHORT:
            self.lower = max(self.lower, horizon + 1)
            self.failures += 1
        else:
            self.open_up_to = max(self.open_up_to, horizon)
            self.opens += 1

    def __iter__(self) -> Iterator[int]:
        """Yield horizons worth asking for; each must be noted before the next."""
        while not self.is_closed and self.opens < MAX_OPEN:
            horizon = self._next()
            if horizon is None:
                return
            yield horizon

    def _next(self) -> int | None:
        low = max(self.lower, self.open_up_to + 1)
        if self.upper is not None:
            high = self.upper - 1
            if low > high:
                return None
            return low if self.failures < PATIENCE else (low + high) // 2
        if self.limit is not None:
            # A limit comes from someone who expects it to do: a schedule first, then a better one.
            is_new = self.lower <= self.limit and self.open_up_to < self.limit
            return self.limit if is_new else None
        if self.open_up_to < self.lower and self.failures < PATIENCE:
            return self.lower
        return max(low, ceil(low * GROWTH))


def coarse_horizon(
    problem: Problem,
    grid: TimeGrid,
    *,
    lower: int,
    is_feasible: Callable[[TimeGrid, int], bool],
) -> int | None:
    """Return how many epochs should do, by the paper's search on coarse grids.

    For candidate total times, the least first, the model is solved with a few long epochs; the
    first that is feasible, divided by the real epoch, is the number returned.

    Parameters
    ----------
    lower
        Epochs that are needed in any case.
    is_feasible
        Whether the problem can be solved on a grid within a horizon, as far as can be told
        quickly.
    """
    for factor in COARSE_FACTORS:
        total = factor * lower * grid.epoch
        for epochs in COARSE_EPOCHS:
            coarse = TimeGrid(problem=problem, epoch=total / epochs)
            if is_feasible(coarse, epochs):
                return ceil(total / grid.epoch)
    return None
