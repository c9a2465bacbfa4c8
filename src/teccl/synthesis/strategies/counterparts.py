"""Counterparts: AllReduces made of AllGathers and ReduceScatters that are searched for apart."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from teccl.construct.params import KEPT_PART
from teccl.demand import Collective
from teccl.synthesis.features import Features
from teccl.synthesis.incumbents import Candidate
from teccl.synthesis.portfolio import run_portfolio
from teccl.synthesis.search import Search
from teccl.synthesis.stop import SearchStoppedError


class _Part(NamedTuple):
    """What an AllReduce is made of: a collective of so many buffers."""

    collective: Collective
    buffers: int


class Counterparts:
    """Makes AllReduces of the best AllGather of whole buffers, and of the best two halves.

    All that is known of those collectives serves sums so, too. What their bounds show to end no
    sooner than the best schedule known is not searched for.
    """

    name = "counterparts"

    def refusal(self, features: Features) -> str | None:
        """One AllReduce, whose GPUs may keep and copy what they like."""
        request = features.request
        if features.has_tenants or features.collectives != {Collective.ALLREDUCE}:
            return "not one AllReduce"
        if features.on_grid or features.given_chunks is not None:
            return "numbers of chunks are chosen for each part, off the grid"
        if request.buffer is not None or not request.copy:
            return "what is added up is more than what a part may keep or copy"
        return None

    def work(self, features: Features) -> int:
        """Offer one schedule."""
        return features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Offer the best one-shot, and the best two halves of as many chunks."""
        from teccl.construct.counterparts import gathered_and_added, scattered_and_gathered

        request = search.request
        members = len(request.demand.tenants[0].members(request.topology.num_gpus))
        for (gathered,) in _found(search, _Part(Collective.ALLGATHER, members)):
            schedule = gathered.schedule
            problem = request.whole_problem(schedule.problem.num_chunks)
            search.offer(gathered_and_added(problem, schedule))
            yield
        if request.topology.has_profiles:
            # One half begins when the other ends, where links carry otherwise.
            return
        halves = _Part(Collective.REDUCESCATTER, 1), _Part(Collective.ALLGATHER, 1)
        for pair in _found(search, *halves):
            scatter, gather = (each.schedule for each in pair)
            problem = request.problem(scatter.problem.num_chunks)
            search.offer(scattered_and_gathered(problem, scatter, gather))
            yield


def _found(search: Search, *parts: _Part) -> Iterator[tuple[Candidate, ...]]:
    """Yield the best schedules of parts with one number of chunks, if they end soon enough.

    Parts share the work that is left, but at least what a strategy leaves for others: where much
    was spent in vain another way to look at sums is worth most.
    """
    apart = [_search_for(search, part) for part in parts]
    if (
        not search.incumbents
        or sum(each.target or 0 for each in apart) >= search.incumbents.fastest
    ):
        return
    share = max(search.budget.left, search.budget.total // KEPT_PART) // len(parts)
    for each in apart:
        _carry_out(search, each, share)
    counts = set.intersection(*(set(each.incumbents) for each in apart))
    pairs = [tuple(each.incumbents.by_chunks[False, count] for each in apart) for count in counts]
    best = min(pairs, key=lambda pair: sum(each.finish_ps for each in pair), default=None)
    if best is not None:
        yield best


def _search_for(search: Search, part: _Part) -> Search:
    """Return a search for a part of the AllReduce, with a bound of it."""
    request, (tenant,) = search.request, search.request.demand.tenants
    wanted = replace(tenant, collective=part.collective, size=part.buffers * tenant.size)
    demand = replace(request.demand, tenants=(wanted,))
    asked = replace(request, demand=demand, from_schedule=None, any_order=False, gap=Fraction(0))
    found = Search(request=asked, started=search.started, cancel=search.cancel)
    found.bound = found.prove(asked.problem(1), narrow=False)
    return found


def _carry_out(search: Search, part: Search, allowance: int) -> None:
    """Search for a part with so many units of the work."""
    from teccl.synthesis.strategies import CONSTRUCT

    begun = part.budget.spent = max(0, part.budget.total - allowance)
    # Whether all is over is for the whole search to say.
    with contextlib.suppress(SearchStoppedError):
        run_portfolio(part, CONSTRUCT)
    search.budget.spend(part.budget.spent - begun)
    search.checkpoint()
