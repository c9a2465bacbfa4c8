"""Closing: CP-SAT off the grid, which improves or proves the best schedule of a small problem."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import BUDGET
from teccl.construct.plan import Plan
from teccl.keywords import Effort
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search

if TYPE_CHECKING:
    from teccl.solvers import SolverOptions


class ExactOffGrid:
    """Hands transfers on routes, with their order on links, to CP-SAT."""

    name = "closing"

    def refusal(self, features: Features) -> str | None:
        """Close what is left between a schedule and the bound for its chunks."""
        if features.on_grid:
            return "epochs are closed by the paper's model"
        return None if features.given_chunks else "the number of chunks is open"

    def work(self, _: Features) -> int:
        """Cost what the solver's own deterministic work says."""
        return 0

    def attempts(self, search: Search) -> Iterator[None]:
        """Improve the best schedule that a construction made, or prove it best."""
        from teccl.models.milp.continuous import closed_plan, is_small

        count = search.request.chunks
        assert count is not None
        instance = Instance.build(search.request.problem(count))
        known = search.incumbents.get(count)
        if not is_small(instance):
            return
        start = None if known is None else known.plan_for(instance) or _inserted(instance, search)
        if known is None or start is None or search.bound is None:
            return
        closed = closed_plan(instance, start, options=_options(search), cancel=search.cancel)
        if closed is None:
            return
        if closed.plan.finish < known.finish_ps:
            search.offer_plan(instance, closed.plan)
        if closed.bound > (search.bound.chunk_ps or 0):
            text = "no order of transfers on links ends sooner, as branching has shown"
            search.bound = replace(search.bound, chunk_ps=closed.bound, certificate=text)
        yield


def _options(search: Search) -> "SolverOptions":
    """Return the work of a whole search, within what the user's time limit leaves."""
    from teccl.solvers import SolverOptions

    limit = search.request.time_limit_s
    return SolverOptions(
        # A quick search takes about a second, which is also the solver's unit.
        work=search.budget.total / BUDGET[Effort.QUICK],
        time_limit=None if limit is None else max(0.0, limit - search.elapsed_s),
        seed=search.request.seed,
    )


def _inserted(instance: Instance, search: Search) -> Plan | None:
    """Return a plan to begin with where the best schedule was made without one."""
    from teccl.construct.insertion import inserted_plans, refusal

    if refusal(instance) is not None:
        return None
    return next(inserted_plans(instance, Goal(seed=search.request.seed)), None)
