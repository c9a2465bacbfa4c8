"""Asking the general model, and turning its answers into verified schedules."""

from fractions import Fraction

from teccl import solvers
from teccl.models.milp.general import MilpGoal, build_milp
from teccl.models.milp.grid_passages import LoopError, decode
from teccl.models.milp.physical import realise
from teccl.models.turning import TurnedTask
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.solvers import SolverOptions, SolverStatus
from teccl.timegrid import TimeGrid
from teccl.verification import verify

MICROSECOND = Fraction(1, 10**6)
# Seconds for one small model, of which a busy machine may give it a small share.
MAX_SECONDS = 600


def schedule_within(
    problem: Problem,
    horizon: int,
    *,
    epoch: Fraction = MICROSECOND,
    solver: str = "highs",
    goal: MilpGoal = MilpGoal.NONE,
) -> tuple[Schedule, int] | None:
    """A verified schedule of at most some epochs and its length, None if there is none."""
    task = TurnedTask.of(problem, TimeGrid(problem=problem, epoch=epoch), method="milp")
    whole_ways = False
    while True:
        milp = build_milp(
            task.inner,
            task.inner_grid,
            horizon,
            goal=goal,
            splits=task.splits,
            whole_ways=whole_ways,
            backwards=task.is_turned,
        )
        options = SolverOptions(time_limit=MAX_SECONDS, first_only=goal is MilpGoal.NONE)
        solution = solvers.solve(milp.model, solver, options)
        if solution.status is SolverStatus.INFEASIBLE:
            return None
        assert solution.has_values, solution
        try:
            passages, epochs = decode(milp, milp.chosen(solution.values))
        except LoopError:
            whole_ways = True
            continue
        schedule = realise(task, passages, epochs)
        assert schedule is not None
        assert not verify(schedule)
        assert epochs <= horizon
        return schedule, epochs


def is_least(problem: Problem, epochs: int, **options) -> bool:
    """Whether a number of epochs is enough and one fewer is not."""
    enough = schedule_within(problem, epochs, **options) is not None
    return enough and (epochs == 1 or schedule_within(problem, epochs - 1, **options) is None)
