"""CP-SAT: integer programs with whole coefficients, best at 0-1 feasibility; runs inside `child`.

===================  ===========================================================
CP-SAT               here
===================  ===========================================================
OPTIMAL              optimal
FEASIBLE             feasible, time_limit or interrupted, by what stopped it
INFEASIBLE           infeasible
UNKNOWN              time_limit or interrupted, by what stopped it
MODEL_INVALID        error
===================  ===========================================================
"""

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.solvers.child import SolverJob

# Values beyond this are infinite to CP-SAT.
_FAR = 2**40
# Columns up to which a model without objective is relaxed in full: counting that a relaxation sees
# at once can take propagation minutes, and in a small model the relaxation costs next to nothing.
_SMALL_MODEL = 2_000
# One worker repeats its run exactly; more of them race.
_DEFAULT_WORKERS = 1


def run(job: SolverJob) -> None:
    """Solve a job and report its end."""
    from ortools.sat.python import cp_model_helper

    refused = _why_not(job)
    if refused is not None:
        job.finish("error", message=refused)
        return
    helper: Any = cp_model_helper
    model = _model(helper, job)
    wrapper = helper.SolveWrapper()
    wrapper.set_parameters(_parameters(helper, job))
    has_cost = bool(job.arrays["cost"].any())
    watcher = _watcher(helper, job)
    wrapper.add_solution_callback(watcher)
    if has_cost:
        wrapper.add_best_bound_callback(lambda bound: job.report(watcher.objective, bound))
    job.on_stop = wrapper.stop_search
    if job.stop.is_set():
        job.finish("interrupted")
        return
    began = time.perf_counter()
    response = wrapper.solve(model)
    _finish(helper, job, response, time.perf_counter() - began)


def _why_not(job: SolverJob) -> str | None:
    """Say why CP-SAT cannot take a model."""
    a = job.arrays
    if not a["integer"].all():
        return "CP-SAT takes integer columns only; use highs"
    if not (np.isfinite(a["lower"]).all() and np.isfinite(a["upper"]).all()):
        return "CP-SAT takes bounded columns only; use highs"
    for name in ("data", "cost"):
        if (a[name] != np.round(a[name])).any():
            return f"CP-SAT takes whole coefficients only, {name} has others; use highs"
    return None


def _model(helper: Any, job: SolverJob) -> Any:
    """Copy the arrays into CP-SAT's own form, row by row."""
    a = job.arrays
    model = helper.CpModelProto()
    lower = np.ceil(a["lower"]).astype(np.int64).tolist()
    upper = np.floor(a["upper"]).astype(np.int64).tolist()
    for bounds in zip(lower, upper, strict=True):
        model.variables.add().domain.extend(bounds)
    starts, columns, values = _by_rows(job)
    row_lower = np.ceil(np.clip(a["row_lower"], -_FAR, _FAR)).astype(np.int64).tolist()
    row_upper = np.floor(np.clip(a["row_upper"], -_FAR, _FAR)).astype(np.int64).tolist()
    for row, (low, high) in enumerate(zip(row_lower, row_upper, strict=True)):
        part = slice(starts[row], starts[row + 1])
        linear = model.constraints.add().linear
        linear.vars.extend(columns[part])
        linear.coeffs.extend(values[part])
        linear.domain.extend((low, high))
    costly = np.flatnonzero(a["cost"])
    if len(costly):
        model.objective.vars.extend(costly.tolist())
        model.objective.coeffs.extend(a["cost"][costly].astype(np.int64).tolist())
        model.objective.offset = float(job.options["offset"])
        model.objective.scaling_factor = 1.0
    start = a.get("start")
    if start is not None:
        known = np.flatnonzero(~np.isnan(start))
        model.solution_hint.vars.extend(known.tolist())
        model.solution_hint.values.extend(np.round(start[known]).astype(np.int64).tolist())
    return model


def _by_rows(job: SolverJob) -> tuple[list[int], list[int], list[int]]:
    """Turn the matrix by columns into one by rows."""
    a = job.arrays
    column = np.repeat(np.arange(job.num_columns), np.diff(a["indptr"]))
    order = np.argsort(a["indices"], kind="stable")
    starts: npt.NDArray[Any] = np.searchsorted(a["indices"][order], np.arange(job.num_rows + 1))
    values = a["data"][order].astype(np.int64)
    return starts.tolist(), column[order].tolist(), values.tolist()


def _parameters(helper: Any, job: SolverJob) -> Any:
    options = job.options
    parameters = helper.SatParameters()
    parameters.random_seed = options["seed"] % 2**31
    parameters.num_workers = options["threads"] or _DEFAULT_WORKERS
    parameters.relative_gap_limit = float(options["gap"])
    if options["time_limit"] is not None:
        parameters.max_time_in_seconds = float(options["time_limit"])
    if options["work"] is not None:
        parameters.max_deterministic_time = float(options["work"])
    if not job.arrays["cost"].any():
        # Without an objective, large relaxations only cost time: propagation finds schedules.
        parameters.linearization_level = 2 if job.num_columns <= _SMALL_MODEL else 0
    if options["first_only"]:
        parameters.stop_after_first_solution = True
    return parameters


def _watcher(helper: Any, job: SolverJob) -> Any:
    """Return a callback that streams each better solution."""

    class Watcher(helper.SolutionCallback):  # type: ignore[misc]
        objective: float | None = None

        def OnSolutionCallback(self) -> None:  # noqa: N802, CP-SAT's own name
            values = np.array(self.Response().solution, dtype=np.float64)
            self.objective = float(job.arrays["cost"] @ values) + job.options["offset"]
            job.report(self.objective, self.BestObjectiveBound(), values)

    return Watcher()


def _finish(helper: Any, job: SolverJob, response: Any, seconds: float) -> None:
    status = helper.CpSolverStatus(response.status)
    limit = job.options["time_limit"]
    if status == helper.CpSolverStatus.MODEL_INVALID:
        job.finish("error", message="CP-SAT finds the model invalid")
        return
    if status == helper.CpSolverStatus.INFEASIBLE:
        job.finish("infeasible")
        return
    stopped = "feasible"
    if job.stop.is_set():
        stopped = "interrupted"
    elif limit is not None and seconds >= 0.95 * limit and not job.options["first_only"]:
        stopped = "time_limit"
    if status == helper.CpSolverStatus.UNKNOWN:
        job.finish("time_limit" if stopped == "feasible" else stopped)
        return
    is_optimal = status == helper.CpSolverStatus.OPTIMAL
    values = np.array(response.solution, dtype=np.float64)
    has_cost = bool(job.arrays["cost"].any())
    objective = float(job.arrays["cost"] @ values) + job.options["offset"]
    job.finish(
        "optimal" if is_optimal else stopped,
        objective=objective,
        bound=response.best_objective_bound if has_cost else objective,
        values=values,
    )
