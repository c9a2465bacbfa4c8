"""Staged: sums formed in stages, one-shot, exchanges and owners, which need few steps."""

from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

from teccl.construct.compositions import lasting_topology
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import CHUNK_TOLERANCE, NEVER, OFFER_UNITS, PYTHON_UNITS
from teccl.construct.schemes import Outlook, exchanged, one_shot, outlook, schemes, usual
from teccl.construct.shallow_trees import can_branch
from teccl.construct.staged import Scheme, has_direct_links, shallow_finish, staged_schedule
from teccl.demand import Collective
from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.synthesis.chunks import Tune, gains, most_chunks, most_pieces
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search

_STAGED = {Collective.ALLREDUCE, Collective.REDUCE}


class Staged:
    """Tries schemes, each with more and more pieces.

    Parameters
    ----------
    is_promising
        Try schemes that look faster than a ReduceScatter and an AllGather, and these where latency
        counts most, else the others, of which those follow that may still be faster than what was
        found.
    """

    def __init__(self, *, is_promising: bool) -> None:
        self._is_promising = is_promising
        self.name = "staged" if is_promising else "staged, more"

    def refusal(self, features: Features) -> str | None:
        """Stages sum up what one tenant asks for, in continuous time."""
        if features.has_tenants or not features.collectives <= _STAGED:
            return "not one AllReduce or Reduce"
        is_rooted = features.collectives == {Collective.REDUCE}
        if is_rooted and not _hands_over(features.request.problem(1)):
            return "a Reduce whose sums are made on the way"
        if features.on_grid:
            return "partial sums know no epochs"
        return None

    def work(self, features: Features) -> int:
        """Deliver every contribution once."""
        return delivery_work(features, features.sends // 2)

    def attempts(self, search: Search) -> Iterator[None]:
        """Try every scheme of this turn, the one that looks fastest first."""
        request = search.request
        problem = request.problem(request.chunks or 1)
        halves = outlook(problem, usual(problem))
        # Along shallow trees owners are soon made, too; they pipeline well while latency counts,
        # and so do schemes with fewer steps.
        waits = can_branch(problem) and has_waits(halves)
        limit = halves.expected_ps + waits
        if not waits and search.target:
            # Halves whose sums are made on the way end sooner than those sent straight, which are
            # what is expected: where latency counts for little they are near the bound.
            limit = min(limit, 2 * search.target)
        is_rooted = search.features.collectives == {Collective.REDUCE}
        if is_rooted and Instance.build(problem).routes.are_staged():
            # Trees that go through stages fill their ports less well than owners do.
            limit = NEVER
        # Whoever passes a sum on keeps or copies it; in one shot GPUs send nothing but their own.
        count = problem.num_gpus
        limited = [one_shot(count), exchanged(count)]
        chosen = limited if _is_limited(search) else schemes(problem)
        found = [(outlook(problem, each), each) for each in chosen if is_allowed(search, each)]
        turn = [
            (seen, scheme)
            for seen, scheme in found
            if ((_guess(seen) if waits else seen.expected_ps) < limit) is self._is_promising
        ]
        turn.sort(key=lambda each: each[0].expected_ps)
        for seen, scheme in _probed(search, turn):
            yield from climb(search, scheme, seen)


def is_allowed(search: Search, scheme: Scheme) -> bool:
    """Whether every share may have a piece; given chunks are shared as far as they go."""
    return search.request.chunks is not None or len(scheme.shares) <= most_pieces(search)


def has_waits(halves: Outlook) -> bool:
    """Whether latency is most of what a ReduceScatter and an AllGather take, so that links wait."""
    return 2 * halves.latency_ps > halves.expected_ps


def _probed(search: Search, turn: list[tuple[Outlook, Scheme]]) -> Iterator[tuple[Outlook, Scheme]]:
    """Yield schemes in the order in which they end along shallow trees, with a piece for each GPU.

    There are fewer pieces where all probes would take more than half of the work that is left, and
    where every piece has an overhead a share is one piece. Schemes that look worse than what others
    take are left out; those that cannot be probed come as they look.
    """
    request, found = search.request, list[tuple[int, Outlook, Scheme]]()
    pieces = [1 if request.topology.has_overheads else _pieces_each(scheme) for _, scheme in turn]
    counts = zip(turn, pieces, strict=True)
    whole = sum(delivery_work(search.features, seen.deliveries * n) for (seen, _), n in counts)
    half = max(1, search.worthwhile // 2)
    best = None
    for (seen, scheme), most in zip(turn, pieces, strict=True):
        count = max(1, most * half // max(half, whole))
        work = delivery_work(search.features, seen.deliveries * count)
        if best is not None and _guess(seen) >= best:
            continue
        end = None
        if len(turn) > 1 and request.chunks is None and search.is_worth(work):
            search.budget.spend(work)
            end = shallow_finish(request.whole_problem(count * len(scheme.shares)), scheme)
        if end is not None and (best is None or end < best):
            best = end
        found.append((seen.expected_ps if end is None else end, seen, scheme))
    for _, seen, scheme in sorted(found, key=itemgetter(0)):
        yield seen, scheme


def _pieces_each(scheme: Scheme) -> int:
    """Pieces of each share with which there is about one for each GPU."""
    return -(-len(scheme.shares[0][0].classes) // len(scheme.shares))


def _guess(seen: Outlook) -> int:
    """About what a scheme takes: bytes that come while others are under way take nothing."""
    return (seen.floor_ps + seen.expected_ps) // 2


def climb(search: Search, scheme: Scheme, seen: Outlook) -> Iterator[None]:
    """Offer a scheme with one piece for each share, then twice as many while that is faster."""
    from teccl.verification import verify

    before: int | None = None
    taken = 0
    for problem in _problems(search, scheme):
        pieces = -(-len(problem.chunks) // len(scheme.shares))
        work = delivery_work(search.features, seen.deliveries * pieces)
        guess = seen.floor_ps if before else _guess(seen)
        is_hopeless = search.incumbents and guess >= search.incumbents.fastest
        # More pieces take no less than the last ones took, if that was more than estimated. Where
        # nothing is known yet others find a first schedule with less.
        needed = max(work, taken)
        if is_hopeless or needed > search.budget.left or not search.is_worth(needed):
            return
        search.budget.spend(work)
        goal = Goal(
            target=search.target or 0,
            allowance=work,
            price=search.budget.price,
            seed=search.request.seed,
            checkpoint=search.checkpoint,
        )
        known = search.incumbents.fastest if search.incumbents else NEVER
        schedule = staged_schedule(_still(search, problem), scheme, goal, known=known)
        search.budget.spend(goal.spent)
        taken = work + goal.spent
        if schedule is None:
            return
        if _is_limited(search) and verify(schedule):
            # A relay had to keep or to copy what it passes on.
            return
        finish = _offer(search, schedule, problem)
        if finish is None:
            return
        yield
        # More pieces are more work; they must gain what that is worth, and a part of the gap.
        least = max(1 / CHUNK_TOLERANCE, search.budget.price * work)
        if before is not None and not gains(search, before, finish, least):
            return
        # What whole pieces lose is halved with them, so that no more than this is to be gained.
        if before is not None and 2 * finish - before >= search.incumbents.fastest:
            return
        before = finish


def _still(search: Search, problem: Problem) -> Problem:
    """Return a problem with rates that last where they change."""
    if not problem.topology.has_profiles:
        return problem
    return replace(problem, topology=lasting_topology(problem.topology, search.target or 1))


def _offer(search: Search, schedule: Schedule, problem: Problem) -> int | None:
    """Offer a schedule and return its finish; where rates change, its order at those of then.

    None where that order is of no use then.
    """
    from teccl.replay import simulate
    from teccl.verification import has_same_order, verify

    if not problem.topology.has_profiles:
        return search.offer(schedule)
    try:
        replay = simulate(schedule, topology=problem.topology)
    except ScheduleError:
        return None
    is_ordered = search.request.any_order or has_same_order(replay.schedule)
    if verify(replay.schedule) or not is_ordered:
        return None
    return search.offer_replay(replay)


def _hands_over(problem: Problem) -> bool:
    """Whether GPUs are behind switches alone, where a sum goes straight to whoever adds it up."""
    return can_branch(problem) and not has_direct_links(problem.topology)


def _is_limited(search: Search) -> bool:
    """Whether GPUs may not keep or not copy what they pass on."""
    return search.request.buffer is not None or not search.request.copy


def _problems(search: Search, scheme: Scheme) -> Iterator[Problem]:
    """Yield the problem with more and more pieces; as many as are given, if they are."""
    request = search.request
    if request.chunks is not None:
        yield request.problem(request.chunks)
        return
    most = min(most_pieces(search) // len(scheme.shares), most_chunks(search))
    tune = Tune.of(Instance.build(request.whole_problem(len(scheme.shares))))
    per_share = 1
    while per_share <= most:
        count = tune.nearest(range(per_share, min(2 * per_share, most + 1)))
        yield request.whole_problem(count * len(scheme.shares))
        per_share *= 2


def delivery_work(features: Features, deliveries: int) -> int:
    """Units of making and judging so many deliveries."""
    hops = 2 if features.request.topology.num_switches else 1
    return (hops * hops * PYTHON_UNITS + hops * OFFER_UNITS) * deliveries
