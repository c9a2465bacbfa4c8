"""Periods: balanced trees for a few pieces, repeated for many, where throughput counts."""

from collections.abc import Callable, Iterator
from operator import attrgetter

from teccl.construct.params import GAP_PART, LISTING_UNITS, MANY_GPUS, MOST_CHUNKS, NEVER
from teccl.synthesis.chunks import finest, ladder
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.construction import construct_one


class Periods:
    """Lays trees for one period of pieces and schedules many periods along them.

    Parameters
    ----------
    is_promising
        Have a turn where nothing else balances large fabrics for as little work: many GPUs, all of
        whom want something from each other, are joined by single switches, and a hop takes little
        of the time.
    phases
        Serve collectives with so many phases only: AllReduces have two, and forests, which may be
        optimal, have their turn before periods of others.
    """

    def __init__(self, *, is_promising: bool, phases: int | None = None) -> None:
        self._is_promising, self._phases = is_promising, phases
        self.name = "periods" if is_promising else "periods, more"

    def refusal(self, features: Features) -> str | None:
        """Periods are laid for as many chunks as suit them, in continuous time."""
        from teccl.construct.repeated import can_repeat

        if features.on_grid or features.given_chunks is not None:
            return "periods choose their own number of chunks, off the grid"
        if self._phases not in (None, features.phases):
            return "forests come first where they may be optimal"
        if self._is_promising and not _is_large(features):
            return "others balance the links of small fabrics as well"
        is_alike = can_repeat(features.request.problem(1))
        return None if is_alike else "not all pieces are alike"

    def work(self, features: Features) -> int:
        """Schedule every send of one piece a few times."""
        return 2 * LISTING_UNITS * features.sends + features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Try more and more pieces, or as many as there is work for and fewer while that is better.

        Those that are promising leave the work to others where they gain little.
        """
        if not self._is_promising:
            yield from _from_many(search)
        elif _is_quick(search):
            yield from _from_few(search)


def _is_large(features: Features) -> bool:
    """Whether many GPUs want something from each other, past one switch at a time.

    Passages through several leave gaps everywhere, so that balance is not all that counts.
    """
    from teccl.construct.instance import is_joined_by_single_switches

    topology, tenants = features.request.topology, features.request.demand.tenants
    fewest = min(len(tenant.members(topology.num_gpus)) for tenant in tenants)
    is_large = topology.num_switches > 0 and fewest >= MANY_GPUS
    return is_large and features.asks_for_trees and is_joined_by_single_switches(topology)


def _is_quick(search: Search) -> bool:
    """Whether a single hop takes little of the time, so that balance counts for more than ways."""
    latency = int(search.request.topology.alpha_ps.min(initial=NEVER))
    return search.target is None or latency * GAP_PART <= search.target


def _from_few(search: Search) -> Iterator[None]:
    """Try more and more pieces, if the cheapest construction leaves something to gain.

    Fewer than are little work tell nothing about those that balance.
    """
    if not search.incumbents:
        little, one = search.budget.glance, search.request.problem(1)
        construct_one(search, one, allowance=little, most=little, is_noted=False)
    work, first, most = work_of(search), 1, finest(search, MOST_CHUNKS)
    while 2 * first <= most and work(2 * first) <= search.budget.polish:
        first *= 2
    for count in ladder(search, work, first=first, most=most):
        # Others may balance the links with more pieces than there would be work for otherwise.
        if 2 * work(count) > search.budget.left:
            return
        search.budget.spend(work(count))
        # Those that are behind may be ahead with more pieces, so that each is known.
        _offer_repeated(search, count, is_kept=True)
        yield


def _from_many(search: Search) -> Iterator[None]:
    """Try numbers of pieces, most first: the ends weigh least there."""
    for count in _counts(search):
        fastest = search.incumbents.fastest if search.incumbents else None
        _offer_repeated(search, count)
        yield
        if fastest is not None and search.incumbents.fastest == fastest:
            return


def _counts(search: Search) -> Iterator[int]:
    """Yield numbers of chunks for whole periods, the most that there is work for first."""
    from teccl.construct.repeated import period_pieces

    most = finest(search, MOST_CHUNKS)
    period, work = period_pieces(search.request.problem(most)), work_of(search)
    # The two ways of a sum are worth pipelining only if there are several pieces.
    count = min(max(period, search.features.phases), search.request.max_chunks or MOST_CHUNKS)
    while 2 * count <= most:
        count *= 2
    while count >= 1:
        if search.is_worth(work(count)):
            search.budget.spend(work(count))
            yield count
        count //= 2


def work_of(search: Search) -> Callable[[int], int]:
    """Return what tells the units of so many pieces, of laying a period to judging all."""
    from teccl.construct.instance import Instance, without_long_ways
    from teccl.construct.repeated import period_pieces
    from teccl.construct.route_first import listing_work

    request, features = search.request, search.features
    blocks = len(request.problem(1).chunks)
    # Trees take no passage through several switches where they can do without.
    routes = without_long_ways(Instance.build(request.problem(1))).routes
    hops = len(routes.links) / len(routes)

    def work(count: int) -> int:
        # Every tree of a period looks at all routes in each of several passes.
        laying = period_pieces(request.problem(count)) * blocks * len(routes)
        listing = 2 * listing_work(features.sends * count, hops)
        return laying + listing + features.offer_work(count)

    return work


def _offer_repeated(search: Search, num_chunks: int, *, is_kept: bool = False) -> None:
    """Offer the best plan that repeats trees, if it is better than what is known or kept anyway."""
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
    if plan is None:
        return
    if is_kept or not search.incumbents or plan.finish < search.incumbents.fastest:
        search.offer_plan(instance, plan)
