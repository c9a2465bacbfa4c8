"""Rule: at every chunk and rank that a patch touches, what arrives and leaves is as it must be.

A pair of a chunk and a rank is *touched* where a removed or added transfer ends. All other pairs
have the arrivals and departures of the orbit schedule, which was judged.
"""

from dataclasses import dataclass

import numpy as np

from teccl._arrays import BoolArray, IntArray, distinct, expand, is_among
from teccl.demand import Collective
from teccl.orbit.judge.case import Case
from teccl.orbit.judge.sums import check_sum, is_one_tree
from teccl.orbit.patched import PatchedSchedule
from teccl.verification.violation import MAX_PER_KIND, ViolationKind

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Sends that enter or leave ranks, moved so that their chunk is the first of its orbit.

    Parameters
    ----------
    pair
        Which touched pair each belongs to.
    time
        When it arrives, or begins.
    is_reduce
        Whether it carries a partial sum.
    """

    pair: IntArray
    time: IntArray
    is_reduce: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Touched pairs: a chunk orbit, an element, and the rank that the element takes to theirs."""

    chunk: IntArray
    element: IntArray
    rank: IntArray
    arrivals: _Ends
    departures: _Ends


def check_pairs(schedule: PatchedSchedule, case: Case, base: Case) -> None:
    """Check copies, or sums, at all touched pairs."""
    if schedule.problem.reduces:
        if not case.found:
            _check_sums(schedule, case, base, _pairs_of(schedule, case, base))
        return
    wrong = "op reduce on a chunk that is copied"
    case.add_each(ViolationKind.WRONG_OP, np.flatnonzero(case.is_reduce), lambda _: wrong)
    _check_copies(case, _pairs_of(schedule, case, base))


def _first_rank(schedule: PatchedSchedule, ranks: IntArray, element: IntArray) -> IntArray:
    """Ranks that elements take to given ones."""
    group, per_place = schedule.fabric.group, len(schedule.fabric.gpu_orbits)
    place = group.number(group.digits(ranks // per_place) - group.digits(element))
    return place * per_place + ranks % per_place


def _pairs_of(schedule: PatchedSchedule, case: Case, base: Case) -> _Pairs:
    """Find the touched pairs, and all that arrives there and leaves."""
    fabric, order = schedule.fabric, schedule.fabric.group.order
    num_gpus, number = fabric.num_gpus, schedule.base.sends["transfer"]
    gone = schedule.removed["transfer"] * order + schedule.removed["element"]
    assert case.element is not None
    keys, sides = [], []
    for of_base, of_case, node_base, node_case, time_base, time_case in (
        (base.to_gpu, case.to_gpu, base.dst, case.dst, base.arrival, case.arrival),
        (base.from_gpu, case.from_gpu, base.src, case.src, base.start, case.start),
    ):
        rows, mine = np.flatnonzero(of_base), np.flatnonzero(of_case)
        by = rows[np.argsort(number[rows], kind="stable")]
        low, high = (
            np.searchsorted(number[by], schedule.removed["transfer"], side=side)
            for side in ("left", "right")
        )
        lost = by[expand(low, high - low)]
        element = np.repeat(schedule.removed["element"], high - low)
        rank = _first_rank(schedule, node_case[mine], case.element[mine])
        own = (case.chunk[mine] * order + case.element[mine]) * num_gpus + rank
        keys += [(base.chunk[lost] * order + element) * num_gpus + node_base[lost], own]
        sides.append((rows, node_base, time_base, mine, own, time_case))
    pairs = distinct(np.concatenate(keys))
    rank, image = pairs % num_gpus, pairs // num_gpus
    chunk, element = image // order, image % order
    ends = []
    for rows, node, time, mine, own, time_case in sides:
        at = base.chunk[rows] * num_gpus + node[rows]
        by = np.argsort(at, kind="stable")
        low, high = (
            np.searchsorted(at[by], chunk * num_gpus + rank, side=side)
            for side in ("left", "right")
        )
        there = rows[by[expand(low, high - low)]]
        pair = np.repeat(np.arange(len(pairs)), high - low)
        stays = ~is_among(number[there] * order + element[pair], gone)
        there, pair = there[stays], pair[stays]
        ends.append(
            _Ends(
                pair=np.concatenate([pair, np.searchsorted(pairs, own)]),
                time=np.concatenate([time[there], time_case[mine]]),
                is_reduce=np.concatenate([base.is_reduce[there], case.is_reduce[mine]]),
            )
        )
    return _Pairs(chunk=chunk, element=element, rank=rank, arrivals=ends[0], departures=ends[1])


def _check_copies(case: Case, pairs: _Pairs) -> None:
    """A rank sends a chunk only while it has it, and whoever wants it gets it."""
    problem = case.problem
    held = np.full(len(pairs.chunk), _NEVER)
    np.minimum.at(held, pairs.arrivals.pair, pairs.arrivals.time)
    held[pairs.rank == problem.owner(pairs.chunk)] = 0
    out = pairs.departures
    never = out.pair[held[out.pair] == _NEVER]
    _name(case, pairs, ViolationKind.NOT_HELD, never, "is sent on by {}, which never holds it")
    early = out.pair[(held[out.pair] < _NEVER) & (out.time < held[out.pair])]
    _name(case, pairs, ViolationKind.TOO_EARLY, early, "is sent on by {} before it has come")
    wants = np.ones(len(held), dtype=bool)
    if problem.collective is Collective.ALLTOALL:
        wants = pairs.rank == problem.target(pairs.chunk)
    unmet = np.flatnonzero(wants & (held == _NEVER))
    _name(case, pairs, ViolationKind.UNMET_DEMAND, unmet, "never reaches {}, which wants it")


def _name(case: Case, pairs: _Pairs, kind: ViolationKind, found: IntArray, text: str) -> None:
    """Note violations at pairs, naming the rank itself."""
    for pair in np.unique(found)[:MAX_PER_KIND].tolist():
        element = pairs.element[[pair]]
        rank = case.problem.fabric.moved_nodes(pairs.rank[[pair]], element)
        moved = f"moved by {case.shift(int(element[0]))}, "
        case.add(kind, moved + text.format(case.name(rank[0])), chunk=int(pairs.chunk[pair]))


def _check_sums(schedule: PatchedSchedule, case: Case, base: Case, pairs: _Pairs) -> None:
    """Sums flow along one tree, or the chunk is judged with all its sends.

    Every rank but the top sends its sum once, to one rank alone.
    """
    top = _tops(case, base, np.unique(pairs.chunk))
    is_top = pairs.rank == top[pairs.chunk]
    count = len(pairs.chunk)
    last, total = np.zeros(count, dtype=np.int64), np.full(count, _NEVER)
    come, out = pairs.arrivals, pairs.departures
    np.maximum.at(last, come.pair[come.is_reduce], come.time[come.is_reduce])
    np.minimum.at(total, come.pair[~come.is_reduce], come.time[~come.is_reduce])
    total[is_top] = last[is_top]
    sent = np.bincount(out.pair[out.is_reduce], minlength=count)
    bad = sent != np.where(is_top, 0, 1)
    due = np.where(out.is_reduce, last[out.pair], total[out.pair])
    bad[out.pair[out.time < due]] = True
    wants = pairs.rank == case.problem.owner(pairs.chunk)
    if case.problem.collective is Collective.ALLREDUCE:
        wants[:] = True
    bad |= wants & (total == _NEVER)
    order = schedule.fabric.group.order
    images = distinct(pairs.chunk * order + pairs.element)
    odd = is_among(images // order, np.flatnonzero(top < 0))
    odd |= is_among(images, (pairs.chunk * order + pairs.element)[bad])
    odd |= is_among(images, _copied_sums(case, order))
    for image in images[odd].tolist():
        _check_listed(schedule, case, base, *divmod(image, order))


def _copied_sums(case: Case, order: int) -> IntArray:
    """Chunks and elements of added sums that come to several ranks, copied by a switch."""
    ends = np.flatnonzero(case.is_reduce & case.to_gpu)
    _, place, count = np.unique(case.transfer[ends], return_inverse=True, return_counts=True)
    ends = ends[count[place.reshape(-1)] > 1]
    assert case.element is not None
    return case.chunk[ends] * order + case.element[ends]


def _tops(case: Case, base: Case, chunks: IntArray) -> IntArray:
    """By chunk orbit, the rank at which its sum is complete; -1 where it flows along no tree."""
    top = np.full(case.problem.num_chunk_orbits, -1, dtype=np.int64)
    by = np.argsort(base.chunk, kind="stable")
    for chunk in chunks.tolist():
        low, high = np.searchsorted(base.chunk[by], [chunk, chunk + 1])
        rows = by[low:high]
        if is_one_tree(base, chunk, rows):
            senders = base.src[rows[base.is_reduce[rows] & base.from_gpu[rows]]]
            top[chunk] = np.setdiff1d(np.arange(case.problem.fabric.num_gpus), senders)[0]
    return top


def _check_listed(
    schedule: PatchedSchedule, case: Case, base: Case, chunk: int, element: int
) -> None:
    """Judge all sends of one chunk, moved so that it is the first of its orbit."""
    assert case.element is not None
    fabric, number = schedule.fabric, schedule.base.sends["transfer"]
    here = schedule.removed["element"] == element
    gone = np.isin(number, schedule.removed["transfer"][here])
    kept = np.flatnonzero((base.chunk == chunk) & ~gone)
    mine = np.flatnonzero((case.chunk == chunk) & (case.element == element))
    group = fabric.group
    back = np.full(len(mine), int(group.number(-group.digits(np.array([element])))[0]))
    alone = Case(
        schedule=case.schedule,
        chunk=np.full(len(kept) + len(mine), chunk),
        link=np.concatenate([base.link[kept], fabric.moved_links(case.link[mine], back)]),
        start=np.concatenate([base.start[kept], case.start[mine]]),
        is_reduce=np.concatenate([base.is_reduce[kept], case.is_reduce[mine]]),
        orbit=np.concatenate([base.orbit[kept], case.orbit[mine]]),
        src=np.concatenate([base.src[kept], fabric.moved_nodes(case.src[mine], back)]),
        dst=np.concatenate([base.dst[kept], fabric.moved_nodes(case.dst[mine], back)]),
        transfer=np.concatenate(
            [base.transfer[kept], base.transfer.max(initial=0) + 1 + case.transfer[mine]]
        ),
        held=np.concatenate([base.held[kept], case.held[mine]]),
        arrival=np.concatenate([base.arrival[kept], case.arrival[mine]]),
        found=case.found,
    )
    check_sum(alone, chunk, np.arange(len(alone)))
