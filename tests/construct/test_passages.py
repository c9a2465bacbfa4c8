"""Passages: copies that a GPU sends into one switch are one transfer."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.construct.small import make_instance, make_problem, verified

from teccl.bounds import summarise
from teccl.construct.instance import Instance
from teccl.construct.jobs import justify_serially
from teccl.construct.multicast import Tables
from teccl.construct.passages import may_join
from teccl.construct.plan import Plan, with_starts
from teccl.construct.repeated import repeated_plans
from teccl.construct.tasks import finish_time, precedence, tasks_of_plan
from teccl.construct.trees import laid_plan
from teccl.problem import SwitchMode, Transit


def laid(made: Instance, **options: object) -> Plan:
    """Return trees with joined passages."""
    target = float(max(1, summarise(made.problem).physical_ps))
    plan = laid_plan(made, Tables.build(made), target=target, join=True, **options)
    assert plan is not None
    return plan


def placed(made: Instance, plan: Plan) -> Plan:
    """Return a plan with times, placed in any order."""
    tasks = tasks_of_plan(made, plan)
    order = precedence(made, tasks)
    key = np.random.default_rng(0).permutation(len(tasks))
    start = justify_serially(made, tasks, key=key, rounds=2, order=order)
    return with_starts(plan, start, finish_time(tasks, start))


def test_a_broadcast_enters_the_switch_once() -> None:
    """One passage serves all three receivers, and the sender's link is held once."""
    made = make_instance("star:gpus=4", "broadcast", "1MB")
    plan = laid(made)
    assert len(np.unique(plan.rows[:, 3])) == 1
    assert sorted(plan.rows[:, 4].tolist()) == [0, 1, 1]
    tasks = tasks_of_plan(made, plan)
    assert len(tasks) == 1
    assert len(tasks.hop_link) == 4


def test_contributions_stay_apart() -> None:
    """A plain switch adds nothing up, so every contribution is a transfer of its own."""
    made = make_instance("star:gpus=4", "reduce", "1MB")
    plan = laid(made)
    assert len(np.unique(plan.rows[:, 3])) == len(plan.rows) == 3
    assert not plan.rows[:, 4].any()


@pytest.mark.parametrize("mode", [SwitchMode.NO_COPY, SwitchMode.HYPER_EDGE])
def test_only_switches_that_copy_join(mode: SwitchMode) -> None:
    """Where a switch passes on one copy at a time there is nothing to join."""
    made = make_instance("star:gpus=4", "broadcast", "1MB", switch=mode)
    plan = laid(made)
    assert len(np.unique(plan.rows[:, 3])) == len(plan.rows)


@pytest.mark.parametrize("transit", Transit)
@pytest.mark.parametrize("collective", ["allgather", "allreduce", "broadcast"])
@pytest.mark.parametrize("spec", ["star:gpus=5", "dgx2", "dgx-h100:chassis=2", "fat-tree:k=4"])
def test_joined_trees_verify(spec: str, collective: str, transit: Transit) -> None:
    """Joined trees are correct schedules on fabrics of one switch and of several layers."""
    made = make_instance(spec, collective, "1MB", num_chunks=2, transit=transit)
    plan = laid(made)
    schedule = verified(made, placed(made, plan))
    links = int(np.diff(made.routes.link_start)[plan.rows[:, 1]].sum())
    assert (len(schedule) < links) == may_join(made)


def test_balanced_trees_are_not_much_longer_than_short_ones() -> None:
    """A stretch of one keeps the trees of later passes as short as the longest of the first."""
    made = make_instance("dgx-h100:chassis=4", "broadcast", "64MB", num_chunks=16)
    routes = made.routes

    def longest(plan: Plan) -> int:
        far = 0
        for chunk in np.unique(plan.rows[:, 0]).tolist():
            via = {int(routes.dst[r]): int(r) for r in plan.rows[plan.rows[:, 0] == chunk, 1]}
            for node in via:
                way, length = node, 0
                while way in via:
                    length += int(routes.length[via[way]])
                    way = int(routes.src[via[way]])
                far = max(far, length)
        return far

    short = longest(laid(made, passes=1))
    assert longest(laid(made, passes=12, stretch=1.0)) <= short
    assert longest(laid(made, passes=12)) > short


def test_rounding_leaves_no_gaps() -> None:
    """A port at half rate holds a chunk twice as long but for a picosecond, and all still fits.

    With gaps that fit nothing a good part of every other port would be lost.
    """
    problem = make_problem("dgx2", "allreduce", "100000007B", num_chunks=64)
    slow = problem.topology.degraded({"c0/gpu0:*": Fraction(1, 2)})
    made = Instance.build(replace(problem, topology=slow))
    full, half = np.unique(made.hold).tolist()
    assert half == 2 * full - 1
    bound = summarise(made.problem).physical_ps
    (plan,) = repeated_plans(made, target=bound)
    assert plan.finish <= 1.02 * bound
    verified(made, plan)
