"""Forwards: the order in which GPUs receive and forward chunks under a buffer limit."""

import numpy as np

from teccl._arrays import BoolArray, IntArray, last_marked, next_marked, number_runs
from teccl.replay.relations import Book
from teccl.replay.times import Times
from teccl.schedule.columns import Sends


def keep_forwards(book: Book, sends: Sends, times: Times) -> None:
    """Keep the order in which chunks that a GPU forwards arrive there and depart.

    Then no more chunks wait at an instant of the replay than waited together in the schedule:
    chunks that now wait together wait pairwise together, so none departed before another arrived
    in the schedule either, and by Helly some instant of the schedule has them all. A forward that
    left at the instant of its arrival is tied to it from both sides.
    """
    row, is_forward = _waiting(sends, times)
    gpu = np.where(is_forward, sends.src[row], sends.dst[row])
    time = np.where(is_forward, times.start[row], times.arrival[row])
    order = np.lexsort((is_forward, time, gpu))
    row, time, gpu, is_forward = row[order], time[order], gpu[order], is_forward[order]
    moment = np.where(is_forward, book.start(row), book.arrival(row))
    here = np.flatnonzero(gpu[1:] == gpu[:-1])
    book.keep(moment[here], moment[here + 1])
    tied = here[time[here] == time[here + 1]]
    book.keep(moment[tied + 1], moment[tied])


def _waiting(sends: Sends, times: Times) -> tuple[IntArray, BoolArray]:
    """Forwards of what arrived before, and arrivals that a forward follows; whether a forward.

    By chunk and GPU, in order of time, an arrival before a forward of the same instant.
    """
    arriving, leaving = np.flatnonzero(sends.to_gpu), np.flatnonzero(sends.from_gpu)
    row = np.concatenate([arriving, leaving])
    is_forward = np.repeat([False, True], [len(arriving), len(leaving)])
    gpu = np.where(is_forward, sends.src[row], sends.dst[row])
    # Own data of a copied chunk may be sent at any time, received again or not.
    passes = sends.combines[row] | ~sends.is_source(sends.chunk[row], gpu)
    row, is_forward, gpu = row[passes], is_forward[passes], gpu[passes]
    time = np.where(is_forward, times.start[row], times.arrival[row])
    key = sends.keys(sends.chunk[row], gpu)
    order = np.lexsort((is_forward, time, key))
    row, is_forward, run = row[order], is_forward[order], number_runs(key[order])
    departs = is_forward & (last_marked(~is_forward, run) >= 0)
    counts = departs | (~is_forward & (next_marked(departs, run) >= 0))
    return row[counts], is_forward[counts]
