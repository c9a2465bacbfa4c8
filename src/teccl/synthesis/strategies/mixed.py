"""Mixed: sums whose shares take different schemes, found by trying pairs of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from teccl.construct.mixing import mixed
from teccl.construct.params import PART
from teccl.construct.schemes import outlook, schemes, usual
from teccl.construct.shallow_trees import can_branch
from teccl.construct.staged import Scheme, shallow_finish
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.staged import Staged, climb, delivery_work, has_waits, is_allowed


class _Trial(NamedTuple):
    """When a scheme ends along shallow trees."""

    finish: int
    scheme: Scheme


class Mixed(Staged):
    """Adds to the best scheme a share of another, while that ends sooner.

    Parameters
    ----------
    is_promising
        Have a turn where latency is most of what a ReduceScatter and an AllGather take, so that
        links wait in every scheme, else where it is not.
    """

    def __init__(self, *, is_promising: bool) -> None:
        super().__init__(is_promising=is_promising)
        self.name = "mixed" if is_promising else "mixed, last"

    def refusal(self, features: Features) -> str | None:
        """Mixtures are made of stages along shallow trees."""
        request = features.request
        if request.chunks is not None or not can_branch(request.problem(1)):
            return "no choice of pieces or of ways"
        return super().refusal(features)

    def attempts(self, search: Search) -> Iterator[None]:
        """Try each scheme by itself, then the best beside each of the others."""
        problem = search.request.problem(1)
        halves = outlook(problem, usual(problem))
        if not search.incumbents or has_waits(halves) is not self._is_promising:
            return
        # The other half of the work is for more pieces of what is found.
        limit = search.budget.spent + search.worthwhile // 2
        known = [scheme for scheme in schemes(problem) if not scheme.meets]
        alone = sorted(
            (trial for scheme in known for trial in _tried(search, scheme, limit)),
            key=lambda each: each.finish,
        )
        best = _best_mixture(search, alone, limit)
        if best is not None:
            # That it ends sooner than its parts do was tried, so that only the least counts.
            seen = outlook(problem, best)
            yield from climb(search, best, replace(seen, expected_ps=seen.floor_ps))


def _tried(search: Search, scheme: Scheme, limit: int) -> Iterator[_Trial]:
    """Yield how a scheme does with about a piece for each GPU, if it can be as fast as is known.

    No more work is spent than up to a limit.
    """
    request = search.request
    seen = outlook(request.problem(1), scheme)
    pieces = -(-len(scheme.shares[0][0].classes) // len(scheme.shares))
    work = delivery_work(search.features, seen.deliveries * pieces)
    if seen.latency_ps >= search.incumbents.fastest or not search.is_worth(work):
        return
    if not is_allowed(search, scheme):
        return
    if search.budget.spent + work > limit:
        return
    search.budget.spend(work)
    end = shallow_finish(request.whole_problem(pieces * len(scheme.shares)), scheme)
    if end is not None:
        yield _Trial(end, scheme)


def _best_mixture(search: Search, alone: Sequence[_Trial], limit: int) -> Scheme | None:
    """Return the best mixture of schemes that was found, if it is better than any alone.

    The best takes in half of each other in turn, and that with which it ends soonest stays; then a
    quarter, an eighth and so on, of what it has too, until parts are small and none helps.
    """
    if len(alone) < 2:
        return None
    best, known = alone[0], [trial.scheme for trial in alone]
    parts, more = {best.scheme: Fraction(1)}, Fraction(1, 2)
    while True:
        rivals = [_with_more(parts, each, more) for each in known if parts.keys() != {each}]
        tried = [(trial, each) for each in rivals for trial in _tried(search, mixed(each), limit)]
        trial, chosen = min(tried, key=lambda each: each[0].finish, default=(best, parts))
        if trial.finish < best.finish:
            best, parts = trial, chosen
        elif PART * more <= 1:
            return best.scheme if len(parts) > 1 else None
        more /= 2


def _with_more(
    parts: Mapping[Scheme, Fraction], scheme: Scheme, more: Fraction
) -> dict[Scheme, Fraction]:
    """Return parts of the buffer of which a scheme takes in so much of all."""
    changed = {each: (1 - more) * part for each, part in parts.items()}
    changed[scheme] = changed.get(scheme, Fraction(0)) + more
    return changed
