"""Rule: where nothing may be copied, a GPU sends on no more than it received.

A GPU that wants the chunk keeps one arrival for itself. Sources may send their own data any number
of times.
"""

import numpy as np

from teccl._arrays import BoolArray, IntArray, last_marked, new_run, number_runs
from teccl.schedule.columns import Sends
from teccl.verification.case import Case
from teccl.verification.timeline import Timeline
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Count the copies that each GPU has of each chunk."""
    if case.problem.copy:
        return
    sends, timeline = case.sends, case.timeline
    key, time, row, is_forward = _passing_events(sends, timeline)
    run = number_runs(key)
    change = np.where(is_forward, -1, 1)
    total = np.cumsum(change)
    before = last_marked(new_run(key), run)
    stock = total - total[before] + change[before]
    short = np.flatnonzero(is_forward & (stock < 0))

    def detail(i: int) -> str:
        gpu, at = case.node_name(sends.src[row[short[i]]]), timeline.show(time[short[i]])
        return f"{gpu} forwards it at {at} more often than it received it"

    case.note_each(ViolationKind.GPU_COPY, row[short], detail)
    if not timeline.is_grid:
        gone = np.append(new_run(key)[1:], True)[: len(key)] & (stock == 0)
        _check_kept(case, row[gone], is_forward[gone])


def _check_kept(case: Case, rows: IntArray, is_forward: BoolArray) -> None:
    """Check the GPUs that forwarded all they received: none of them may want the chunk."""
    sends = case.sends
    node = np.where(is_forward, sends.src[rows], sends.dst[rows])
    wanted = np.flatnonzero(sends.is_wanted(sends.chunk[rows], node))

    def detail(i: int) -> str:
        gpu = case.node_name(node[wanted[i]])
        return f"{gpu} wants it but forwards every copy it received"

    case.note_each(ViolationKind.GPU_COPY, rows[wanted], detail)


def _passing_events(
    sends: Sends, timeline: Timeline
) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Arrivals and forwards at GPUs that are no sources: key, time, send, whether a forward.

    Sorted by key and time; an arrival stands before a forward of the same moment.
    """
    arriving, leaving = np.flatnonzero(sends.to_gpu), np.flatnonzero(sends.from_gpu)
    row = np.concatenate([arriving, leaving])
    is_forward = np.repeat([False, True], [len(arriving), len(leaving)])
    node = np.where(is_forward, sends.src[row], sends.dst[row])
    time = np.where(is_forward, timeline.start[row], timeline.arrival[row])
    key = sends.keys(sends.chunk[row], node)
    order = np.lexsort((is_forward, time, key))
    order = order[~sends.is_source(sends.chunk[row[order]], node[order])]
    return key[order], time[order], row[order], is_forward[order]
