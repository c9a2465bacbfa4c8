"""Improvement: ruin and recreate, which gets what is left of the budget."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from teccl.construct.params import PASSES_EACH, STEPS
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
        """Trees that share links with copies gain next to nothing this way."""
        if features.on_grid:
            return "epochs are improved by exact models"
        return None if features.is_exchange else "there are copies or sums"

    def work(self, features: Features) -> int:
        """Insert everything once."""
        return features.offer_work(1)

    def attempts(self, search: Search) -> Iterator[None]:
        """Improve plan after plan, each with as much work as the gap is worth at most.

        The best is improved again while that gains something and there is work for many passes.
        """
        starts = _starts(search)
        found: list[tuple[Instance, Plan]] = []
        for number, (instance, start) in enumerate(starts):
            work = search.worthwhile // (len(starts) - number)
            found.append((instance, _improved(search, instance, start, work)))
            yield
        while found:
            instance, best = min(found, key=lambda each: each[1].finish)
            work = search.worthwhile
            if work < PASSES_EACH * _pass(instance):
                return
            plan = _improved(search, instance, best, work)
            yield
            found = [(instance, plan)] if plan.finish < best.finish else []


def _improved(search: Search, instance: "Instance", start: "Plan", work: int) -> "Plan":
    """Ruin and recreate a plan with so much work, and offer what comes of it."""
    from teccl.construct.recreate import recreate

    search.budget.spend(work)
    plan = recreate(
        instance,
        start,
        target=search.target or 0,
        seed=search.request.seed,
        budget=work * STEPS,
        is_over=search.is_over,
    )
    known = search.incumbents.get(instance.problem.num_chunks)
    if known is None or plan.finish < known.finish_ps:
        search.offer_plan(instance, plan)
    return plan


def _starts(search: Search) -> "list[tuple[Instance, Plan]]":
    """Return the best known and an inserted plan for the most chunks that allow many passes."""
    from teccl.construct.goal import Goal
    from teccl.construct.insertion import inserted_plans, refusal
    from teccl.construct.instance import Instance
    from teccl.construct.symmetry import fits_quotient, num_images

    starts: list[tuple[Instance, Plan]] = []
    for count in sorted(search.incumbents, reverse=True):
        instance = Instance.build(search.request.problem(count))
        known = search.incumbents.get(count)
        plan = None if known is None else known.plan_for(instance)
        # What a group repeats is improved for one source of each orbit.
        alike = num_images(plan) if plan and fits_quotient(instance.problem) else 1
        passes = search.worthwhile // max(1, _pass(instance))
        if refusal(instance) is not None or passes * alike < PASSES_EACH:
            continue
        if plan is not None:
            starts.append((instance, plan))
        if passes >= PASSES_EACH:
            goal = Goal(target=search.target or 0, seed=search.request.seed)
            starts += [(instance, plan) for plan in list(inserted_plans(instance, goal))[-1:]]
        if len(starts) > 2:
            break
    return starts


def _pass(instance: "Instance") -> int:
    """Units of inserting all chunks once."""
    from teccl.construct.insertion import estimated_work

    return estimated_work(instance) // STEPS
