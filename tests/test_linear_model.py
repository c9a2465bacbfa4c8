"""Linear models: stacking blocks, numbering columns, judging values."""

import numpy as np
import pytest

from teccl.errors import SolverError
from teccl.linear_model import ABSENT, Columns, RowBlock, stack
from teccl.solvers import SolverStatus, solve


def test_columns_skip_what_does_not_exist():
    """Columns are numbered in order; absent variables have none."""
    columns = Columns.number(np.array([[True, False], [True, True]]), first=5)
    assert columns.index.tolist() == [[5, ABSENT], [6, 7]]
    assert (columns.first, columns.count, columns.end) == (5, 3, 8)


def test_rows_drop_absent_columns_and_add_up_duplicates():
    """Terms of absent columns vanish; two at one place are summed."""
    block = RowBlock.of(1, [(0, np.array([0, ABSENT, 0, 1]), 2.0)], lower=0.0, upper=9.0)
    model = stack([block, block], cost=np.zeros(2), lower=0, upper=1, integer=False)
    assert model.matrix.toarray().tolist() == [[4, 2], [4, 2]]
    assert model.row_upper.tolist() == [9, 9]


def test_violation_names_the_worst_break():
    """Bounds, rows and integrality all count."""
    block = RowBlock.sums(np.array([[0, 1]]), lower=1.0, upper=2.0)
    model = stack([block], cost=np.ones(2), lower=0, upper=3, integer=np.array([True, False]))
    assert model.violation(np.array([1.0, 1.0])) == 0
    assert model.violation(np.array([0.25, 1.0])) == 0.25
    assert model.violation(np.array([0.0, 0.0])) == 1
    assert model.violation(np.array([3.0, -1.5])) == 1.5
    assert model.objective(np.array([1.0, 2.0])) == 3


def test_arrays_that_do_not_fit_are_refused():
    """Shapes and numbers are checked once, where a model is made."""
    block = RowBlock.sums(np.array([[0, 1]]), lower=1.0, upper=2.0)
    with pytest.raises(SolverError, match="no number"):
        stack([block], cost=np.array([1.0, np.nan]), lower=0, upper=1, integer=False)


def test_rows_without_columns_decide_by_themselves():
    """An empty sum that must be one is a contradiction, with and without columns elsewhere."""
    block = RowBlock.of(1, [], lower=1.0, upper=1.0)
    assert not stack([block], cost=np.ones(2), lower=0, upper=1, integer=True).is_feasible_trivially
    empty = stack([block], cost=np.ones(0), lower=0, upper=1, integer=True)
    assert solve(empty).status is SolverStatus.INFEASIBLE


def test_a_model_without_rows():
    """No rows at all is a model too."""
    model = stack([], cost=np.ones(2), lower=0, upper=1, integer=True)
    assert (model.num_rows, model.num_columns) == (0, 2)
    assert solve(model).objective == 0
    nothing = stack([], cost=np.ones(0), lower=0, upper=1, integer=True, offset=3.0)
    assert solve(nothing).objective == 3
