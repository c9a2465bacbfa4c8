"""Sums: what a send finds merged into the sum that it carries, and what it does not."""

import numpy as np

from teccl._arrays import IntArray, last_marked, new_run, next_marked, number_runs
from teccl.replay.feeds import own_ready
from teccl.replay.relations import Book
from teccl.replay.times import Times
from teccl.schedule.columns import Sends


def keep_sums(book: Book, sends: Sends, times: Times) -> None:
    """Let every send of a reduction carry the same contributions in the replay."""
    _keep_own(book, sends, times)
    _keep_reads(book, sends, times)
    _keep_replacements(book, sends, times)


def _keep_own(book: Book, sends: Sends, times: Times) -> None:
    """Keep whether a send of a reduction finds its GPU's own contribution."""
    rows = np.flatnonzero(sends.accumulates & sends.from_gpu)
    rows = rows[sends.is_source(sends.chunk[rows], sends.src[rows])]
    ready = own_ready(sends, rows)
    has_it = times.start[rows] >= ready
    book.not_before[rows[has_it]] = ready[has_it]
    book.before_time[rows[~has_it]] = ready[~has_it]


def _keep_reads(book: Book, sends: Sends, times: Times) -> None:
    """Keep, at each accumulator, which arrivals a send finds merged and which it does not."""
    rows = np.flatnonzero(sends.accumulates)
    arriving, leaving = rows[sends.to_gpu[rows]], rows[sends.from_gpu[rows]]
    row = np.concatenate([arriving, leaving])
    is_send = np.repeat([False, True], [len(arriving), len(leaving)])
    key = sends.keys(sends.chunk[row], np.where(is_send, sends.src[row], sends.dst[row]))
    time = np.where(is_send, times.start[row], times.arrival[row])
    order = np.lexsort((is_send, time, key))
    row, is_send, key, time = row[order], is_send[order], key[order], time[order]
    # Runs of arrivals and runs of sends alternate, so it is enough that each run keeps behind the
    # one before it. A gate stands behind runs of several; a single moment is its own gate.
    begins = new_run(key, is_send)
    run = number_runs(key, is_send)
    # What has not arrived when a send begins comes at least a picosecond after that.
    lag = is_send.astype(np.int64)
    moment = np.where(is_send, book.start(row), book.arrival(row))
    gate, gate_lag = moment[begins], lag[begins]
    is_crowd = np.bincount(run) > 1
    last = np.append(begins[1:], True)[: len(begins)]
    gate[is_crowd] = book.open_gates((time + lag)[last][is_crowd])
    gate_lag[is_crowd] = 0
    crowd = np.flatnonzero(is_crowd[run])
    book.keep(moment[crowd], gate[run[crowd]], lag[crowd])
    follows = np.flatnonzero((run > 0) & (key[begins][run - 1] == key))
    book.keep(gate[run[follows] - 1], moment[follows], gate_lag[run[follows] - 1])


def _keep_replacements(book: Book, sends: Sends, times: Times) -> None:
    """Keep the order between arrivals that replace an accumulator and all others there."""
    row = np.flatnonzero(sends.accumulates & sends.to_gpu)
    key = sends.keys(sends.chunk[row], sends.dst[row])
    replaces = ~sends.is_reduce[row]
    order = np.lexsort((replaces, times.arrival[row], key))
    row, key, replaces = row[order], key[order], replaces[order]
    run = number_runs(key)
    moment = book.arrival(row)
    earlier = _before(last_marked(replaces, run), run)
    follows = np.flatnonzero(earlier >= 0)
    # At one instant merges come first, so a merge that followed must stay strictly later.
    book.keep(moment[earlier[follows]], moment[follows], (~replaces[follows]).astype(np.int64))
    tied = follows[times.arrival[row[follows]] == times.arrival[row[earlier[follows]]]]
    book.keep(moment[tied], moment[earlier[tied]])
    later = next_marked(replaces, run)
    merges = np.flatnonzero(~replaces & (later >= 0))
    book.keep(moment[merges], moment[later[merges]])


def _before(found: IntArray, run: IntArray) -> IntArray:
    """Shift by one within runs: what was found up to the position before."""
    shifted = np.full(len(found), -1, dtype=np.int64)
    shifted[1:] = np.where(run[1:] == run[:-1], found[:-1], -1)
    return shifted
