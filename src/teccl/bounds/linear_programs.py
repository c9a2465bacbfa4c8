"""Small linear programs of bounds, solved in this process by HiGHS.

scipy brings that solver, but takes longer to load than most bounds take. Commands load highspy
instead, which is the solver alone; libraries must not, because OR-tools fails in its company. Both
find the same optimum.
"""

import sys
from typing import Any, NamedTuple

import numpy as np

from teccl.bounds.patience import solver_limit_s
from teccl.bounds.windows import FloatArray


class LinearOptimum(NamedTuple):
    """Values of the columns, and by how much the cost grows with the right side of each row."""

    values: FloatArray
    duals: FloatArray


def least_cost(
    cost: FloatArray, matrix: Any, low: FloatArray, high: FloatArray, most: FloatArray
) -> LinearOptimum | None:
    """Return columns of the least cost, or None if HiGHS finds none in time.

    Parameters
    ----------
    matrix
        Sparse, a row for each condition.
    low, high
        What the rows may be: up to `high`, or `high` itself where `low` is equal to it.
    most
        What the columns may be; they are at least 0.
    """
    highspy = sys.modules.get("highspy")
    if highspy is None:
        return _by_scipy(cost, matrix.tocsr(), low == high, high, most)
    return _by_highspy(highspy, cost, matrix.tocsc(), (low, high), most)


def _by_scipy(
    cost: FloatArray, matrix: Any, is_equal: Any, high: FloatArray, most: FloatArray
) -> LinearOptimum | None:
    from scipy.optimize import linprog

    equal = (matrix[is_equal], high[is_equal]) if is_equal.any() else (None, None)
    result = linprog(
        cost,
        A_ub=matrix[~is_equal],
        b_ub=high[~is_equal],
        A_eq=equal[0],
        b_eq=equal[1],
        bounds=[(0.0, each) for each in most.tolist()],
        method="highs",
        options={"time_limit": solver_limit_s()},
    )
    if result.status != 0 or result.x is None:
        return None
    duals = np.zeros(len(high))
    duals[~is_equal], duals[is_equal] = result.ineqlin.marginals, result.eqlin.marginals
    return LinearOptimum(result.x, duals)


def _by_highspy(
    highspy: Any, cost: FloatArray, matrix: Any, rows: Any, most: FloatArray
) -> LinearOptimum | None:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", solver_limit_s())
    solver.passModel(
        len(cost),
        len(rows[0]),
        matrix.nnz,
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        cost,
        np.zeros(len(cost)),
        most,
        *rows,
        matrix.indptr,
        matrix.indices,
        matrix.data,
        np.zeros(len(cost), dtype=np.int32),
    )
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    found = solver.getSolution()
    return LinearOptimum(np.array(found.col_value), np.array(found.row_dual))
