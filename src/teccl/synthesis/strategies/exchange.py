"""Exchange: chunks of many sizes from one GPU each, balanced over routes and booked on links."""

from collections.abc import Iterator

import numpy as np

from teccl.construct.params import BUDGET
from teccl.exchange.attempts import Attempts
from teccl.exchange.cutting import (
    block_sizes,
    first_chunks,
    most_chunks,
    num_pieces,
    quick,
    thorough,
)
from teccl.exchange.orders import ExchangeJobs, refusal
from teccl.exchange.passage_network import PassageNetwork, search_work
from teccl.exchange.tables import Care
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search


class Exchange:
    """Plans AllToAllv and other demands whose blocks differ in size, coarsely and then finely."""

    name = "exchange"

    def refusal(self, features: Features) -> str | None:
        """Blocks of one size are served better by what knows symmetry."""
        if features.on_grid:
            return "calendars know no epochs"
        request = features.request
        problem = request.problem(1)
        if search_work(request.topology) > BUDGET[request.effort.value]:
            return "routes between so many GPUs take too long to find"
        if len(problem.chunks.sizes) == 1:
            return "all blocks have one size"
        return refusal(problem)

    def work(self, features: Features) -> int:
        """Find routes, and offer one schedule."""
        return search_work(features.request.topology) + features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Offer a plan of few chunks, then of as many as pay, improved while that is worth it."""
        request = search.request
        is_sum = request.problem(1).has_reductions
        search.budget.spend(search_work(request.topology))
        network = PassageNetwork.of(request.topology.transposed() if is_sum else request.topology)
        random = np.random.default_rng(request.seed)
        for count, care in _stages(search, network):
            jobs = ExchangeJobs.of(network, request.problem(count))
            attempt = Attempts(jobs, random, care)
            best = attempt.quick()
            search.budget.spend(attempt.spent)
            search.offer(best.schedule())
            yield
            while search.is_worth(attempt.cost):
                before = attempt.spent
                draft = attempt.thorough()
                search.budget.spend(attempt.spent - before)
                if draft.finish >= best.finish:
                    break
                best = draft
                search.offer(best.schedule())
                yield


def _stages(search: Search, network: PassageNetwork) -> Iterator[tuple[int, Care]]:
    """Yield numbers of chunks, and how long to look for ways: few, then as many as are worth it."""
    request = search.request
    if request.chunks is not None:
        yield request.chunks, thorough(search.budget.left)
        return
    sizes = block_sizes(request.demand, request.topology)

    def pieces(chunks: int) -> int:
        found = num_pieces(sizes, request.topology, chunks)
        return min(found, request.max_chunks or found)

    first = pieces(first_chunks(network))
    yield first, quick(sizes)
    finest = pieces(most_chunks(request.topology))
    if finest > first and search.is_worth(search.features.offer_work(finest // first)):
        yield finest, thorough(search.budget.left)
