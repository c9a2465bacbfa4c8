"""Compiled loop that places the transfers of mended trees as early as links and chunks allow."""

import numpy as np

from teccl._kernels import kernel
from teccl.orbit.plan.bookings import book, fit

_NEVER = np.iinfo(np.int64).max


@kernel
def retime(moves, ready, sums, lengths, calendars):
    """Place transfers one after the other, each at the first moment at which it fits.

    What is part of the plan is placed anew only where that is of use: a sum that waits for one
    that comes late, a copy that may come sooner.

    Parameters
    ----------
    moves
        A column for each transfer, after what it waits for: the places of its chunk at the sender
        and at the receiver, the link out of the sender, the one behind a switch or -1, and when it
        begins and arrives in the plan, -1 where it is no part of it.
    ready
        By chunk and rank, when it is there, or all of it that has been placed; changed.
    sums
        Whether sums are sent, which wait for all that comes, or copies.
    lengths
        By link, picoseconds for which it is held, and in a second row its latency.
    calendars
        See `bookings`; changed.

    Returns
    -------
    start
        Of each transfer, -1 where it stays as it is in the plan.
    """
    start = np.full(moves.shape[1], -1, dtype=np.int64)
    for at in range(moves.shape[1]):
        tail, head, link, second, begin, planned = moves[:, at]
        time = ready[tail]
        if sums and time <= begin:
            continue
        time = fit(link, second, time, _NEVER, lengths, calendars)
        there = time + lengths[0, link] + lengths[1, link]
        arrival = there
        if second >= 0:
            arrival = there + lengths[0, second] + lengths[1, second]
        if begin >= 0 and not sums and arrival >= planned:
            ready[head] = planned
            continue
        start[at] = time
        book(link, time, time + lengths[0, link], lengths[0, link], calendars)
        if second >= 0:
            book(second, there, there + lengths[0, second], lengths[0, second], calendars)
        ready[head] = max(ready[head], arrival)
    return start


@kernel
def hold_all(links, starts, lengths, calendars):
    """Book sends over single links."""
    for at in range(len(links)):
        held = lengths[0, links[at]]
        book(links[at], starts[at], starts[at] + held, held, calendars)
