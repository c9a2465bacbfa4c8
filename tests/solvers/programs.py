"""Small programs with known answers, and one that keeps any back end busy."""

import numpy as np

from teccl.linear_model import LinearModel, RowBlock, stack


def knapsack() -> LinearModel:
    """Weights 3, 4, 5 worth 4, 5, 6 within 7: the best is 9, the relaxation's 9.2 or more."""
    row = RowBlock.of(1, [(0, np.arange(3), np.array([3.0, 4.0, 5.0]))], lower=-np.inf, upper=7.0)
    return stack([row], cost=-np.array([4.0, 5.0, 6.0]), lower=0, upper=1, integer=True)


def diet(*, integer: bool = False) -> LinearModel:
    """At least 3.5 of two foods of cost 2 and 3 with at most 2 of the first: 8.5, whole 10."""
    row = RowBlock.sums(np.array([[0, 1]]), lower=3.5, upper=np.inf)
    cost = np.array([2.0, 3.0])
    return stack([row], cost=cost, lower=0, upper=np.array([2.0, 10.0]), integer=integer)


def contradiction() -> LinearModel:
    """Two whole numbers up to one that sum to three."""
    row = RowBlock.sums(np.array([[0, 1]]), lower=3.0, upper=3.0)
    return stack([row], cost=np.ones(2), lower=0, upper=1, integer=True)


def market_split(seed: int = 0) -> LinearModel:
    """Six equations over fifty 0-1 columns: nothing solves that soon, but a slack is allowed."""
    rng = np.random.default_rng(seed)
    rows, columns = 6, 50
    factors = rng.integers(0, 100, size=(rows, columns)).astype(float)
    half = np.floor(factors.sum(axis=1) / 2)
    number = np.repeat(np.arange(rows), columns)
    slack = columns + np.arange(rows)
    block = RowBlock.of(
        rows,
        [
            (number, np.tile(np.arange(columns), rows), factors.ravel()),
            (np.arange(rows), slack, 1.0),
            (np.arange(rows), slack + rows, -1.0),
        ],
        lower=half,
        upper=half,
    )
    cost = np.concatenate([np.zeros(columns), np.ones(2 * rows)])
    upper = np.concatenate([np.ones(columns), np.full(2 * rows, 1e5)])
    return stack([block], cost=cost, lower=0, upper=upper, integer=True)
