"""Sorting by digits gives the order that comparing gives."""

import numpy as np
import pytest

from teccl.schedule.ordering import order_by

ROWS = 30_000


def columns(kind: str) -> list[np.ndarray]:
    """Columns that take each way through the sort."""
    rng = np.random.default_rng(7)
    few = rng.integers(0, 5, ROWS)
    return {
        "short": [few, rng.integers(-3, 900, ROWS)],
        "two digits": [few.astype(np.int32), rng.integers(0, 2**30, ROWS)],
        "long": [few, rng.integers(-(2**61), 2**61, ROWS)],
        "sorted": [np.arange(ROWS) // 10, few, rng.integers(0, 9, ROWS)],
        "marks": [rng.integers(0, 2**20, ROWS) // 2**10, few, few > 2],
        "equal": [np.zeros(ROWS, dtype=np.int64), np.full(ROWS, 2**40)],
    }[kind]


@pytest.mark.parametrize("kind", ["short", "two digits", "long", "sorted", "marks", "equal"])
@pytest.mark.parametrize("rows", [ROWS, 100, 0])
def test_order_is_that_of_comparing(kind, rows):
    """Ties keep their places, whatever the values and however many there are."""
    given = [column[:rows] for column in columns(kind)]
    assert np.array_equal(order_by(*given), np.lexsort(given[::-1]))
