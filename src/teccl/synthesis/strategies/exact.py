"""Exact on the grid: CP-SAT closes what the construction left open, where the model is small."""

from collections.abc import Iterator

from teccl.synthesis.features import Features
from teccl.synthesis.search import Search


class ExactOnGrid:
    """Hands the paper's general model to CP-SAT, started from the best schedule."""

    name = "exact"

    def refusal(self, features: Features) -> str | None:
        """Exact models count epochs of whole chunks."""
        if not features.on_grid:
            return "there is no grid"
        return None if features.given_chunks else "the number of chunks is open"

    def work(self, _: Features) -> int:
        """Cost what the solver's own deterministic work says."""
        return 0

    def attempts(self, search: Search) -> Iterator[None]:
        """Close the gap."""
        from teccl.models.milp.exact import close_gap

        close_gap(search)
        yield
