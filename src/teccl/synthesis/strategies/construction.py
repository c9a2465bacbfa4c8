"""Construction: a schedule without a solver for each number of chunks that pays."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from teccl.construct.goal import Goal
from teccl.construct.params import NEVER
from teccl.problem import Problem
from teccl.synthesis.chunks import ladder, most_chunks
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS

if TYPE_CHECKING:
    from teccl.construct.plan import Plan


class ConstructionStrategy:
    """Tries one construction for one, two, four ... chunks."""

    name = "construct"

    def refusal(self, _: Features) -> None:
        """Serve every request; options that nothing serves leave no schedule."""

    def work(self, features: Features) -> int:
        """Offer one schedule."""
        return features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Construct with more and more chunks."""
        for count in ladder(search, search.features.offer_work, persists=True):
            search.budget.spend(search.features.offer_work(count))
            problem = search.request.problem(count)
            climbs = search.request.chunks is None and count < most_chunks(search)
            most = search.budget.left
            construct_one(search, problem, allowance=search.budget.glance, most=most, climbs=climbs)
            yield


def construct_one(
    search: Search,
    problem: Problem,
    *,
    allowance: int,
    most: int = NEVER,
    climbs: bool = False,
    is_noted: bool = True,
) -> None:
    """Offer the first plan at once and the best one in the end, however it ends.

    `most` are units that are left in all, `climbs` says that more chunks are tried next, and
    `is_noted` that what constructions made and took tells about those.
    """
    from teccl.construct.constructions import construct
    from teccl.construct.instance import Instance

    search.checkpoint()
    grid = search.request.time_grid(problem)
    instance = Instance.build(problem, grid)
    known = search.incumbents.get(problem.num_chunks)
    goal = Goal(
        target=_target(search, grid),
        allowance=allowance,
        price=search.budget.price,
        seed=search.request.seed,
        checkpoint=search.checkpoint,
        is_late=search.is_late,
        finishes=search.finishes if is_noted else {},
        shares=search.shares if is_noted else {},
        taken=search.taken if is_noted else {},
        known=NEVER if known is None else known.epochs or known.finish_ps,
        climbs=climbs,
        most=most,
    )
    # The best whose times hold and, where rates change, the best whose times are estimates.
    pending: dict[bool, Plan] = {}
    try:
        for plan in construct(instance, goal):
            pending[plan.exact or not problem.topology.has_profiles] = plan
            if search.incumbents.get(problem.num_chunks) is None or search.features.has_tenants:
                search.offer_plan(instance, plan)
                pending.clear()
            search.checkpoint()
    finally:
        search.budget.spend(goal.spent)
        for plan in pending.values():
            search.offer_plan(instance, plan)


def _target(search: Search, grid: TimeGrid | None) -> int:
    """Return the bound in the time that plans count: epochs on a grid, else picoseconds."""
    target = 0 if search.target is None else search.target * (1 + search.request.gap)
    return math.ceil(target if grid is None else target / (grid.epoch * PICOSECONDS))
