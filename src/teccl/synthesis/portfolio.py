"""Portfolio: the one loop over all strategies, in a declared order, while work is left."""

from collections.abc import Iterable
from typing import Protocol

from teccl.construct.params import KEPT_PART
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search


class Strategy(Protocol):
    """A way to make schedules, or to make known ones better.

    `refusal` says why it does not serve a request, or None; `work` estimates its least work in
    units (see `teccl.construct.params`); `attempts` offers schedules to the search, one attempt
    after another. Between attempts the search may end.
    """

    name: str

    def refusal(self, features: Features) -> str | None:
        """Say why this does not serve a request; None if it does."""
        ...

    def work(self, features: Features) -> int:
        """Units of the least that it does."""
        ...

    def attempts(self, search: Search) -> Iterable[None]:
        """Offer schedules; each step is one attempt."""
        ...


def run_portfolio(search: Search, strategies: Iterable[Strategy]) -> None:
    """Let every strategy that serves have its turn, where a gap is left that is worth its work.

    Each leaves a part of the work for those that follow.
    """
    serving = [each for each in strategies if each.refusal(search.features) is None]
    for place, strategy in enumerate(serving, start=1):
        search.checkpoint()
        search.budget.keep(KEPT_PART if place < len(serving) else None)
        if not search.is_worth(strategy.work(search.features)):
            continue
        search.report(strategy.name)
        for _ in strategy.attempts(search):
            search.checkpoint()
    search.checkpoint()
