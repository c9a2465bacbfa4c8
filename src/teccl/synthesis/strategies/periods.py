"""Periods: balanced trees for a few pieces, repeated for many, where throughput counts."""

from collections.abc import Iterator
from operator import attrgetter

from teccl.construct.params import LISTING_UNITS, MOST_CHUNKS
from teccl.synthesis.chunks import finest
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search


class Periods:
    """Lays trees for one period of pieces and schedules many periods along them."""

    name = "periods"

    def refusal(self, features: Features) -> str | None:
        """Periods are laid for as many chunks as suit them, in continuous time."""
        from teccl.construct.repeated import can_repeat

        if features.on_grid or features.given_chunks is not None:
            return "periods choose their own number of chunks, off the grid"
        is_alike = can_repeat(features.request.problem(1))
        return None if is_alike else "not all pieces are alike"

    def work(self, features: Features) -> int:
        """Schedule every send of one piece a few times."""
        return 2 * LISTING_UNITS * features.sends + features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Try as many pieces as there is work for, then half of them while that is better."""
        for count in _counts(search):
            fastest = search.incumbents.fastest if search.incumbents else None
            _offer_repeated(search, count)
            yield
            if fastest is not None and search.incumbents.fastest == fastest:
                return


def _counts(search: Search) -> Iterator[int]:
    """Yield numbers of chunks for whole periods, most first: the ends weigh least there."""
    from teccl.construct.instance import Instance
    from teccl.construct.repeated import period_pieces
    from teccl.construct.route_first import listing_work

    most = finest(search, MOST_CHUNKS)
    problem = search.request.problem(1)
    period = period_pieces(search.request.problem(most))
    routes = Instance.build(problem).routes
    # Every tree of a period looks at all routes in each of several passes.
    laying = period * len(problem.chunks) * len(routes)
    hops = len(routes.links) / len(routes)
    # The two ways of a sum are worth pipelining only if there are several pieces.
    count = min(max(period, search.features.phases), search.request.max_chunks or MOST_CHUNKS)
    while 2 * count <= most:
        count *= 2
    while count >= 1:
        work = 2 * listing_work(search.features.sends * count, hops)
        work += search.features.offer_work(count)
        if search.is_worth(laying + work):
            search.budget.spend(laying + work)
            yield count
        count //= 2


def _offer_repeated(search: Search, num_chunks: int) -> None:
    """Offer the best plan that repeats trees, if it is better than what is known."""
    from teccl.construct.instance import Instance
    from teccl.construct.repeated import repeated_plans

    instance = Instance.build(search.request.problem(num_chunks))
    plans = repeated_plans(
        instance,
        target=search.target or 1,
        seed=search.request.seed,
        checkpoint=search.checkpoint,
    )
    plan = min(plans, key=attrgetter("finish"), default=None)
    if plan is not None and (not search.incumbents or plan.finish < search.incumbents.fastest):
        search.offer_plan(instance, plan)
