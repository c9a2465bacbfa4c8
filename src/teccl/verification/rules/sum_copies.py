"""Rule: where nothing may be copied, a GPU uses what it received of a sum once.

It goes along with one send or stays in the GPU's result. A GPU's own contribution may be used any
number of times, like data of which it is a source.
"""

from collections import Counter

import numpy as np

from teccl.verification.case import Case
from teccl.verification.sum_origins import PartialSums
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Count the uses of what arrives in accumulators and of partial sums."""
    if case.problem.copy or not case.problem.has_reductions:
        return
    _check_accumulators(case)
    if case.sums is not None:
        _check_rows(case, case.sums)


def _check_accumulators(case: Case) -> None:
    """Follow every accumulator: what it received may leave once, and not be kept as well."""
    sends, timeline, table = case.sends, case.timeline, case.problem.chunks
    is_sum = table.reduce[sends.chunk] & ~sends.sum_chunks[sends.chunk]
    arriving = np.flatnonzero(is_sum & sends.to_gpu)
    leaving = np.flatnonzero(is_sum & sends.from_gpu)
    row = np.concatenate([arriving, leaving])
    is_forward = np.repeat([False, True], [len(arriving), len(leaving)])
    node = np.where(is_forward, sends.src[row], sends.dst[row])
    time = np.where(is_forward, timeline.start[row], timeline.arrival[row])
    key = sends.keys(sends.chunk[row], node)
    order = np.lexsort((is_forward, time, key))
    # By accumulator that has received something, the send that took it along, if one did.
    taken: dict[int, int | None] = {}
    for i in order.tolist():
        mine, send = int(key[i]), int(row[i])
        if not is_forward[i]:
            # A copy takes the place of what was there.
            taken[mine] = taken.get(mine) if sends.is_reduce[send] else None
        elif mine in taken:
            if taken[mine] is not None:
                _note(case, send, "sends on what it received more than once")
            taken[mine] = send
    for last in taken.values():
        if last is not None and sends.is_wanted(sends.chunk[[last]], sends.src[[last]])[0]:
            _note(case, last, "sends on what it received and keeps it, too")


def _check_rows(case: Case, sums: PartialSums) -> None:
    """Count who reads each partial sum that has something in it which the GPU received."""
    is_received = sums.arrives_by >= 0
    left, right = sums.left.tolist(), sums.right.tolist()
    for row in range(len(sums)):
        if left[row] >= 0:
            is_received[row] = is_received[left[row]] | is_received[right[row]]
    carried = case.sends.carries[case.sends.from_gpu]
    uses = Counter(carried[carried >= 0].tolist())
    uses.update(row for row in (*left, *right) if row >= 0)
    uses.update(np.flatnonzero(sums.is_result).tolist())
    for row, count in sorted(uses.items()):
        if count > 1 and is_received[row]:
            gpu = case.node_name(int(sums.node[row]))
            detail = f"{gpu} uses partial sum {row}, which it received, {count} times"
            case.findings.add(ViolationKind.GPU_COPY, detail, chunk=int(sums.chunk[row]))


def _note(case: Case, send: int, what: str) -> None:
    gpu = case.node_name(int(case.sends.src[send]))
    case.note_each(ViolationKind.GPU_COPY, np.array([send]), lambda _: f"{gpu} {what}")
