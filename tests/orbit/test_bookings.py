"""Calendars of single links around what stays of an orbit schedule."""

import random

import numba as nb
import numpy as np
import pytest

from teccl.orbit.plan import bookings
from teccl.orbit.plan.patching import Calendars

LENGTH = 10
NEVER = np.iinfo(np.int64).max


@nb.njit
def next_free(link, time, length, calendars):
    """Ask the kernel, which only others call."""
    return bookings.next_free(link, time, length, calendars)


@nb.njit
def book(link, start, stop, length, calendars):
    """Ask the kernel."""
    bookings.book(link, start, stop, length, calendars)


@nb.njit
def fit(links, time, most, lengths, calendars):
    """Ask the kernel."""
    return bookings.fit(links[0], links[1], time, most, lengths, calendars)


def opened(images, freed, *, links=1, room=400):
    """Calendars of links of one orbit with images from given moments on, some freed of link 0."""
    start = np.array(sorted(images), dtype=np.int64)
    fresh = np.append(np.ones(len(start), dtype=bool), True)
    fresh[1:-1] = start[1:] - start[:-1] >= 2 * LENGTH
    last = np.flatnonzero(fresh[1:])
    block = last[np.searchsorted(last, np.arange(len(start)))]
    first = np.full(links + 1, len(freed))
    first[0] = 0
    calendars = Calendars(
        line=np.zeros(links, dtype=np.int64),
        freed_first=first,
        tail=np.zeros(links, dtype=np.int64),
        first=np.array([0, len(start)]),
        images=np.stack([start, start + LENGTH, block]),
        freed=np.array(sorted(freed), dtype=np.int64),
    )
    return calendars.opened(room)


def earliest(busy, time):
    """The first moment from a time on at which none of the busy ones is near, tried one by one."""
    while any(abs(time - begin) < LENGTH for begin in busy):
        time += 1
    return time


@pytest.mark.parametrize("seed", range(20))
def test_the_next_free_moment_is_that_of_a_list(seed):
    """Images that stay and bookings are busy, freed images are not, however many there are."""
    rng = random.Random(seed)
    images = [LENGTH * place + rng.randrange(3) * 5 for place in range(0, 60, 3)]
    freed = rng.sample(range(len(images)), 8)
    calendars = opened(images, freed)
    busy = [begin for place, begin in enumerate(sorted(images)) if place not in freed]
    for _ in range(30):
        time = rng.randrange(500)
        start = earliest(busy, time)
        assert next_free(0, time, LENGTH, calendars) == start
        book(0, start, start + LENGTH, LENGTH, calendars)
        busy.append(start)


@pytest.mark.parametrize("seed", range(20))
def test_two_links_are_free_one_after_the_other(seed):
    """However many gaps were closed before, and whoever asks for no moment that is too late."""
    rng = random.Random(seed)
    calendars = opened([LENGTH * 3 * place for place in range(20)], [], links=2)
    lengths = np.array([[LENGTH, LENGTH], [rng.randrange(1, 30)] * 2])
    lag = LENGTH + int(lengths[1, 0])
    for _ in range(60):
        time = rng.randrange(600)
        start = fit((0, 1), time, NEVER, lengths, calendars)
        most = start + rng.randrange(-40, 40)
        limited = fit((0, 1), time, most, lengths, calendars)
        assert limited == start if start <= most else limited > most
        assert next_free(0, start, LENGTH, calendars) == start
        assert next_free(1, start + lag, LENGTH, calendars) == start + lag
        book(0, start, start + LENGTH, LENGTH, calendars)
        book(1, start + lag, start + lag + LENGTH, LENGTH, calendars)
