"""Polish: the best numbers of chunks again, with every construction that serves and more runs."""

from collections.abc import Iterator

from teccl.construct.params import LISTING_UNITS, TREE_UNITS
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.construction import construct_one


class Polish:
    """Constructs the two numbers of chunks again that came out best."""

    name = "polish"

    def refusal(self, _: Features) -> None:
        """Serve every request."""

    def work(self, features: Features) -> int:
        """Construct once more."""
        return _least_work(features, features.given_chunks or 1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Try each again, the best first."""
        for count in list(search.incumbents)[:2]:
            if search.is_worth(_least_work(search.features, count)):
                search.budget.spend(search.features.offer_work(count))
                allowance = min(search.budget.polish, search.worthwhile)
                problem, most = search.request.problem(count), search.budget.left
                construct_one(search, problem, allowance=allowance, most=most)
                yield


def _least_work(features: Features, num_chunks: int) -> int:
    """Units of laying and scheduling every send once, and of judging what comes out."""
    units = TREE_UNITS + LISTING_UNITS
    return units * features.sends * num_chunks + features.offer_work(num_chunks)
