"""Buffers: how many received chunks wait at a GPU to be forwarded."""

from fractions import Fraction

import pytest
from tests.verification.generate import most_waiting, random_schedule, with_buffer
from tests.verification.helpers import US, kinds, net, plan, task, wants

PS = Fraction(1, US)
HUB = net("a b h c d", "a>h, b>h, h>c, h>d, h>c")


def test_without_buffer_a_chunk_leaves_when_it_arrives():
    """Forwarding at the instant of arrival needs no buffer, a picosecond later does."""
    problem = task(HUB, wants(([0], [3])), buffer=0)
    assert kinds(plan(problem, (0, "a>h", 0), (0, "h>c", 1))) == set()
    late = kinds(plan(problem, (0, "a>h", 0), (0, "h>c", 1 + PS)))
    assert late == {"buffer-exceeded"}


def test_wanted_data_may_not_be_forwarded_later_either():
    """What a GPU keeps for itself is not in the forwarding buffer."""
    problem = task(HUB, wants(([0], [2, 3])), buffer=0)
    assert kinds(plan(problem, (0, "a>h", 0), (0, "h>c", 2))) == {"buffer-exceeded"}


def test_keeping_what_is_wanted_needs_no_buffer():
    """A destination that forwards nothing has nothing waiting."""
    problem = task(HUB, wants(([0], [2])), buffer=0)
    assert kinds(plan(problem, (0, "a>h", 0))) == set()


def test_own_data_waits_for_free():
    """A source may send any time."""
    problem = task(HUB, wants(([2], [3])), buffer=0)
    assert kinds(plan(problem, (0, "h>c", 9))) == set()


def test_a_buffer_of_one_holds_one_chunk():
    """Two chunks that wait together need room for two."""
    rows = [(0, "a>h", 0), (1, "b>h", 0), (0, "h>c", 2), (1, "h>d", 2)]
    for buffer, expected in ((1, {"buffer-exceeded"}), (2, set())):
        problem = task(HUB, wants(([0], [3]), ([1], [4])), buffer=buffer)
        assert kinds(plan(problem, *rows)) == expected


def test_a_place_is_free_again_when_the_chunk_leaves():
    """One chunk may begin to wait at the instant another departs."""
    problem = task(HUB, wants(([0], [3]), ([1], [4])), buffer=1)
    rows = [(0, "a>h", 0), (1, "b>h", 1), (0, "h>c", 2), (1, "h>d", 3)]
    assert kinds(plan(problem, *rows)) == set()


def test_several_forwards_of_one_arrival_are_one_chunk():
    """A chunk waits until its last forward and counts once."""
    problem = task(HUB, wants(([0], [3, 4])), buffer=1)
    assert kinds(plan(problem, (0, "a>h", 0), (0, "h>c", 2), (0, "h>d", 3))) == set()


def test_a_later_arrival_of_the_same_chunk_starts_anew():
    """A forward draws on the latest arrival."""
    problem = task(HUB, wants(([0], [3, 4])), buffer=0)
    rows = [(0, "a>h", 0), (0, "h>c", 1), (0, "a>h", 4), (0, "h>d", 5)]
    assert kinds(plan(problem, *rows)) == set()


def test_a_partial_sum_waits_from_its_first_part():
    """A reduction waits from the first merged arrival until it is sent on."""
    rows = [
        (0, "a>h", 0, None, "reduce"),
        (0, "b>h", 1, None, "reduce"),
        (0, "h>c", 2, None, "reduce"),
    ]
    tenant = wants(([0, 1, 2], [3], True))
    assert kinds(plan(task(HUB, tenant, buffer=0), *rows)) == {"buffer-exceeded"}
    assert kinds(plan(task(HUB, tenant, buffer=1), *rows)) == set()


def test_a_replaced_sum_waits_from_its_replacement():
    """A copy that overwrites the accumulator starts the wait anew."""
    topology = net("a b c", "a>b, b>a, a>b, b>c")
    problem = task(topology, wants(([0, 1], [0, 1, 2], True)), buffer=0)
    rows = [
        (0, "b>a", 0, None, "reduce"),
        (0, "a>b", 1, None, "copy"),
        (0, "b>c", 2, None, "copy"),
    ]
    assert kinds(plan(problem, *rows)) == set()


@pytest.mark.parametrize("seed", range(0, 400, 7))
def test_the_limit_is_what_a_plain_count_says(seed):
    """Random schedules need exactly as many places as counting finds."""
    schedule = random_schedule(seed)
    most = most_waiting(schedule)
    assert kinds(with_buffer(schedule, most)) == set()
    if most:
        assert "buffer-exceeded" in kinds(with_buffer(schedule, most - 1))
