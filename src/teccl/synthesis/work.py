"""Work: how much of an effort is left, in one unit that is the same on every machine."""

from dataclasses import dataclass

from teccl.construct.params import BUDGET, PART, PATIENCE
from teccl.keywords import Effort


@dataclass(slots=True, kw_only=True)
class Budget:
    """Units of work that a search may spend, see `teccl.construct.params`.

    Parameters
    ----------
    total
        In all.
    patience
        Gap for which all of it is worth spending.
    spent
        So far, as estimated before each attempt.
    kept
        For strategies whose turn is still to come.
    """

    total: int
    patience: float
    spent: int = 0
    kept: int = 0

    @staticmethod
    def of(effort: Effort, offer_work: int) -> "Budget":
        """Return the budget of an effort, more where judging one schedule is much work already."""
        total = max(BUDGET[effort.value], PART * offer_work)
        return Budget(total=total, patience=PATIENCE[effort.value])

    @property
    def left(self) -> int:
        """Units that may still be spent now."""
        return max(0, self.total - self.spent - self.kept)

    def keep(self, part: int | None) -> None:
        """Keep a part of what is left for whoever comes next, or nothing if nobody does."""
        self.kept = 0
        self.kept = self.left // part if part else 0

    @property
    def price(self) -> float:
        """Gap that a unit is worth."""
        return self.patience / self.total

    @property
    def polish(self) -> int:
        """Units for all constructions of one number of chunks."""
        return min(self.left, self.total // PART)

    @property
    def glance(self) -> int:
        """Units for a first look at one number of chunks."""
        return self.polish // PART

    def spend(self, work: int) -> None:
        """Count work that is about to be done."""
        self.spent += work
