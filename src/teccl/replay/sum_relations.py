"""Partial sums in a replay: sends wait for what they carry, and slots are free when they are taken.

Every addition is a gate that what it adds leads to. Who takes a slot keeps behind those who read
it: a partial sum is never made before the last arrival in it, so that this arrival stands for it.
"""

from dataclasses import dataclass

import numpy as np

from teccl._arrays import BoolArray, IntArray
from teccl.errors import ScheduleError
from teccl.replay.relations import Book
from teccl.replay.times import Times
from teccl.schedule.additions import SumArray
from teccl.schedule.columns import Sends


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """How each partial sum is made in the schedule itself.

    Parameters
    ----------
    is_added
        Whether it is the sum of two others.
    made
        When, -1 for a GPU's own contribution that is there from the beginning.
    ready
        When the own contribution in it may leave, 0 where there is none.
    last
        The send of the last arrival in it, -1 where none is in it.
    moment
        The moment of a replay at which it is there, -1 where that is the beginning.
    """

    is_added: BoolArray
    made: IntArray
    ready: IntArray
    last: IntArray
    moment: IntArray


def keep_partial_sums(book: Book, sends: Sends, times: Times, table: SumArray) -> None:
    """Let every send carry the same partial sum in the replay, and every slot hold the same.

    Raises
    ------
    ScheduleError
        If a partial sum is made of nothing.
    """
    making = _making(book, sends, times, table)
    added = np.flatnonzero(table["left"] >= 0)
    for side in ("left", "right"):
        _keep(book, making.moment[table[side][added]], making.moment[added])
    rows = np.flatnonzero(sends.from_gpu & (sends.carries >= 0))
    carried = sends.carries[rows]
    _keep(book, making.moment[carried], book.start(rows))
    book.not_before[rows] = np.maximum(book.not_before[rows], making.ready[carried])
    _keep_slots(book, sends, times, table, making)


def _keep(book: Book, before: IntArray, after: IntArray, lag: IntArray | int = 0) -> None:
    """Relate moments, but for those that are the beginning."""
    known = before >= 0
    lags = np.broadcast_to(np.asarray(lag, dtype=np.int64), len(before))
    book.keep(before[known], after[known], lags[known])


def _making(book: Book, sends: Sends, times: Times, table: SumArray) -> _Making:
    """Find out how partial sums are made, row by row: what a row adds stands before it."""
    arriving = np.flatnonzero(sends.to_gpu & (sends.becomes >= 0))
    last = np.full(len(table), -1, dtype=np.int64)
    last[sends.becomes[arriving]] = arriving
    is_own = (last < 0) & (table["left"] < 0)
    chunk, node = table["chunk"].astype(np.int64), table["node"].astype(np.int64)
    if (is_own & ~sends.is_source(chunk, node)).any():
        raise ScheduleError("a partial sum is made of nothing; verify the schedule first")
    ready = np.where(is_own, sends.problem.ready_ps()[sends.problem.chunks.tenant[chunk], node], 0)
    made = np.where(is_own, ready, np.append(times.arrival, 0)[last]).tolist()
    readiness, lasts = ready.tolist(), last.tolist()
    added = np.flatnonzero(table["left"] >= 0)
    for row, one, other in zip(
        added.tolist(), table["left"][added].tolist(), table["right"][added].tolist(), strict=True
    ):
        made[row] = max(made[one], made[other])
        readiness[row] = max(readiness[one], readiness[other])
        behind = [each for each in (lasts[one], lasts[other]) if each >= 0]
        lasts[row] = max(behind, key=lambda send: times.arrival[send], default=-1)
    moment = np.full(len(table), -1, dtype=np.int64)
    moment[sends.becomes[arriving]] = book.arrival(arriving)
    moment[added] = book.open_gates(np.array(made, dtype=np.int64)[added])
    return _Making(
        is_added=table["left"] >= 0,
        made=np.array(made, dtype=np.int64),
        ready=np.array(readiness, dtype=np.int64),
        last=np.array(lasts, dtype=np.int64),
        moment=moment,
    )


def _keep_slots(book: Book, sends: Sends, times: Times, table: SumArray, making: _Making) -> None:
    """Keep whoever takes a slot behind everything that reads what was in it."""
    rows = np.arange(len(table))
    order = np.lexsort((rows, making.made, table["slot"], table["node"], table["chunk"]))
    before, after = order[:-1], order[1:]
    same = np.ones(len(before), dtype=bool)
    for column in ("chunk", "node", "slot"):
        same &= table[column][before] == table[column][after]
    heir = np.full(len(table), -1, dtype=np.int64)
    heir[before[same]] = after[same]
    heir[making.last[heir] < 0] = -1
    leaving = np.flatnonzero(sends.from_gpu & (sends.carries >= 0))
    leaving = leaving[heir[sends.carries[leaving]] >= 0]
    taker = book.arrival(making.last[heir[sends.carries[leaving]]])
    book.keep(book.end(leaving), taker)
    for side in ("left", "right"):
        reads = np.flatnonzero((table["left"] >= 0) & (heir[table[side]] != rows))
        reads = reads[heir[table[side][reads]] >= 0]
        takers = heir[table[side][reads]]
        # Additions of one instant happen in the order of their rows.
        in_order = making.is_added[takers] & (reads < takers)
        _keep_behind(book, times, making, reads, takers, lag=~in_order)
    adds = (table["left"][heir] == rows) | (table["right"][heir] == rows)
    taken = np.flatnonzero((heir >= 0) & ~adds)
    _keep_behind(book, times, making, taken, heir[taken], lag=np.ones(len(taken), dtype=bool))


def _keep_behind(
    book: Book, times: Times, making: _Making, made: IntArray, heir: IntArray, *, lag: BoolArray
) -> None:
    """Keep partial sums that take a slot behind the making of others, a picosecond if with lag."""
    witness = making.last[heir]
    _keep(book, making.moment[made], book.arrival(witness), lag.astype(np.int64))
    # A replay knows no lower limit for gates: who waits for own data of a late rank stays.
    pinned = witness[making.ready[made] > 0]
    book.not_before[pinned] = np.maximum(book.not_before[pinned], times.start[pinned])
