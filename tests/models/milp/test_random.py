"""The general model against an oracle written from the rules alone, on random small problems."""

from dataclasses import replace

import numpy as np
import pytest
from tests.bounds.clock import Clock
from tests.bounds.instances import random_epoch, random_problem
from tests.bounds.oracle import Oracle, OutOfTimeError
from tests.construct.small import plans
from tests.models.exactly import schedule_within

from teccl import solvers
from teccl.construct.instance import Instance
from teccl.errors import MethodError
from teccl.models.milp.general import build_milp
from teccl.models.turning import TurnedTask
from teccl.timegrid import TimeGrid

# Problems that the model serves, so many that the slow test judges 500 of them.
QUICK = [0, 2, 7, 25, 94]
SLOW = range(680)


def least_epochs(seed: int) -> int | None:
    """The oracle's answer, None where it gives none or the model does not serve the problem."""
    problem = random_problem(seed)
    epoch = random_epoch(seed, problem)
    try:
        TurnedTask.of(problem, TimeGrid(problem=problem, epoch=epoch), method="milp")
        return Oracle(Clock(problem, epoch), seconds=30).optimum(limit=60)
    except (MethodError, OutOfTimeError):
        return None


def agree(seed: int) -> bool:
    """Judge one problem: both back ends need exactly the oracle's epochs, others no fewer."""
    best = least_epochs(seed)
    if not best:
        return False
    problem = random_problem(seed)
    epoch = random_epoch(seed, problem)
    for solver in ("highs", "cpsat"):
        assert schedule_within(problem, best, epoch=epoch, solver=solver) is not None
        if best > 1:
            assert schedule_within(problem, best - 1, epoch=epoch, solver=solver) is None
    grid = TimeGrid(problem=problem, epoch=epoch)
    task = TurnedTask.of(problem, grid, method="milp")
    model = build_milp(
        task.inner, task.inner_grid, best, splits=task.splits, backwards=task.is_turned
    ).model
    relaxed = replace(model, integer=np.zeros(model.num_columns, dtype=bool))
    assert solvers.solve(relaxed).has_values
    instance = Instance.build(problem, grid)
    constructed = [plan.finish for plan in plans(instance, target=0, level="quick")]
    assert all(finish >= best for finish in constructed)
    return True


@pytest.mark.parametrize("seed", QUICK)
def test_sample_agrees_with_the_oracle(seed):
    """HiGHS = CP-SAT = exhaustive, the relaxation no longer, the construction no shorter."""
    assert agree(seed)


@pytest.mark.slow
def test_five_hundred_problems_agree_with_the_oracle():
    """The same on as many problems as the quick suite has no time for."""
    judged = sum(agree(seed) for seed in SLOW)
    assert judged >= 500


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (5, 11))]
)
def test_less_room_is_never_faster(seed):
    """Fewer chunks may wait, more epochs are needed, for both back ends alike."""
    problem = random_problem(seed)
    if problem.has_reductions or not problem.copy:
        problem = random_problem(seed + 2)
    epoch = random_epoch(seed, problem)
    needed = []
    for buffer in (None, 1, 0):
        limited = replace(problem, buffer=buffer)
        found = []
        for solver in ("highs", "cpsat"):
            begin = needed[-1] if needed else 1
            found.append(
                next(
                    k
                    for k in range(begin, 60)
                    if schedule_within(limited, k, epoch=epoch, solver=solver) is not None
                )
            )
        assert found[0] == found[1]
        needed.append(found[0])
    assert needed == sorted(needed)
