"""What no number of chunks can beat where transfers have an overhead.

Every schedule moves some number of equal chunks of each block. For each small number whole chunks
have bounds of their own, and for all larger ones every chunk more pays an overhead more. So the
least of these bounds holds whatever the number is.
"""

from collections.abc import Callable
from dataclasses import replace

from teccl.bounds.model import Bound
from teccl.demand import Collective
from teccl.problem import Problem

# Numbers of chunks that are looked at one by one, and chunks of all blocks together up to which.
MOST_NUMBERS = 32
MOST_CHUNKS = 20_000
# What one more thousandth of a bound would say is not worth the time.
LEAST_GAIN = 1000

BoundOf = Callable[[Problem], Bound]


def any_number_of_chunks(
    problem: Problem, known: int, exactly: BoundOf, at_least: BoundOf
) -> list[Bound]:
    """Return the least bound over all numbers of chunks, if it is better than what is known.

    Parameters
    ----------
    exactly, at_least
        Best bound for the chunks of a problem, and for as many of them or more.
    """
    one = _cut_into(problem, 1)
    most = min(MOST_NUMBERS, MOST_CHUNKS // len(one.chunks))
    if len(problem.demand.tenants) != 1 or len(one.chunks.sizes) != 1 or most < 1:
        return []
    rest = at_least(_cut_into(problem, most + 1))
    if rest.value <= known + known // LEAST_GAIN:
        return []
    best: Bound | None = None
    for number in range(1, most + 1):
        cut = _cut_into(problem, number)
        if best is not None and at_least(cut).value >= best.value:
            return [best]
        found = exactly(cut)
        if found.value <= known:
            return []
        if best is None or found.value < best.value:
            best = _named(found, f"cut into {number}, the best number")
    if best is None or rest.value < best.value:
        best = _named(rest, f"cut into more than {most}")
    return [best]


def _cut_into(problem: Problem, number: int) -> Problem:
    """Return the problem with so many chunks of each block; a buffer is cut as a whole."""
    whole = any(t.collective is Collective.ALLREDUCE for t in problem.demand.tenants)
    return replace(problem, num_chunks=number, whole_buffer=whole)


def _named(bound: Bound, how: str) -> Bound:
    return replace(bound, certificate=f"{how}: {bound.certificate}")
