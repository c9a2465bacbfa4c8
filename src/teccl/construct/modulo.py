"""Compiled modulo scheduling: phases for one period of transfers on direct links."""

import numpy as np

from teccl._kernels import inner, kernel

# Slots of a link beyond which they are made longer than a transfer: so many stay nearly all free.
_MOST_SLOTS = 1 << 20


@inner
def _nearest_free_slot(taken, width, wish, backward, period):
    """Time of the free slot that waits least after a wish (before it, when going backward).

    A link's period holds `len(taken)` slots of one width; the rest of the period is idle.
    """
    count = len(taken)
    phase = wish % period
    j = min(phase // width, count - 1) if backward else -(-phase // width)
    for _ in range(count):
        j %= count
        if not taken[j]:
            break
        j += -1 if backward else 1
    taken[j] = True
    if backward:
        return wish - (phase - j * width) % period
    return wish + (j * width - phase) % period


@kernel
def modulo_times(
    link,
    hold,
    sequence,
    backward,
    wait_start,
    wait_task,
    wait_lag,
    next_start,
    next_task,
    next_lag,
    root_time,
    num_links,
    period,
):
    """Return when each task of one period starts, so that repeating the period never collides.

    Every task holds one link for its hold. Copies follow the arrival they wait for; reductions go
    `backward` in time from the send that waits for them, so that nothing waits longer than it must.
    `sequence` lists tasks after the neighbours they look at; `root_time` is for those with none.
    """
    count = np.zeros(num_links, dtype=np.int64)
    width = np.ones(num_links, dtype=np.int64)
    for t in range(len(link)):
        width[link[t]] = max(hold[t], period // _MOST_SLOTS)
        count[link[t]] = period // width[link[t]]
    base = np.zeros(num_links + 1, dtype=np.int64)
    base[1:] = np.cumsum(count)
    taken = np.zeros(base[-1], dtype=np.bool_)
    time = np.zeros(len(link), dtype=np.int64)
    for t in sequence:
        wish, known = root_time[t], False
        if backward[t]:
            for i in range(next_start[t], next_start[t + 1]):
                limit = time[next_task[i]] - next_lag[i]
                wish = min(wish, limit) if known else limit
                known = True
        else:
            for i in range(wait_start[t], wait_start[t + 1]):
                # Where a result turns around, the reductions are the ones that follow.
                if not backward[wait_task[i]]:
                    limit = time[wait_task[i]] + wait_lag[i]
                    wish = max(wish, limit) if known else limit
                    known = True
        slots = taken[base[link[t]] : base[link[t] + 1]]
        time[t] = _nearest_free_slot(slots, width[link[t]], wish, backward[t], period)
    return time
