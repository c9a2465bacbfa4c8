"""solve: a linear model, a back end's name and options to a solution that was checked."""

from dataclasses import replace

import numpy as np

from teccl.errors import SolverError
from teccl.linear_model import LinearModel
from teccl.progress import CancelToken
from teccl.solvers.base import (
    INTEGER_TOLERANCE,
    LOOSE_ROW_TOLERANCE,
    ROW_TOLERANCE,
    FloatArray,
    OnProgress,
    Solution,
    SolverOptions,
    SolverProgress,
    SolverStatus,
)
from teccl.solvers.process import solve_in_child

BACKENDS = ("highs", "cpsat", "gurobi")


def solve(
    model: LinearModel,
    name: str = "highs",
    options: SolverOptions | None = None,
    *,
    on_progress: OnProgress | None = None,
    cancel: CancelToken | None = None,
) -> Solution:
    """Minimise a model.

    Parameters
    ----------
    model
        What to solve.
    name
        One of `BACKENDS`. ``cpsat`` takes bounded integer models with whole coefficients only.
    options
        Limits, seed, threads, start and algorithm.
    on_progress
        Called with a `SolverProgress` for each better solution (with its values, whole in
        integer columns and checked) and for better bounds. An exception it raises ends the
        solve and is passed on.
    cancel
        Ends the solve from another thread; the best solution so far is kept.

    Returns
    -------
    Solution
        Infeasible, out of time, killed, missing or mistaken solvers are statuses, no exceptions.
        Values that break the model are never handed out: the status is then ``error``.

    Examples
    --------
    >>> from teccl.linear_model import RowBlock, stack
    >>> rows = RowBlock.sums(np.array([[0, 1]]), lower=-np.inf, upper=2.5)
    >>> model = stack([rows], cost=np.array([-1.0, -1.0]), lower=0, upper=2, integer=True)
    >>> solution = solve(model)
    >>> solution.status.value, solution.objective, solution.bound
    ('optimal', -2.0, -2.0)
    """
    options = options or SolverOptions()
    if name not in BACKENDS:
        raise SolverError(f"unknown solver {name!r}; use one of {', '.join(BACKENDS)}")
    if options.start is not None and len(options.start) != model.num_columns:
        raise SolverError(
            f"a start of {len(options.start)} values does not fit {model.num_columns} columns"
        )
    if not model.is_feasible_trivially:
        return Solution(status=SolverStatus.INFEASIBLE, bound=np.inf)
    if not model.num_columns:
        return Solution(
            status=SolverStatus.OPTIMAL,
            objective=model.offset,
            bound=model.offset,
            values=np.empty(0),
        )

    def pass_on(progress: SolverProgress) -> None:
        if on_progress is None:
            return
        values = progress.values
        if values is not None:
            values = _checked(model, values)
            if values is None:
                return
        on_progress(replace(progress, values=values))

    found = solve_in_child(name, model, options, pass_on, cancel)
    return _judge(model, name, found)


def _judge(model: LinearModel, name: str, found: Solution) -> Solution:
    """Check what a back end says against the model and against itself."""
    if found.status in (SolverStatus.INFEASIBLE, SolverStatus.UNBOUNDED):
        return replace(found, objective=None, values=None)
    if found.values is None:
        if found.status in (SolverStatus.OPTIMAL, SolverStatus.FEASIBLE):
            return _mistaken(found, f"{name} says {found.status} but returned no values")
        return replace(found, objective=None)
    values = _checked(model, found.values)
    if values is None:
        return _mistaken(found, f"{name} returned values that break the model")
    objective = model.objective(values)
    slack = LOOSE_ROW_TOLERANCE * max(1.0, abs(objective))
    if found.bound > objective + slack:
        if found.status is not SolverStatus.OPTIMAL:
            # A back end that was stopped may speak of a part of the model; nothing is proven then.
            return replace(found, values=values, objective=objective, bound=-np.inf)
        return _mistaken(found, f"{name} claims bound {found.bound} above objective {objective}")
    # Rounding may leave a bound a hair above the objective it proves.
    return replace(found, values=values, objective=objective, bound=min(found.bound, objective))


def _mistaken(found: Solution, message: str) -> Solution:
    return Solution(status=SolverStatus.ERROR, seconds=found.seconds, message=message)


def _checked(model: LinearModel, values: FloatArray) -> FloatArray | None:
    """Return values with whole integers, None if they do not satisfy the model."""
    if len(values) != model.num_columns or not np.isfinite(values).all():
        return None
    whole = values.copy()
    whole[model.integer] = np.round(values[model.integer])
    if np.abs(whole - values).max(initial=0.0) > INTEGER_TOLERANCE:
        return None
    is_loose = not model.integer.all()
    sizes = np.concatenate([model.row_lower, model.row_upper, [1.0]])
    scale = max(1.0, float(np.abs(sizes[np.isfinite(sizes)]).max())) if is_loose else 1.0
    tolerance = LOOSE_ROW_TOLERANCE * scale if is_loose else ROW_TOLERANCE
    whole = np.clip(whole, model.lower, model.upper) if is_loose else whole
    return whole if model.violation(whole) <= tolerance else None
