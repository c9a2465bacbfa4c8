"""The least solution of difference constraints."""

import random

import numpy as np
import pytest

from teccl.check.relax import least_solution


def solve(lower, edges, rank=None):
    before, after, weight = (
        np.array(column, dtype=np.int64) for column in zip(*edges, strict=True)
    )
    order = np.arange(len(lower)) if rank is None else np.array(rank)
    solution = least_solution(np.array(lower, dtype=np.int64), before, after, weight, order)
    return None if solution is None else solution.tolist()


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
