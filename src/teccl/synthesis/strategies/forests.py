"""Forests: trees at the highest rate there is, repeated for many pieces of large collectives."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from teccl.construct.goal import Goal
from teccl.construct.params import (
    GAP_PART,
    MOST_CHUNKS,
    NARROW_GAP,
    NEVER,
    PYTHON_UNITS,
    STEPS,
)
from teccl.demand import Collective
from teccl.synthesis.chunks import finest
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.construction import construct_one
from teccl.units import PICOSECONDS, format_throughput

if TYPE_CHECKING:
    from teccl.construct.forest import Forest

# Collectives whose trees span one set of nodes.
_SPANNING = {
    Collective.ALLGATHER,
    Collective.BROADCAST,
    Collective.REDUCESCATTER,
    Collective.REDUCE,
    Collective.ALLREDUCE,
}


class Forests:
    """Packs trees that use every bottleneck to the full and sends many pieces along them.

    Parameters
    ----------
    is_promising
        Have a turn where the ways of pieces are short beside the whole time, else where they are
        not.
    """

    def __init__(self, *, is_promising: bool) -> None:
        self._is_promising = is_promising
        self.name = "forests" if is_promising else "forests, more"

    def refusal(self, features: Features) -> str | None:
        """Forests choose their own number of chunks, for one tenant, at rates that stay."""
        from teccl.construct.repeated import can_repeat

        topology = features.request.topology
        if features.on_grid or features.given_chunks is not None or features.has_tenants:
            return "forests choose the chunks of one tenant, off the grid"
        if not features.collectives <= _SPANNING or not can_repeat(features.request.problem(1)):
            return "trees do not span the same nodes, or pieces are not alike"
        if topology.shared or topology.has_overheads:
            return "links have more to them than a rate"
        is_mixed = len({topology.rate(link) for link in topology.links}) > 1
        if is_mixed and features.request.problem(1).has_circuits:
            return "circuits hold fast links for as long as slow ones"
        return None

    def work(self, features: Features) -> int:
        """Find trees of the cheapest kind."""
        return min([_flow_work(features), *_mixing_work(features)])

    def attempts(self, search: Search) -> Iterator[None]:
        """Offer one forest, with as many pieces as make the ends short and as there is work for."""
        from teccl.construct.forest_plans import ForestTimes, forest_plan, mean_hops

        work = self.work(search.features)
        if work > search.budget.polish or (self._is_promising and not _may_be_short(search)):
            return
        if not search.incumbents:
            # Where one chunk is nearly optimal many pieces gain nothing.
            construct_one(search, search.request.problem(1), allowance=search.budget.glance)
        if not search.is_worth(work):
            return
        forest = _best_forest(search)
        if forest is None:
            return
        hops = mean_hops(search.request.problem(1), forest)
        if forest.is_optimal:
            # Nobody who follows can gain more than the ends, so that nothing is kept for them.
            search.budget.keep(None)
        count, is_short = _pieces(search, forest, hops)
        had_a_turn = is_short and _may_be_short(search)
        if not count or had_a_turn is not self._is_promising:
            return
        for number in self._numbers(search, forest, hops, count):
            search.budget.spend(_work(search, forest, hops, number))
            problem = search.request.problem(number)
            instance, plan = forest_plan(problem, forest)
            if not search.incumbents or plan.finish < search.incumbents.fastest:
                search.offer_plan(instance, plan, note=_described(search, forest))
            yield
            # What an order wastes beyond the ends it wastes with more pieces, too.
            if plan.finish > (1 + 1 / GAP_PART) * sum(ForestTimes.of(problem, forest)):
                return

    def _numbers(self, search: Search, forest: "Forest", hops: float, count: int) -> Iterator[int]:
        """Yield a few pieces, which tell whether an order keeps links busy, and then all."""
        few = range(forest.pieces, count + 1, forest.pieces)
        work = partial(_work, search, forest, hops)
        probe = few[max(1, bisect_right(few, search.budget.polish, key=work)) - 1]
        if probe < count:
            yield probe
        yield count


def _flow_work(features: Features) -> int:
    """Units of flows, for each root, over every switch and for every arc of trees of one kind."""
    topology = features.request.topology
    is_switch = topology.is_switch
    ports = is_switch[topology.link_src].sum() + is_switch[topology.link_dst].sum()
    roots = len(features.request.problem(1).chunks)
    flows = roots * (topology.num_gpus + int(ports))
    return features.phases * flows * topology.num_nodes**2 // STEPS


def _mixing_work(features: Features) -> list[int]:
    """Units of the least that a mixture of trees takes, for a sum that may be made anywhere."""
    from teccl.construct.tree_mixtures import mixing_work

    if features.collectives != {Collective.ALLREDUCE}:
        return []
    num_gpus = features.request.topology.num_gpus
    return [mixing_work(num_gpus, len(features.request.demand.tenants[0].members(num_gpus)))]


def _best_forest(search: Search) -> "Forest | None":
    """Return the best forest of one kind of trees, or the best of any trees for a sum of all."""
    from teccl.construct.forest import best_forest
    from teccl.construct.forest_plans import ForestTimes
    from teccl.construct.tree_mixtures import mixed_forest

    problem, most = search.request.problem(1), finest(search, MOST_CHUNKS)
    found, allowance = list["Forest | None"](), search.budget.polish
    work = _flow_work(search.features)
    if work <= allowance:
        search.budget.spend(work)
        found.append(best_forest(problem, most))
    is_known = any(forest is not None and _is_fast(search, forest) for forest in found)
    for work in _mixing_work(search.features):
        goal = Goal(allowance=allowance, checkpoint=search.checkpoint)
        if not is_known and work <= allowance:
            found.append(mixed_forest(problem, partial(_fits, search), goal))
        search.budget.spend(goal.spent)
    fine = search.request.problem(most)
    known = [forest for forest in found if forest is not None]
    return min(known, key=lambda each: sum(ForestTimes.of(fine, each)), default=None)


def _fits(search: Search, forest: "Forest") -> bool:
    """Whether a period of a forest has no more pieces than there may be and there is work for."""
    from teccl.construct.forest_plans import mean_hops

    hops = mean_hops(search.request.problem(1), forest)
    is_few = forest.pieces <= finest(search, MOST_CHUNKS)
    return is_few and _work(search, forest, hops, forest.pieces) <= search.worthwhile


def _is_fast(search: Search, forest: "Forest") -> bool:
    """Whether no other trees can have a rate that is much higher."""
    problem = search.request.problem(1)
    block = problem.chunks.sizes[0] * problem.num_chunks
    return block / forest.rate * PICOSECONDS <= (1 + NARROW_GAP) * (search.target or 0)


def _pieces(search: Search, forest: "Forest", hops: float) -> tuple[int, bool]:
    """Return the fewest pieces whose ways take next to no part of the time, else the most.

    Also returns whether they take little of it. Pieces make whole periods, and no more of them
    than there is work for.
    """
    from teccl.construct.forest_plans import ForestTimes

    period, limit = forest.pieces, search.worthwhile
    most = finest(search, MOST_CHUNKS) // period
    # Through several switches twice the pieces are more than twice the work.
    most = bisect_right(
        range(1, most + 1), limit, key=lambda m: _work(search, forest, hops, period * m)
    )
    if not most:
        return 0, False
    load, slowest = ForestTimes.of(search.request.problem(period), forest)
    _, fastest = ForestTimes.of(search.request.problem(period * most), forest)
    # Ends may take a little longer than the longest way.
    enough = NARROW_GAP * load / 2
    if fastest > enough:
        # Over single links ends are all that is lost; in switches an order wastes more than that.
        is_direct = all(len(way) == 1 for way in forest.ways())
        return period * most, fastest <= (1 / GAP_PART if is_direct else 2 * NARROW_GAP) * load
    # Ways take as long as their latencies and, beyond that, less the smaller pieces are.
    fixed = (most * fastest - slowest) / (most - 1) if most > 1 else 0.0
    periods = math.ceil((slowest - fixed) / max(1.0, enough - fixed))
    return period * min(most, max(1, periods)), True


def _may_be_short(search: Search) -> bool:
    """Whether a single hop takes next to no part of the time."""
    latency = int(search.request.topology.alpha_ps.min(initial=NEVER))
    return search.target is None or latency <= NARROW_GAP * search.target


def _described(search: Search, forest: "Forest") -> str:
    """Say how fast a forest sends everything once its trees are full."""
    problem = search.request.problem(1)
    rate = forest.rate * problem.size_bytes / problem.chunks.sizes[0]
    best = ", as much as any schedule can" if forest.is_optimal else ""
    return f"steady state: {format_throughput(rate)} of the size asked for{best}"


def _work(search: Search, forest: "Forest", hops: float, count: int) -> int:
    """Units of scheduling and judging so many pieces, whose transfers take so many links each."""
    from teccl.construct.route_first import listing_work

    transfers = sum(map(len, forest.trees)) * count // forest.pieces
    # Sums are judged contribution by contribution, in plain Python.
    judging = PYTHON_UNITS * transfers * (search.features.phases - 1)
    return listing_work(transfers, hops) + search.features.offer_work(count) + judging
