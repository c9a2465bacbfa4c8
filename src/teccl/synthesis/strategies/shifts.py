"""Shifts: exchanges through stages in rounds that move everybody alike, routed by receiver."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from teccl.construct.goal import Goal
from teccl.construct.params import GAP_PART, PYTHON_UNITS
from teccl.demand import Collective, Demand
from teccl.problem import Problem
from teccl.synthesis.chunks import ladder
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search

if TYPE_CHECKING:
    from teccl.construct.instance import Instance
    from teccl.construct.plan import Plan

_SERVED = (Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCESCATTER)


class Shifts:
    """Gives every pair the way that its receiver's place says, and sends trains round by round.

    In a round all receivers are different, so that in a fat tree no two trains need the same link.
    Copies and contributions go straight, too, where links between switches carry that.
    """

    name = "shifts"

    def refusal(self, features: Features) -> str | None:
        """All ranks must exchange with all, through several switches, off the grid."""
        from teccl.construct.exchanged import is_staged
        from teccl.construct.symmetry import is_symmetric_demand

        problem = features.request.problem(1)
        is_served = any(is_symmetric_demand(problem, collective) for collective in _SERVED)
        if features.on_grid or not is_served:
            return "not an exchange of all ranks, off the grid"
        if problem.buffer is not None or problem.topology.has_profiles:
            return "trains know neither buffers nor rates that change"
        return None if is_staged(problem) else "no way leads through several switches alone"

    def work(self, features: Features) -> int:
        """Place every train once."""
        return features.offer_work(1) + PYTHON_UNITS * features.sends

    def attempts(self, search: Search) -> Iterator[None]:
        """Offer trains of more and more chunks, where links are not much fuller than they must."""
        from teccl.construct.instance import Instance
        from teccl.construct.trains import is_staged_exchange, train_plans
        from teccl.construct.ways import ways_by_receiver

        target, ways = search.target or 0, ways_by_receiver(search.request.problem(1))
        if ways is None:
            return
        for count in ladder(search, search.features.offer_work):
            search.budget.spend(search.features.offer_work(count))
            instance = Instance.build(search.request.problem(count), ways=ways)
            exchange = Instance.build(_as_exchange(instance.problem), ways=ways)
            used = np.bincount(exchange.routes.links, minlength=len(exchange.hold))
            if int((used * exchange.hold).max()) * count * GAP_PART > target * (GAP_PART + 1):
                return
            if not is_staged_exchange(exchange):
                return
            goal = Goal(
                target=target,
                allowance=search.budget.polish,
                price=search.budget.price,
                checkpoint=search.checkpoint,
            )
            plans = train_plans(exchange, goal, across=(True,))
            plan = min(plans, key=lambda each: each.finish, default=None)
            search.budget.spend(goal.spent)
            if plan is None:
                return
            search.offer_plan(instance, _delivered(instance, exchange, plan))
            yield


def _as_exchange(problem: Problem) -> Problem:
    """Return the AllToAll whose chunks are the deliveries of a collective."""
    demand = Demand.collective(Collective.ALLTOALL, size=problem.demand.tenants[0].size)
    return replace(problem, demand=demand)


def _delivered(instance: "Instance", exchange: "Instance", plan: "Plan") -> "Plan":
    """Return the plan of an AllToAll as one of copies or sums over the same ways."""
    table, apart = instance.problem.chunks, exchange.problem.chunks
    if instance.problem.demand == exchange.problem.demand:
        return plan
    is_sum = bool(table.reduce.all())
    own, theirs = (
        (each.destination_set if is_sum else each.source_set).tolist() for each in (table, apart)
    )
    known = {
        (int(table.sets[end][0]), piece): chunk
        for chunk, (end, piece) in enumerate(zip(own, table.piece.tolist(), strict=True))
    }
    chunks = np.array(
        [
            known[int(apart.sets[end][0]), piece]
            for end, piece in zip(theirs, apart.piece.tolist(), strict=True)
        ]
    )
    rows = plan.rows.copy()
    rows[:, 0] = chunks[rows[:, 0]]
    return replace(plan, rows=rows, reduce=table.reduce[rows[:, 0]] if is_sum else None)
