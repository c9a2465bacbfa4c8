"""Chunks: the ladder of numbers of chunks that a search climbs while more of them pay."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance
from teccl.construct.params import (
    CHUNK_TOLERANCE,
    GAP_PART,
    MANY_CHUNKS,
    MOST_CHUNKS,
    NEVER,
    PART,
    SECOND_TRY,
)
from teccl.demand.tenants import MAX_CHUNKS
from teccl.problem import Problem
from teccl.synthesis.search import Search


def ladder(
    search: Search,
    work: Callable[[int], int],
    *,
    first: int = 1,
    most: int | None = None,
    persists: bool = False,
) -> Iterator[int]:
    """Yield numbers of chunks, each twice the one before, while that is worth its work.

    Whoever asks counts the work and offers schedules with that number before asking for the next.
    Two numbers end it that gain less than their work is worth, next to nothing of the gap, or less
    than they would have to gain once more to end as soon as the best schedule known; so do gains
    that become smaller steadily, once one is less than is told apart: still more chunks gain no
    more than that in all.

    Parameters
    ----------
    work
        Units of trying a number.
    first
        The number to begin with.
    most
        Most chunks to try.
    persists
        Whether a large gap is worth more numbers after two that gained nothing.
    """
    if search.request.chunks is not None:
        yield search.request.chunks
        return
    limit = most or most_chunks(search)
    tolerance = 1 / CHUNK_TOLERANCE
    stale, fastest, count, gain, taken = 0, None, first, 0, 0
    while (stale < 2 or persists) and not search.is_within(tolerance):
        # The more numbers in a row gained nothing, the more the gap must be worth.
        doubts = SECOND_TRY ** (stale - 1) if stale > 1 else 0
        if search.incumbents and not search.is_worth(max(work(count), 2 * doubts * taken)):
            return
        search.latest, before = None, search.budget.spent
        yield count
        taken = search.budget.spent - before
        if search.incumbents.get(count) is None or count == limit:
            return
        # What was there before does not tell whether more chunks pay.
        found = NEVER if search.latest is None else search.latest
        if fastest is not None:
            least = max(tolerance, search.budget.price * work(count))
            if not gains(search, fastest, found, least):
                # The gap may be the bound's.
                search.refine()
            earlier, gain = gain, fastest - found
            # What whole chunks lose is halved with them, so that no more than this is to be gained.
            is_behind = found - gain >= search.incumbents.fastest
            is_useful = not is_behind and gains(search, fastest, found, least)
            stale = 0 if is_useful else stale + 1
            is_little = gain < tolerance * (search.target or 0)
            if is_little and 0 < earlier - gain <= 2 * gain:
                return
        fastest = found if fastest is None else min(fastest, found)
        count = min(2 * count, limit)


def gains(search: Search, before: int, after: int, least: float) -> bool:
    """Whether a finish is earlier by a least part of the bound, and by a part of the gap."""
    target = search.target or 0
    return before - after > max(least * target, (before - target) / GAP_PART)


class Tune(NamedTuple):
    """How much later than others ways reach their last port, in transfers on the slowest link.

    Behind switches nothing waits: where all ports are full, transfers whose ways differ by whole
    transfers follow each other without a gap, while others leave gaps that nothing fits.

    Parameters
    ----------
    by_latency
        Of the ways, for one chunk; with twice as many chunks twice as much.
    by_length
        Of the ways, however many chunks there are.
    """

    by_latency: npt.NDArray[np.float64]
    by_length: npt.NDArray[np.float64]

    @staticmethod
    def of(instance: Instance) -> "Tune":
        """Look at all routes."""
        routes, latency = instance.routes, instance.problem.topology.alpha_ps
        last = routes.link_start[1:] - 1
        before = np.concatenate([[0], np.cumsum(latency[routes.links])])
        fixed = before[last] - before[routes.link_start[:-1]]
        held = max(1, int(instance.hold[routes.links].max(initial=1)))
        parts = np.stack([fixed, routes.link_offset[last] - fixed]) / held
        by_latency, by_length = np.unique(parts, axis=1)
        return Tune(by_latency - by_latency[0], by_length - by_length[0])

    def nearest(self, counts: Sequence[int]) -> int:
        """Return the number of chunks with which ways differ most nearly by whole transfers."""
        apart = np.outer(counts, self.by_latency) + self.by_length
        return counts[int(np.abs(apart - np.rint(apart)).mean(axis=1).round(6).argmin())]


def most_chunks(search: Search) -> int:
    """Most chunks that are tried: what the user says, else many, more where each takes long."""
    many = min(MANY_CHUNKS, _handled(search.request.problem(1)))
    return search.request.max_chunks or max(many, finest(search, MOST_CHUNKS))


def most_pieces(search: Search) -> int:
    """Most pieces of all blocks together that users allow, any number where they say nothing."""
    request = search.request
    if request.max_chunks is None:
        return NEVER
    return request.max_chunks * len(request.problem(1).chunks)


def finest(search: Search, most: int = MANY_CHUNKS) -> int:
    """Most chunks, a power of two, each of which takes a part of what a hop costs anyway.

    With more a pipeline is always a little faster, if only on paper.
    """
    problem = search.request.problem(1)
    fixed = problem.topology.alpha_ps + problem.topology.overhead_ps
    if search.request.max_chunks is not None:
        return search.request.max_chunks
    most = min(most, _handled(problem))
    if not fixed.all():
        return most
    found = int((PART * problem.transmission_ps.max(axis=1) / fixed).max())
    return min(most, 1 << (max(1, found).bit_length() - 1))


def _handled(problem: Problem) -> int:
    """Most chunks, a power of two, with which there are no more in all than a problem may have."""
    return 1 << (max(1, MAX_CHUNKS // max(1, len(problem.chunks))).bit_length() - 1)
