"""Phases of one period: every slot is the nearest free one, however many a link has."""

import numpy as np
import pytest

from teccl.construct.modulo import _MOST_SLOTS, modulo_times


def phases(hold, wishes, period, *, backward=False):
    """Times of tasks on one link that wait for nothing but their wish."""
    count = len(wishes)
    none, zeros = np.zeros(0, dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    return modulo_times(
        np.zeros(count, dtype=np.int64),
        np.full(count, hold),
        np.arange(count),
        np.full(count, backward),
        *(zeros, none, none),
        *(zeros, none, none),
        np.array(wishes),
        1,
        period,
    )


def nearest(hold, wishes, period, *, backward):
    """The same by trying every slot."""
    left, times = set(range(period // hold)), []
    for wish in wishes:
        sign = -1 if backward else 1
        waits = {slot: sign * (slot * hold - wish) % period for slot in left}
        slot = min(waits, key=waits.__getitem__)
        left.remove(slot)
        times.append(wish + sign * waits[slot])
    return times


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_slots_are_the_nearest_free_ones(seed, backward):
    """Even where all slots are taken in the end, and the period is no multiple of a hold."""
    rng = np.random.default_rng(seed)
    hold = int(rng.integers(1, 9))
    period = hold * 30 + int(rng.integers(0, hold))
    wishes = rng.integers(0, 3 * period, size=30).tolist()
    found = phases(hold, wishes, period, backward=backward)
    assert found.tolist() == nearest(hold, wishes, period, backward=backward)


def test_short_transfers_in_a_long_period_take_no_memory_for_each_slot():
    """A picosecond in a second: slots are longer, and transfers still do not collide."""
    found = phases(1, [5, 5, 10**12 - 1], 10**12) % 10**12
    assert len(set(found.tolist())) == 3
    assert (found % (10**12 // _MOST_SLOTS) == 0).all()
