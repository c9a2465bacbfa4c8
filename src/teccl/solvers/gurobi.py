"""Gurobi, for those who have it; runs inside `child`.

==================================  =====================================
Gurobi                              here
==================================  =====================================
OPTIMAL                             optimal
INFEASIBLE, INF_OR_UNBD             infeasible
UNBOUNDED                           unbounded
TIME_LIMIT, NODE_LIMIT, WORK_LIMIT  time_limit
INTERRUPTED                         interrupted
SOLUTION_LIMIT, SUBOPTIMAL          feasible
all else                            error
==================================  =====================================
"""

import math
from typing import Any

import numpy as np

from teccl.solvers.base import LinearMethod
from teccl.solvers.child import SolverJob

_STATUS = {
    "OPTIMAL": "optimal",
    "INFEASIBLE": "infeasible",
    "INF_OR_UNBD": "infeasible",
    "UNBOUNDED": "unbounded",
    "TIME_LIMIT": "time_limit",
    "NODE_LIMIT": "time_limit",
    "WORK_LIMIT": "time_limit",
    "INTERRUPTED": "interrupted",
    "SOLUTION_LIMIT": "feasible",
    "SUBOPTIMAL": "feasible",
}
# Gurobi's numbers of its algorithms; it has no HiPO.
_METHODS = {LinearMethod.SIMPLEX: 1, LinearMethod.IPM: 2, LinearMethod.PDLP: 6}


def run(job: SolverJob) -> None:
    """Solve a job and report its end."""
    try:
        import gurobipy
    except ImportError:
        raise ImportError(
            "gurobi is not installed; install teccl[gurobi] or use --solver highs or cpsat"
        ) from None
    try:
        _solve(gurobipy, job)
    except gurobipy.GurobiError as reason:
        job.finish("unavailable", message=f"gurobi: {reason}; use --solver highs or cpsat")


def _solve(gurobipy: Any, job: SolverJob) -> None:
    from scipy.sparse import csc_array

    a = job.arrays
    environment = gurobipy.Env(params={"OutputFlag": 0})
    model = gurobipy.Model(env=environment)
    kinds = np.where(a["integer"], "I", "C")
    x = model.addMVar(job.num_columns, lb=a["lower"], ub=a["upper"], obj=a["cost"], vtype=kinds)
    model.ObjCon = float(job.options["offset"])
    matrix = csc_array(
        (a["data"], a["indices"], a["indptr"]), shape=(job.num_rows, job.num_columns)
    ).tocsr()
    for sense, side in (("<", "row_upper"), (">", "row_lower")):
        rows = np.flatnonzero(np.isfinite(a[side]))
        if len(rows):
            model.addMConstr(matrix[rows], x, np.full(len(rows), sense), a[side][rows])
    if "start" in a:
        x.Start = np.where(np.isnan(a["start"]), gurobipy.GRB.UNDEFINED, a["start"])
    _configure(model, job)
    job.on_stop = model.terminate
    if job.stop.is_set():
        job.finish("interrupted")
        return
    model.optimize(_callback(gurobipy, job))
    _finish(gurobipy, job, model)


def _configure(model: Any, job: SolverJob) -> None:
    options = job.options
    model.Params.Seed = options["seed"] % 2_000_000_000
    model.Params.MIPGap = options["gap"]
    if options["time_limit"] is not None:
        model.Params.TimeLimit = options["time_limit"]
    if options["threads"] is not None:
        model.Params.Threads = options["threads"]
    if options["first_only"]:
        model.Params.SolutionLimit = 1
    if options["work"] is not None:
        model.Params.WorkLimit = options["work"]
    method = LinearMethod(options["method"])
    if method in _METHODS:
        model.Params.Method = _METHODS[method]
        model.Params.Crossover = -1 if options["crossover"] else 0


def _callback(gurobipy: Any, job: SolverJob) -> Any:
    code = gurobipy.GRB.Callback

    def on_event(model: Any, where: int) -> None:
        if where == code.MIPSOL:
            values = np.array(model.cbGetSolution(model.getVars()), dtype=np.float64)
            bound = model.cbGet(code.MIPSOL_OBJBND)
            # Gurobi says 1e100 for infinity.
            known = bound if abs(bound) < gurobipy.GRB.INFINITY else None
            job.report(model.cbGet(code.MIPSOL_OBJ), known, values)

    return on_event


def _finish(gurobipy: Any, job: SolverJob, model: Any) -> None:
    names = {getattr(gurobipy.GRB, name): name for name in _STATUS}
    name = names.get(model.Status)
    status = "error" if name is None else _STATUS[name]
    found = model.SolCount > 0
    bound = model.ObjBound if job.has_integers else (model.ObjVal if found else None)
    job.finish(
        status,
        objective=model.ObjVal if found else None,
        bound=bound if bound is not None and math.isfinite(bound) else None,
        values=np.array(model.X, dtype=np.float64) if found else None,
        message="" if name else f"gurobi ended with status {model.Status}",
    )
