"""The least solution of difference constraints."""

import random

import numpy as np
import pytest

from teccl.replay.relax import is_least, least_solution


def solve(lower, edges, rank=None):
    before, after, weight = (
        np.array(column, dtype=np.int64) for column in zip(*edges, strict=True)
    )
    order = np.arange(len(lower)) if rank is None else np.array(rank)
    solution = least_solution(np.array(lower, dtype=np.int64), before, after, weight, order)
    return None if solution is None else solution.tolist()


def is_plainly_least(x, lower, edges):
    columns = (np.array(column, dtype=np.int64) for column in zip(*edges, strict=True))
    return is_least(np.array(x), np.array(lower), *columns)


def test_what_rests_on_an_equal_one_is_least():
    """A constraint of weight zero holds up what follows, if something holds up what is before."""
    edges = [(0, 1, 3), (1, 2, 0), (2, 3, 0)]
    assert is_plainly_least([0, 3, 3, 3], [0, 0, 0, 0], edges)
    assert not is_plainly_least([0, 4, 4, 4], [0, 0, 0, 0], edges)


def test_what_rests_on_itself_is_not_least():
    """Equal entries that only hold up one another could all be smaller."""
    edges = [(0, 1, 0), (1, 0, 0)]
    assert not is_plainly_least([5, 5], [0, 0], edges)
    assert not is_plainly_least([5, 10], [0, 0], [(0, 1, 5), (1, 0, -5)])
    assert is_plainly_least([5, 5], [5, 0], edges)


def test_a_broken_constraint_is_no_solution():
    """What is too small is not least."""
    assert not is_plainly_least([0, 2], [0, 0], [(0, 1, 3)])
    assert not is_plainly_least([0, 3], [1, 0], [(0, 1, 3)])


def test_a_chain_adds_up():
    """Each node waits for the one before it."""
    assert solve([0, 0, 0], [(0, 1, 3), (1, 2, 4)]) == [0, 3, 7]


def test_a_bad_order_of_work_changes_nothing():
    """The rank only sets the speed."""
    assert solve([0, 0, 0], [(0, 1, 3), (1, 2, 4)], rank=[2, 1, 0]) == [0, 3, 7]


def test_ties_from_both_sides_move_together():
    """Equalities are cycles of weight zero."""
    assert solve([5, 0], [(0, 1, 2), (1, 0, -2)]) == [5, 7]
    assert solve([0, 9], [(0, 1, 2), (1, 0, -2)]) == [7, 9]


def test_a_cycle_that_raises_itself_has_no_solution():
    """The search ends, however small the gain of a round."""
    edges = [(0, 1, 10**9), (1, 2, 5), (2, 0, 1 - 10**9 - 5), (2, 3, 1)]
    assert solve([0, 0, 0, 0], edges) is None


@pytest.mark.parametrize("seed", range(40))
def test_random_systems_agree_with_plain_repetition(seed):
    """Repeating all constraints until nothing changes gives the same."""
    rng = random.Random(seed)
    size = rng.randrange(2, 12)
    # Weights below the differences of a known solution, so that there is one.
    known = [rng.randrange(50) for _ in range(size)]
    edges = [
        (u, v, known[v] - known[u] - rng.randrange(8))
        for u, v in ((rng.randrange(size), rng.randrange(size)) for _ in range(3 * size))
    ]
    lower = [rng.randrange(value + 1) for value in known]
    plain = list(lower)
    for _ in range(size):
        for u, v, w in edges:
            plain[v] = max(plain[v], plain[u] + w)
    rank = rng.sample(range(size), size)
    assert solve(lower, edges, rank) == plain
    # It may not be plain that the least solution is least, but nothing else ever is.
    for node in range(size):
        higher = [value + (node == other) for other, value in enumerate(plain)]
        assert not is_plainly_least(higher, lower, edges)
    assert not is_plainly_least(known, lower, edges) or known == plain
