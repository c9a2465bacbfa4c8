"""Insertion on calendars: what it makes verifies, and is as good as can be where that is known."""

import pytest
from tests.construct.networks import random_problem
from tests.construct.small import verified

from teccl.construct.insertion import inserted_plans, refusal
from teccl.construct.instance import Instance
from teccl.construct.plan import Plan
from teccl.replay import simulate
from teccl.timegrid import TimeGrid


def last_plan(instance: Instance, *, target: int = 0, seed: int = 0, budget: int = 10**5) -> Plan:
    """Return the best of the plans that insertion makes."""
    *_, last = inserted_plans(instance, target=target, seed=seed, budget=budget)
    return last


def check_random(seed: int, *, on_grid: bool) -> bool:
    """Verify what insertion makes of a random problem; whether it serves that at all."""
    problem = random_problem(seed)
    grid = TimeGrid.build(problem) if on_grid and len(problem.chunks.sizes) == 1 else None
    instance = Instance.build(problem, grid)
    if refusal(instance) is not None:
        return False
    plan = last_plan(instance)
    schedule = verified(instance, plan)
    if grid is None:
        assert simulate(schedule).finish_ps <= plan.finish
    return True


@pytest.mark.parametrize("on_grid", [False, True])
def test_random_problems_verify(on_grid: bool) -> None:
    """Whatever the mode, sizes, shares and ready times, a plan verifies and ends when it says."""
    assert sum(check_random(seed, on_grid=on_grid) for seed in range(30)) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 400))
def test_many_random_problems_verify(seed: int) -> None:
    """More of the same."""
    check_random(seed, on_grid=seed % 2 == 0)
