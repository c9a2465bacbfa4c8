"""Unicasts: copies and sums whose every delivery is a transfer of its own, planned as exchanges."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from teccl.construct.exchanged import (
    Exchanged,
    adds_for_several,
    delivered,
    exchanges,
    is_staged,
)
from teccl.construct.params import CHUNK_TOLERANCE
from teccl.problem import Problem
from teccl.synthesis.features import Features
from teccl.synthesis.portfolio import run_portfolio
from teccl.synthesis.search import Search
from teccl.synthesis.stop import SearchStoppedError
from teccl.synthesis.strategies.construction import ConstructionStrategy


class Unicasts:
    """Solves the exchange that a collective is without copies, and hands its schedule out.

    Parameters
    ----------
    is_promising
        Try exchanges that could meet the bound, else the others that could be better than what was
        found.
    """

    def __init__(self, *, is_promising: bool) -> None:
        self._is_promising = is_promising
        self.name = "unicasts" if is_promising else "unicasts, more"

    def refusal(self, features: Features) -> str | None:
        """Every GPU must reach every other through switches, and there must be several of these."""
        if features.on_grid or features.has_tenants:
            return "not one collective off the grid"
        problem = features.request.problem(1)
        if adds_for_several(problem):
            return "several want a sum"
        if self._is_promising and _is_exchange(problem):
            return "it is an exchange already, which others solve first"
        if len(problem.chunks.sizes) > 1:
            return "blocks of several sizes are served by exchanges of their own"
        return None if is_staged(problem) else "no way leads through several switches alone"

    def work(self, features: Features) -> int:
        """Offer one schedule."""
        return features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Offer the best schedule of each exchange that can be better than what is known."""
        sides = [_side(search, exchange) for exchange in exchanges(search.request.problem(1))]
        chosen = [side for side in sides if self._is_in_turn(search, side.target or 0)]
        for side in chosen:
            # As much is left for those that follow.
            left = search.budget.left // (2 * len(sides))
            side.budget = replace(search.budget, spent=search.budget.total - left)
            # Whoever asks for the end asks the search itself, too.
            with contextlib.suppress(SearchStoppedError):
                run_portfolio(side, [ConstructionStrategy()])
            search.budget.spend(left - side.budget.left)
            _offer(search, side)
            yield

    def _is_in_turn(self, search: Search, target: int) -> bool:
        """Whether an exchange that takes at least so long is to be solved now."""
        could_meet = not search.target or target <= search.target * (1 + 1 / CHUNK_TOLERANCE)
        could_meet &= not _is_exchange(search.request.problem(1))
        if self._is_promising or could_meet:
            return self._is_promising and could_meet
        return not search.incumbents or target < search.incumbents.fastest


def _is_exchange(problem: Problem) -> bool:
    """Whether chunks go from one GPU to one; all that an exchange does then is forbid relays."""
    return all(len(nodes) == 1 for nodes in problem.chunks.sets)


def _side(search: Search, exchange: Exchanged) -> Search:
    """Return the search for a schedule of an exchange, with its bound."""
    request = replace(
        search.request,
        topology=exchange.topology,
        demand=exchange.demand,
        from_schedule=None,
    )
    side = Search(request=request, started=search.started, cancel=search.cancel)
    side.bound = side.prove(request.problem(request.chunks or 1), narrow=False)
    return side


def _offer(search: Search, side: Search) -> None:
    """Offer what a side found, if it is better than what is known."""
    best = side.incumbents.best
    if best is None or (search.incumbents and best.finish_ps >= search.incumbents.fastest):
        return
    problem = search.request.problem(best.schedule.problem.num_chunks)
    search.offer(delivered(problem, best.schedule))
