"""Rules about transfers, links, holdings and deliveries of the first chunks of all orbits."""

from collections.abc import Callable

import numpy as np

from teccl._arrays import IntArray, is_among
from teccl.demand import Collective
from teccl.keywords import SwitchMode
from teccl.orbit.judge.case import Case, show
from teccl.orbit.judge.sums import check_sums
from teccl.orbit.lattice import Lattice
from teccl.verification.violation import MAX_PER_KIND, ViolationKind

_NEVER = np.iinfo(np.int64).max


def check_transfers(case: Case) -> None:
    """Every transfer is one chunk on a tree from one GPU through switches to GPUs."""
    order = np.argsort(case.transfer, kind="stable")
    same = np.diff(case.transfer[order]) == 0
    differs = (np.diff(case.chunk[order]) != 0) | (np.diff(case.is_reduce[order]) != 0)
    if case.element is not None:
        differs |= np.diff(case.element[order]) != 0
    mixed = "its transfer mixes chunks or ops"
    case.add_each(ViolationKind.MIXED_TRANSFER, order[1:][same & differs], lambda _: mixed)
    roots = np.flatnonzero(case.from_gpu)
    again = np.ones(len(roots), dtype=bool)
    again[np.unique(case.transfer[roots], return_index=True)[1]] = False
    more = roots[again]
    text = "its transfer leaves several gpus"
    case.add_each(ViolationKind.SEVERAL_ROOTS, more, lambda _: text)


def check_switches(case: Case) -> None:
    """What enters a switch leaves it in the same transfer, at the instant at which it is there."""
    num_nodes = case.problem.fabric.num_nodes
    into, out = np.flatnonzero(~case.to_gpu), np.flatnonzero(~case.from_gpu)
    entered = case.transfer[into] * num_nodes + case.dst[into]
    left = case.transfer[out] * num_nodes + case.src[out]
    passage, first, count = np.unique(entered, return_index=True, return_counts=True)
    merged = into[first[count > 1]]
    text = "its transfer enters the switch more than once, which merges nothing"
    case.add_each(ViolationKind.ILLEGAL_MERGE, merged, lambda _: text)
    lost = into[~is_among(entered, left)]
    holds_nothing = "its transfer never leaves the switch, which holds nothing"
    case.add_each(ViolationKind.LOST_IN_SWITCH, lost, lambda _: holds_nothing)
    known = is_among(left, passage)
    unpaired = "its transfer never enters the switch that it leaves"
    case.add_each(ViolationKind.UNPAIRED_HOP, out[~known], lambda _: unpaired)
    due = case.arrival[into[first]][np.searchsorted(passage, left[known])]
    out, left = out[known], left[known]
    wrong = case.start[out] != due
    moments = dict(zip(out[wrong].tolist(), due[wrong].tolist(), strict=True))
    case.add_each(
        ViolationKind.SWITCH_TIMING,
        out[wrong],
        lambda row: f"leaves the switch at {show(case.start[row])}; due at {show(moments[row])}",
    )
    if case.problem.switch is SwitchMode.NO_COPY:
        again = np.setdiff1d(np.arange(len(left)), np.unique(left, return_index=True)[1])
        copies = "leaves the switch again; switches do not copy here"
        case.add_each(ViolationKind.SWITCH_COPY, out[again], lambda _: copies)


def check_links(case: Case) -> None:
    """One link of each orbit, and one capacity, carries one image of a send at a time."""
    fabric, every = case.problem.fabric, np.arange(len(case))
    images = [fabric.group.order // lattice.order for lattice in fabric.link_lattices]
    _check_alone(case, ViolationKind.OVERLAP, (every, case.orbit), images, "link")
    for number, capacity in enumerate(fabric.shared):
        sharing = [i for i, link in enumerate(fabric.links) if number in link.shares]
        rows = np.flatnonzero(np.isin(case.orbit, sharing))
        count = fabric.group.order // Lattice(capacity.moduli).order
        uses = rows, np.zeros(len(rows), dtype=np.int64)
        _check_alone(case, ViolationKind.SHARED_OVERLAP, uses, [count], f"capacity {capacity.name}")


def _check_alone(
    case: Case,
    kind: ViolationKind,
    uses: tuple[IntArray, IntArray],
    images: list[int],
    what: str,
) -> None:
    """Check that the sends of each resource's orbit, all images counted, follow one another.

    Parameters
    ----------
    uses
        Sends, and the orbit of resources that each uses one of.
    images
        Images of one send that one resource of each orbit carries, all at the same time.
    """
    rows, resource = uses
    several = np.array(images)[resource] > 1
    case.add_each(
        kind,
        rows[several],
        lambda row: (
            f"its images by what leaves the {what} in place use it at {show(case.start[row])}"
        ),
    )
    order = np.lexsort((case.start[rows], resource))
    ordered, group = rows[order], resource[order]
    until = case.start[ordered] + case.held[ordered]
    clash = (np.diff(group) == 0) & (case.start[ordered][1:] < until[:-1])
    ends = dict(zip(ordered[1:][clash].tolist(), until[:-1][clash].tolist(), strict=True))
    case.add_each(
        kind,
        ordered[1:][clash],
        lambda row: (
            f"begins at {show(case.start[row])} while an image of another send holds the {what} "
            f"until {show(ends[row])}"
        ),
    )


def check_copies(case: Case) -> None:
    """A GPU sends a copied chunk only while it holds it, and everyone who wants it gets it."""
    problem, num_gpus = case.problem, case.problem.fabric.num_gpus
    if problem.reduces:
        return
    wrong = "op reduce on a chunk that is copied"
    case.add_each(ViolationKind.WRONG_OP, np.flatnonzero(case.is_reduce), lambda _: wrong)
    into = np.flatnonzero(case.to_gpu)
    into = into[np.argsort(case.arrival[into], kind="stable")]
    keys, first = np.unique(case.chunk[into] * num_gpus + case.dst[into], return_index=True)
    times = case.arrival[into[first]]
    out = np.flatnonzero(case.from_gpu)
    wanted = case.chunk[out] * num_gpus + case.src[out]
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    there = keys[place] == wanted if len(keys) else np.zeros(len(out), dtype=bool)
    held = np.where(there, times[place], _NEVER) if len(keys) else np.full(len(out), _NEVER)
    held[case.src[out] == problem.owner(case.chunk[out])] = 0
    never, early = out[held == _NEVER], (case.start[out] < held) & (held < _NEVER)
    text = "is sent by a gpu that never holds it"
    case.add_each(ViolationKind.NOT_HELD, never, lambda _: text)
    moments = dict(zip(out[early].tolist(), held[early].tolist(), strict=True))
    case.add_each(
        ViolationKind.TOO_EARLY,
        out[early],
        lambda row: f"is sent at {show(case.start[row])} but held from {show(moments[row])} on",
    )
    _check_delivery(case, keys)


def _check_delivery(case: Case, arrived: IntArray) -> None:
    """Check that each destination of each first chunk is among the keys that arrived."""
    problem, num_gpus = case.problem, case.problem.fabric.num_gpus
    chunks = np.arange(problem.num_chunk_orbits)
    if problem.collective is Collective.ALLTOALL:
        chunks = chunks[problem.is_moved(chunks)]
        wanted = chunks * num_gpus + problem.target(chunks)
        missing = wanted[~np.isin(wanted, arrived)]
    else:
        owner, label = problem.owner(chunks), problem.labels
        found = np.union1d(arrived, chunks * num_gpus + owner)
        if problem.groups is None:
            missing = _absent(found, problem.num_chunk_orbits * num_gpus)
        else:
            wants = [
                chunk * num_gpus + np.flatnonzero(label == label[rank])
                for chunk, rank in zip(chunks.tolist(), owner.tolist(), strict=True)
            ]
            missing = np.setdiff1d(np.concatenate(wants), found)
    for key in missing[:MAX_PER_KIND].tolist():
        name = case.name(key % num_gpus)
        detail = f"never reaches {name}, which wants it"
        case.add(ViolationKind.UNMET_DEMAND, detail, chunk=key // num_gpus)


def _absent(keys: IntArray, count: int) -> IntArray:
    """First number of each gap that sorted keys leave below a count."""
    framed = np.concatenate([[-1], keys, [count]])
    gaps: IntArray = framed[:-1][np.diff(framed) > 1] + 1
    return gaps


def check_claims(case: Case) -> None:
    """The finish that is stated is the last arrival, and no stated bound exceeds it."""
    claimed, bound = case.schedule.claimed_finish_ps, case.schedule.bound
    if claimed is not None and claimed != case.finish:
        text = f"states a finish of {show(claimed)}; it is {show(case.finish)}"
        case.add(ViolationKind.WRONG_FINISH, f"the schedule {text}")
    limits = [] if bound is None else [bound.physical_ps, bound.chunk_ps or 0]
    # Every send on the way to the last arrival may be rounded by a picosecond.
    if max(limits, default=0) > case.finish + len(case):
        text = f"nothing ends before {show(max(limits))}; it ends at {show(case.finish)}"
        case.add(ViolationKind.WRONG_BOUND, f"the schedule states that {text}")


RULES: tuple[Callable[[Case], None], ...] = (
    check_transfers,
    check_switches,
    check_links,
    check_copies,
    check_sums,
    check_claims,
)
