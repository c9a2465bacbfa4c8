"""Rule: a slot is overwritten only when what was in it is not needed any more."""

import numpy as np

from teccl._arrays import NEVER, BoolArray, IntArray
from teccl.verification.case import Case
from teccl.verification.sum_origins import PartialSums
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check every partial sum against the one that takes its slot."""
    sums = case.sums
    if sums is None:
        return
    after = _successors(sums)
    _note(case, after, _read_by_sends(case, sums, after), "it is sent")
    _note(case, after, _read_by_additions(sums, after), "it is added")
    _note(case, after, sums.is_result & (after >= 0), "it is the result")
    made, heir = sums.made, np.maximum(after, 0)
    at_once = (after >= 0) & (made == made[heir]) & (made < NEVER)
    rows = np.arange(len(sums))
    at_once &= (sums.left[heir] != rows) & (sums.right[heir] != rows)
    _note(case, after, at_once, "it is made")


def _successors(sums: PartialSums) -> IntArray:
    """Return the partial sum that takes each one's slot next, -1 where none does."""
    rows = np.arange(len(sums))
    order = np.lexsort((rows, sums.made, sums.slot, sums.node, sums.chunk))
    before, after = order[:-1], order[1:]
    same = sums.chunk[before] == sums.chunk[after]
    same &= (sums.node[before] == sums.node[after]) & (sums.slot[before] == sums.slot[after])
    found = np.full(len(sums), -1, dtype=np.int64)
    found[before[same]] = after[same]
    return found


def _read_by_sends(case: Case, sums: PartialSums, after: IntArray) -> BoolArray:
    """Whether a send still reads each when its slot is taken; it reads until it frees its link."""
    rows = np.flatnonzero(case.sends.from_gpu & (case.sends.carries >= 0))
    last = np.full(len(sums), -1, dtype=np.int64)
    end = case.timeline.start[rows] + case.timeline.held[rows]
    np.maximum.at(last, case.sends.carries[rows], end)
    return (after >= 0) & (sums.made[after] < last)


def _read_by_additions(sums: PartialSums, after: IntArray) -> BoolArray:
    """Whether an addition other than the one that takes its slot reads each afterwards."""
    read = np.zeros(len(sums), dtype=bool)
    added = np.flatnonzero(sums.is_added)
    for side in (sums.left[added], sums.right[added]):
        heir = after[side]
        at_once = (sums.made[added] == sums.made[heir]) & (sums.is_added[heir] <= (added > heir))
        late = (heir >= 0) & (heir != added) & ((sums.made[added] > sums.made[heir]) | at_once)
        read[side[late]] = True
    return read


def _note(case: Case, after: IntArray, marked: BoolArray, when: str) -> None:
    sums = case.sums

    def add(row: int) -> None:
        if sums is None:
            return
        gpu, heir = case.node_name(sums.node[row]), int(after[row])
        case.findings.add(
            ViolationKind.SLOT_OVERWRITTEN,
            f"partial sum {heir} takes slot {sums.slot[row]} of {gpu} from {row} before {when}",
            chunk=int(sums.chunk[row]),
            time_s=None if sums.made[heir] == NEVER else case.timeline.seconds(sums.made[heir]),
        )

    case.findings.add_each(ViolationKind.SLOT_OVERWRITTEN, np.flatnonzero(marked), add)
