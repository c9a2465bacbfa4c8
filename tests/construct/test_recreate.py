"""Ruin and recreate: never later than what it began with, and correct."""

import pytest
from tests.construct.networks import random_problem
from tests.construct.small import best_plan, make_instance, plans, verified
from tests.construct.test_insertion import last_plan

from teccl.construct import recreate as recreating
from teccl.construct.insertion import refusal
from teccl.construct.instance import Instance
from teccl.construct.recreate import recreate
from teccl.construct.symmetry import find_group, symmetric_plans
from teccl.replay import simulate
from teccl.timegrid import TimeGrid


def check_random(seed: int, *, on_grid: bool = False) -> bool:
    """Improve the plan of another construction; whether it became earlier."""
    problem = random_problem(seed)
    grid = TimeGrid.build(problem) if on_grid and len(problem.chunks.sizes) == 1 else None
    instance = Instance.build(problem, grid)
    limited_sums = problem.has_reductions and problem.buffer is not None
    if refusal(instance) is not None or limited_sums or len(problem.chunks) > 200:
        return False
    known = best_plan(instance, level="quick")
    found = recreate(instance, known, target=0, seed=seed, budget=10**6)
    if grid is None:
        before = simulate(verified(instance, known)).finish_ps
        assert simulate(verified(instance, found)).finish_ps <= before
    else:
        verified(instance, found)
        assert found.finish <= known.finish
    return found is not known


@pytest.mark.parametrize("on_grid", [False, True])
def test_random_plans_become_no_worse(on_grid: bool) -> None:
    """Plans of all kinds on random networks come back verified and no later; some are earlier."""
    assert sum(check_random(seed, on_grid=on_grid) for seed in range(30)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 300))
def test_many_random_plans_become_no_worse(seed: int) -> None:
    """More of the same."""
    check_random(seed, on_grid=seed % 3 == 0)


def test_the_same_seed_gives_the_same_plan() -> None:
    """Two runs with one seed are equal row by row."""
    made = make_instance("dgx1", "alltoall", "64KB")
    plan = last_plan(made)
    one, two = (recreate(made, plan, target=0, seed=3, budget=10**6) for _ in range(2))
    assert one.rows.tolist() == two.rows.tolist()


def test_a_bad_order_is_mended() -> None:
    """An exchange on a ring of four that takes 16 us comes down to the 11 us of two hops."""
    made = make_instance("ring:gpus=4", "alltoall", "1MB")
    plan = last_plan(made, budget=1)
    assert plan.finish > 11_000_000
    assert recreate(made, plan, target=0, seed=0, budget=10**6).finish == 11_000_000


def test_a_plan_that_meets_its_bound_stays() -> None:
    """With nothing to gain the plan itself comes back."""
    made = make_instance("ring:gpus=4", "alltoall", "1MB")
    plan = last_plan(made)
    assert recreate(made, plan, target=plan.finish, seed=0, budget=10**6) is plan


def test_sums_are_improved_backwards() -> None:
    """A ReduceScatter whose transfers wait for no reason is made as short as insertion makes it."""
    made = make_instance("dgx1", "reducescatter", "1MB")
    plan = last_plan(made)
    slow = last_plan(made, budget=1)
    found = recreate(made, slow, target=0, seed=0, budget=10**6)
    assert found.finish <= plan.finish
    assert found.reduce is not None
    verified(made, found)


def test_symmetric_plans_are_improved_in_the_quotient() -> None:
    """What a group repeats it repeats afterwards too, and no later."""
    made = make_instance("torus:dims=3x3", "allgather", "900KB", num_chunks=2)
    group = find_group(made.problem.topology)
    assert group is not None
    plan = next(symmetric_plans(made, group, seed=0))
    found = recreate(made, plan, target=0, seed=0, budget=10**6)
    assert found.finish <= plan.finish
    assert len(found.shifts) == len(plan.shifts)
    assert simulate(verified(made, found)).finish_ps <= found.finish


def test_symmetric_plans_keep_to_their_buffers() -> None:
    """What waits in a GPU comes from all sources, so that it is not improved in the quotient."""
    made = make_instance("mesh:dims=2x3", "alltoall", "1MB", num_chunks=2, buffer=2)
    (plan, *_) = [each for each in plans(made, target=0, level="normal") if each.shifts]
    found = recreate(made, plan, target=0, seed=0, budget=10**6)
    assert found.finish < plan.finish
    verified(made, found)


def test_slices_of_the_work_are_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking again and again whether to go on changes nothing but when it ends."""
    made = make_instance("dgx1", "alltoall", "64KB")
    plan = last_plan(made)
    whole = recreate(made, plan, target=0, seed=3, budget=10**6)
    monkeypatch.setattr(recreating, "SLICE", 10**5)
    asked: list[int] = []
    parts = recreate(
        made, plan, target=0, seed=3, budget=10**6, is_over=lambda: bool(asked.append(1))
    )
    assert whole.rows.tolist() == parts.rows.tolist()
    assert len(asked) >= 10
    assert recreate(made, plan, target=0, seed=3, budget=10**6, is_over=lambda: True) is plan


def test_branches_keep_the_links_they_share() -> None:
    """What is left of a copying passage through several switches is still one."""
    instance = make_instance("dragonfly:groups=5,routers=2,gpus=2", "allgather", "64KB")
    start = last_plan(instance, budget=1)
    plan = recreate(instance, start, target=0, seed=0, budget=10**7)
    verified(instance, plan)
    assert plan.finish < start.finish
