"""Improvement: ruin and recreate, which gets what is left of the budget."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from teccl.construct.params import STEPS
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search

if TYPE_CHECKING:
    from teccl.construct.instance import Instance
    from teccl.construct.plan import Plan


class Improvement:
    """Takes chunks out of plans and inserts them again, for the two best numbers of chunks.

    What insertion alone makes is often worse to begin with and better in the end.
    """

    name = "improve"

    def refusal(self, features: Features) -> str | None:
        """Epochs are left to exact models."""
        return "epochs are improved by exact models" if features.on_grid else None

    def work(self, features: Features) -> int:
        """Insert everything once."""
        return features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Improve plan after plan, each with as much work as the gap is worth at most."""
        from teccl.construct.insertion import estimated_work, refusal
        from teccl.construct.instance import Instance
        from teccl.construct.recreate import recreate

        counts = list(search.incumbents)[:2]
        shares = 2 * len(counts)
        for count in counts:
            instance = Instance.build(search.request.problem(count))
            if refusal(instance) is not None:
                continue
            for start in _starts(search, instance):
                work = search.worthwhile // shares
                if work * STEPS < estimated_work(instance):
                    return
                search.budget.spend(work)
                shares = max(1, shares - 1)
                plan = recreate(
                    instance,
                    start,
                    target=search.target or 0,
                    seed=search.request.seed,
                    budget=work * STEPS,
                )
                known = search.incumbents.get(count)
                if known is None or plan.finish < known.finish_ps:
                    search.offer_plan(instance, plan)
                yield


def _starts(search: Search, instance: "Instance") -> "Iterator[Plan]":
    """Yield the best plan that is known and one made by insertion."""
    from teccl.construct.insertion import inserted_plans

    known = search.incumbents.get(instance.problem.num_chunks)
    if known is not None and known.plan is not None:
        yield known.plan
    plans = inserted_plans(instance, target=search.target or 0, seed=search.request.seed, budget=1)
    yield from list(plans)[-1:]
