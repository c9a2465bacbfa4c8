"""Rule: at most as many received chunks wait at a GPU to be forwarded as its buffer holds."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from teccl._arrays import BoolArray, IntArray, last_marked, new_run, number_runs
from teccl.schedule.columns import Sends
from teccl.verification.case import Case
from teccl.verification.overloads import overloads
from teccl.verification.timeline import Timeline
from teccl.verification.violation import ViolationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Arrivals and departures at GPUs, by GPU and chunk, in time order.

    Parameters
    ----------
    gpu, time, row
        Where and when, and the send that arrives or departs.
    is_forward
        Whether the send departs.
    origin
        Entry of the arrival from which a forwarded chunk has waited, -1 for the GPU's own data and
        for arrivals.
    """

    gpu: IntArray
    time: IntArray
    row: IntArray
    is_forward: BoolArray
    origin: IntArray


def visits(sends: Sends, timeline: Timeline) -> Visits:
    """List what passes through GPUs.

    A forward of a copied chunk draws on the latest arrival up to its start, one of a reduction on
    all arrivals since the accumulator was last replaced, so it has waited since the first of them.
    """
    arriving, leaving = np.flatnonzero(sends.to_gpu), np.flatnonzero(sends.from_gpu)
    row = np.concatenate([arriving, leaving])
    is_forward = np.repeat([False, True], [len(arriving), len(leaving)])
    gpu = np.where(is_forward, sends.src[row], sends.dst[row])
    time = np.where(is_forward, timeline.start[row], timeline.arrival[row])
    key = sends.keys(sends.chunk[row], gpu)
    replaces = ~is_forward & ~sends.is_reduce[row]
    order = np.lexsort((replaces, is_forward, time, key))
    # Own data of a copied chunk may be sent at any time, received again or not.
    own = sends.is_source(sends.chunk[row], gpu) & ~sends.combines[row]
    # What is kept in partial sums is counted by them.
    order = order[~(own | sends.in_sums[row])[order]]
    key, is_forward, replaces = key[order], is_forward[order], replaces[order]
    run = number_runs(key)
    arrivals = np.cumsum(~is_forward)
    before = arrivals - ~is_forward
    first_of_run = last_marked(new_run(key), run)
    begins = ~is_forward & (replaces | (before == before[first_of_run]))
    origin = np.where(is_forward, last_marked(begins, run), -1)
    return Visits(
        gpu=gpu[order], time=time[order], row=row[order], is_forward=is_forward, origin=origin
    )


class _Waits(NamedTuple):
    """Intervals in which something received waits at a GPU; `row` is a send that names it."""

    gpu: IntArray
    since: IntArray
    until: IntArray
    row: IntArray


def check(case: Case) -> None:
    """Count the chunks that wait at each GPU."""
    sends, timeline, limit = case.sends, case.timeline, case.problem.buffer
    if limit is None:
        return
    waits = _Waits(
        *(np.concatenate(each) for each in zip(_chunks(case), _partial_sums(case), strict=True))
    )
    loads = np.ones(len(waits.gpu), dtype=np.int64)
    over = overloads(waits.gpu, waits.since, waits.until, loads, loads * limit)
    kind = case.kind(ViolationKind.BUFFER_EXCEEDED)

    def add(i: int) -> None:
        gpu, row = case.node_name(waits.gpu[i]), int(waits.row[i])
        since, until = timeline.show(waits.since[i]), timeline.show(waits.until[i])
        case.findings.add(
            kind,
            f"waits at {gpu} from {since} to {until} with more chunks than its buffer holds "
            f"({limit})",
            chunk=int(sends.chunk[row]),
            link=int(sends.link[row]),
            time_s=timeline.seconds(waits.since[i]),
        )

    case.findings.add_each(kind, over, add)


def _chunks(case: Case) -> _Waits:
    """Copied chunks and accumulators that wait."""
    seen = visits(case.sends, case.timeline)
    forwards = np.flatnonzero(seen.origin >= 0)
    # Several forwards of one arrival are one chunk that waits until the last of them.
    until = np.full(len(seen.time), -1)
    np.maximum.at(until, seen.origin[forwards], seen.time[forwards])
    waiting = np.flatnonzero(until > seen.time)
    return _Waits(seen.gpu[waiting], seen.time[waiting], until[waiting], seen.row[waiting])


def _partial_sums(case: Case) -> _Waits:
    """Partial sums that wait, each since the first thing in it arrived."""
    sends, sums = case.sends, case.sums
    if sums is None:
        nothing = np.zeros(0, dtype=np.int64)
        return _Waits(nothing, nothing, nothing, nothing)
    rows = np.flatnonzero(sends.from_gpu & (sends.carries >= 0))
    until = np.full(len(sums), -1)
    np.maximum.at(until, sends.carries[rows], case.timeline.start[rows])
    sender = np.zeros(len(sums), dtype=np.int64)
    sender[sends.carries[rows]] = rows
    since = sums.waiting_since()
    waiting = np.flatnonzero(until > since)
    return _Waits(sums.node[waiting], since[waiting], until[waiting], sender[waiting])
