"""HiGHS: linear and mixed-integer programs; runs inside `child`.

===========================================  ==============================
HiGHS                                        here
===========================================  ==============================
kOptimal, kModelEmpty                        optimal
kInfeasible                                  infeasible
kUnbounded, kUnboundedOrInfeasible           unbounded
kTimeLimit                                   time_limit
kInterrupt, kHighsInterrupt                  interrupted
kSolutionLimit, kObjectiveBound,             feasible
kObjectiveTarget
kMemoryLimit and all else                    error
===========================================  ==============================
"""

from importlib import import_module
from typing import Any

import numpy as np

from teccl.solvers.base import LinearMethod
from teccl.solvers.child import SolverJob

_STATUS = {
    "kOptimal": "optimal",
    "kModelEmpty": "optimal",
    "kInfeasible": "infeasible",
    "kUnbounded": "unbounded",
    "kUnboundedOrInfeasible": "unbounded",
    "kTimeLimit": "time_limit",
    "kInterrupt": "interrupted",
    "kHighsInterrupt": "interrupted",
    "kSolutionLimit": "feasible",
    "kObjectiveBound": "feasible",
    "kObjectiveTarget": "feasible",
}
# Names of the algorithms in HiGHS; `auto` is its own choice.
_METHODS = {
    LinearMethod.AUTO: "choose",
    LinearMethod.SIMPLEX: "simplex",
    LinearMethod.IPM: "ipm",
    LinearMethod.PDLP: "pdlp",
    LinearMethod.HIPO: "hipo",
}
# Branch-and-bound nodes that count as one unit of work; HiGHS has no clock of its own for it.
_NODES_PER_WORK = 50
# Seconds between reports of a bound that has moved.
_REPORT_SECONDS = 0.5


def run(job: SolverJob) -> None:
    """Solve a job and report its end."""
    import highspy

    make_solver: Any = highspy.Highs
    solver = make_solver()
    refused = _configure(solver, highspy, job)
    if refused is not None:
        job.finish("unavailable", message=refused)
        return
    _pass_model(solver, highspy, job)
    start = job.arrays.get("start")
    if start is not None:
        known = np.flatnonzero(~np.isnan(start)).astype(np.int32)
        solver.setSolution(len(known), known, start[known])
    _follow(solver, highspy, job)
    solver.run()
    _finish(solver, highspy, job)


def _configure(solver: Any, highspy: Any, job: SolverJob) -> str | None:
    """Set the options; return a message if one of them is not to be had."""
    options = job.options
    values: dict[str, Any] = {
        "output_flag": False,
        "random_seed": options["seed"] % 2**31,
        "mip_rel_gap": max(options["gap"], 0.0),
        "mip_abs_gap": 1e-6,
    }
    if options["time_limit"] is not None:
        values["time_limit"] = float(options["time_limit"])
    if options["threads"] is not None:
        values["threads"] = options["threads"]
    if options["first_only"]:
        values["mip_max_improving_sols"] = 1
    if options["work"] is not None:
        values["mip_max_nodes"] = max(1, int(options["work"] * _NODES_PER_WORK))
    method = LinearMethod(options["method"])
    if method is not LinearMethod.AUTO:
        if method is LinearMethod.HIPO:
            _load_hipo()
        values["mip_lp_solver" if job.has_integers else "solver"] = _METHODS[method]
        values["run_crossover"] = "on" if options["crossover"] else "off"
    for name, value in values.items():
        if solver.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            return f"this build of HiGHS has no {name} {value}"
    return None


def _load_hipo() -> None:
    """Load the package that brings HiPO, which adds itself to HiGHS."""
    try:
        import_module("highspy_extras")
    except ImportError:
        raise ImportError(
            "HiPO is not installed; install highspy-extras or use another method"
        ) from None


def _pass_model(solver: Any, highspy: Any, job: SolverJob) -> None:
    a = job.arrays
    infinity = highspy.kHighsInf
    status = solver.passModel(
        job.num_columns,
        job.num_rows,
        len(a["data"]),
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        float(job.options["offset"]),
        a["cost"],
        np.clip(a["lower"], -infinity, infinity),
        np.clip(a["upper"], -infinity, infinity),
        np.clip(a["row_lower"], -infinity, infinity),
        np.clip(a["row_upper"], -infinity, infinity),
        a["indptr"],
        a["indices"],
        a["data"],
        a["integer"].astype(np.int32),
    )
    if status == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refuses the model")


def _follow(solver: Any, highspy: Any, job: SolverJob) -> None:
    """Stream solutions and bounds, and stop when asked to."""
    kinds = highspy.cb.HighsCallbackType
    last = {"seconds": 0.0, "bound": -np.inf}

    def on_event(kind: Any, _text: str, out: Any, reply: Any, _data: Any) -> None:
        if reply is not None and job.stop.is_set():
            reply.user_interrupt = True
        if kind == kinds.kCallbackMipImprovingSolution:
            values = np.array(out.mip_solution, dtype=np.float64)
            job.report(out.objective_function_value, _finite(out.mip_dual_bound), values)
        elif kind == kinds.kCallbackMipInterrupt:
            bound, now = out.mip_dual_bound, out.running_time
            if bound > last["bound"] and now - last["seconds"] > _REPORT_SECONDS:
                last.update(seconds=now, bound=bound)
                job.report(_finite(out.mip_primal_bound), _finite(bound))

    solver.setCallback(on_event, None)
    for kind in (
        kinds.kCallbackMipImprovingSolution,
        kinds.kCallbackMipInterrupt,
        kinds.kCallbackSimplexInterrupt,
        kinds.kCallbackIpmInterrupt,
    ):
        solver.startCallback(kind)


def _finish(solver: Any, highspy: Any, job: SolverJob) -> None:
    model_status = solver.getModelStatus()
    status = _STATUS.get(model_status.name, "error")
    info = solver.getInfo()
    solution = solver.getSolution()
    found = info.primal_solution_status == highspy.kSolutionStatusFeasible
    values = np.array(solution.col_value, dtype=np.float64) if found else None
    if job.has_integers:
        bound = _finite(info.mip_dual_bound)
    else:
        bound = info.objective_function_value if status == "optimal" else None
    if values is None and status in ("optimal", "feasible"):
        # Interior-point methods without crossover may miss the tolerances a little.
        values = np.array(solution.col_value, dtype=np.float64) if solution.value_valid else None
    priced = not job.has_integers and solution.dual_valid
    job.finish(
        status,
        objective=info.objective_function_value,
        bound=bound,
        values=values,
        duals=np.array(solution.row_dual, dtype=np.float64) if priced else None,
        message="" if status != "error" else solver.modelStatusToString(model_status),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) and abs(value) < 1e30 else None
