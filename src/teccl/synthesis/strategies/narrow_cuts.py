"""Narrow cuts: prove more before more work is spent on what may be optimal already."""

from collections.abc import Iterator

from teccl.synthesis.features import Features
from teccl.synthesis.search import Search


class NarrowCuts:
    """Looks for bounds that take longer, once there is a schedule to compare them with."""

    name = "bound"

    def refusal(self, _: Features) -> None:
        """Serve every request."""

    def work(self, _: Features) -> int:
        """Cost nothing that a schedule could be made for."""
        return 0

    def attempts(self, search: Search) -> Iterator[None]:
        """Refine the bound."""
        search.refine()
        yield
