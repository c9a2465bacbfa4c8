"""Judgement of patched schedules: what the patch changes, beside the orbit schedule itself.

The orbit schedule is judged as it is, on the fabric without damage. A patch can only change what
happens at the pairs of a chunk and a rank that some removed or added transfer ends at, and on the
links that added sends use; the page on orbits has the proof.
"""

import numpy as np

from teccl._arrays import BoolArray, IntArray, distinct, expand, ints, is_among
from teccl.orbit.judge.case import Case, show, to_ps
from teccl.orbit.judge.pairs import check_pairs
from teccl.orbit.judge.rules import check_switches, check_transfers
from teccl.orbit.patched import PatchedSchedule
from teccl.verification.violation import ViolationKind


def check_patch(schedule: PatchedSchedule, base: Case) -> Case:
    """Judge what a patch changes of an orbit schedule that is correct without it."""
    case = _case_of(schedule)
    check_transfers(case)
    check_switches(case)
    _check_damage(schedule, case, base)
    _check_links(schedule, case, base)
    check_pairs(schedule, case, base)
    _check_claims(schedule, case, base)
    return case


def _case_of(schedule: PatchedSchedule) -> Case:
    """Take the added sends apart; their lengths are computed anew, damage considered."""
    added, fabric = schedule.added, schedule.fabric
    size, links = schedule.problem.chunk_bytes, added["link"]
    orbit = fabric.link_orbit(links)
    held = ints([to_ps(x.overhead) + to_ps(size / x.bandwidth) for x in fabric.links])[orbit]
    alpha = ints([to_ps(link.alpha) for link in fabric.links])[orbit]
    for link, rate in schedule.damage.rates.items():
        here = np.flatnonzero(links == link)
        if rate is not None:
            held[here] = to_ps(fabric.link_at(link).overhead) + to_ps(size / rate)
    src, dst = fabric.link_ends(links)
    return Case(
        schedule=schedule.base,
        chunk=added["chunk"],
        element=added["element"],
        link=links,
        start=added["start_ps"],
        is_reduce=added["reduce"],
        orbit=orbit,
        src=src,
        dst=dst,
        transfer=np.unique(added["transfer"], return_inverse=True)[1].reshape(-1),
        held=held,
        arrival=added["start_ps"] + held + alpha,
    )


def _is_removed(schedule: PatchedSchedule, transfer: IntArray, element: IntArray) -> BoolArray:
    """Whether images of transfers, by their numbers in the file, are removed."""
    order = schedule.fabric.group.order
    keys = schedule.removed["transfer"] * order + schedule.removed["element"]
    return is_among(transfer * order + element, keys)


def _onto(schedule: PatchedSchedule, links: IntArray, onto: IntArray) -> IntArray:
    """Elements that take links to others of the same orbits, on which the group acts freely."""
    fabric = schedule.fabric
    base = fabric.link_base[fabric.link_orbit(links)]
    group = fabric.group
    return group.number(group.digits(onto - base) - group.digits(links - base))


def _check_damage(schedule: PatchedSchedule, case: Case, base: Case) -> None:
    """No image that stays uses a damaged link, and no added send one that is down."""
    down = np.flatnonzero(schedule.damage.is_down(case.link))
    case.add_each(ViolationKind.UNPAIRED_HOP, down, lambda _: "the link is down")
    for link in schedule.damage.links:
        rows = np.flatnonzero(base.orbit == schedule.fabric.link_orbit(ints([link]))[0])
        element = _onto(schedule, base.link[rows], np.full(len(rows), link))
        transfer = schedule.base.sends["transfer"][rows]
        for row in rows[~_is_removed(schedule, transfer, element)].tolist():
            src, dst = (int(end[0]) for end in schedule.fabric.link_ends(ints([link])))
            case.add(
                ViolationKind.OVERLAP,
                f"an image of its send at {show(base.start[row])} uses "
                f"{case.name(src)} > {case.name(dst)}, which is damaged; remove it",
                chunk=int(base.chunk[row]),
            )


def _check_links(schedule: PatchedSchedule, case: Case, base: Case) -> None:
    """Added sends hold links while no image that stays does, and no other added send."""
    by = np.lexsort((base.start, base.orbit))
    begin, end, start, until = _numbered(
        base.start[by], base.start[by] + base.held[by], case.start, case.start + case.held
    )
    top = 1 + max(int(each.max(initial=0)) for each in (end, until))
    low = np.searchsorted(base.orbit[by] * top + end, case.orbit * top + start, side="right")
    high = np.searchsorted(base.orbit[by] * top + begin, case.orbit * top + until, side="left")
    count = np.maximum(high - low, 0)
    added, rows = np.repeat(np.arange(len(case)), count), by[expand(low, count)]
    element = _onto(schedule, base.link[rows], case.link[added])
    clash = ~_is_removed(schedule, schedule.base.sends["transfer"][rows], element)
    ends = dict(
        zip(added[clash].tolist(), (base.start + base.held)[rows[clash]].tolist(), strict=True)
    )
    case.add_each(
        ViolationKind.OVERLAP,
        ints(sorted(ends)),
        lambda row: f"begins while an image that stays holds the link until {show(ends[row])}",
    )
    order = np.lexsort((case.start, case.link))
    a, b = order[:-1], order[1:]
    both = (case.link[a] == case.link[b]) & (case.start[b] < case.start[a] + case.held[a])
    text = "begins while another added send holds the link"
    case.add_each(ViolationKind.OVERLAP, b[both], lambda _: text)


def _numbered(*moments: IntArray) -> list[IntArray]:
    """Moments by their order, equal ones alike: small numbers, however late a file's are."""
    known = distinct(np.concatenate(moments))
    return [np.searchsorted(known, each) for each in moments]


def _check_claims(schedule: PatchedSchedule, case: Case, base: Case) -> None:
    """The finish that is stated is the last arrival, and no stated bound exceeds it."""
    transfer, count = np.unique(schedule.removed["transfer"], return_counts=True)
    gone = transfer[count == schedule.fabric.group.order]
    kept = ~is_among(schedule.base.sends["transfer"], gone)
    finish = max(case.finish, int(base.arrival[kept].max(initial=0)))
    claimed, bound = schedule.claimed_finish_ps, schedule.bound
    if claimed is not None and claimed != finish:
        text = f"the schedule states a finish of {show(claimed)}; it is {show(finish)}"
        case.add(ViolationKind.WRONG_FINISH, text)
    limits = [] if bound is None else [bound.physical_ps, bound.chunk_ps or 0]
    # Every send on the way to the last arrival may be rounded by a picosecond.
    if max(limits, default=0) > finish + len(case) + len(base):
        text = f"nothing ends before {show(max(limits))}; it ends at {show(finish)}"
        case.add(ViolationKind.WRONG_BOUND, f"the stated bound says that {text}")
