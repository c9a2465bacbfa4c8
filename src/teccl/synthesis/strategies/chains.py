"""Chains: one root's pieces handed from leaf to leaf, where throughput counts more than latency."""

from collections.abc import Iterator
from typing import NamedTuple

from teccl.construct.leaf_chains import LeafChain, leaf_chain
from teccl.construct.params import CHUNK_TOLERANCE, GREEDY_UNITS, OFFER_UNITS
from teccl.demand import Collective
from teccl.synthesis.chunks import gains, most_chunks
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search

_ROOTED = {Collective.BROADCAST, Collective.REDUCE}


class Chains:
    """Streams pieces along a chain of leaves, as many as are worth their work."""

    name = "chains"

    def refusal(self, features: Features) -> str | None:
        """Chains lead through several switches, in continuous time and without limits."""
        request = features.request
        topology = request.topology
        if features.has_tenants or not features.collectives <= _ROOTED:
            return "not one Broadcast or Reduce"
        if features.on_grid or topology.has_profiles or topology.shared:
            return "slots of one length need rates that stay, and links of their own"
        if request.buffer is not None or not request.copy:
            return "gateways keep pieces and copy them"
        if any(tenant.ready for tenant in request.demand.tenants):
            return "not all GPUs are ready from the start"
        return None if topology.num_switches > 1 else "there is one leaf only"

    def work(self, features: Features) -> int:
        """Offer one schedule."""
        return features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Offer the chain with the number of pieces that is worth its work."""
        problem = search.request.problem(search.request.chunks or 1)
        chain = leaf_chain(problem)
        best = None if chain is None else _best_count(search, chain)
        if chain is None or best is None:
            return
        if search.incumbents and best.finish >= search.incumbents.fastest:
            return
        search.budget.spend(_work(search, best.chunks))
        search.offer_plan(*chain.plan(search.request.problem(best.chunks)))
        yield


class _Choice(NamedTuple):
    """When all is over with a number of pieces."""

    finish: int
    chunks: int


def _best_count(search: Search, chain: LeafChain) -> _Choice | None:
    """Return the best number of pieces of those up to which doubling them is worth the work.

    How well slots fit latencies depends on the number, so that all of them are looked at.
    """
    request, problem = search.request, search.request.problem(1)
    if request.chunks is not None:
        (finish,) = chain.finishes(problem, [request.chunks]).tolist()
        return _Choice(int(finish), request.chunks)
    best: _Choice | None = None
    most, low = most_chunks(search), 1
    while low <= most and (best is None or _work(search, low) <= search.budget.left):
        counts = range(low, min(2 * low, most + 1))
        finish, count = min(zip(chain.finishes(problem, counts).tolist(), counts, strict=True))
        least = max(1 / CHUNK_TOLERANCE, search.budget.price * _work(search, count))
        if best is not None and not gains(search, best.finish, int(finish), least):
            return best
        best = _Choice(int(finish), count)
        low *= 2
    return best


def _work(search: Search, count: int) -> int:
    """Units of writing down a schedule with so many pieces, and of judging it."""
    return (OFFER_UNITS + GREEDY_UNITS) * search.features.sends * count
