"""Trimming: what comes late is handed on by neighbours that have it."""

from dataclasses import replace

import pytest
from tests.construct.small import make_instance, verified
from tests.construct.test_trains import GOAL, fabric

from teccl.construct.exchanged import exchanges, plan_delivered
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.trains import train_plans
from teccl.construct.trimming import may_be_trimmed, trimmed, trimmed_trains


def straight(instance: Instance):
    """The first plan in which everything goes straight to where it is wanted, place by place."""
    exchange = exchanges(instance.problem)[0]
    problem = replace(instance.problem, topology=exchange.topology, demand=exchange.demand)
    apart = Instance.build(problem)
    plan = next(iter(train_plans(apart, Goal(**GOAL), across=(False,))))
    return plan_delivered(instance, apart, plan)


@pytest.mark.parametrize("collective", ["reducescatter", "allgather"])
@pytest.mark.parametrize("shape", [(4, 4, 2, "40GB/s"), (2, 4, 1, "80GB/s")])
def test_trimmed_trains_become_schedules(collective, shape):
    """Plans pass verification, and end before the trains that they are made of."""
    instance = make_instance(fabric(*shape), collective, size="12MB", num_chunks=4)
    assert may_be_trimmed(instance)
    found = list(trimmed_trains(instance, Goal(**GOAL)))
    assert [plan.finish for plan in found] == sorted((p.finish for p in found), reverse=True)
    for plan in found:
        assert verified(instance, plan).finish_ps <= plan.finish
    assert found[-1].finish < straight(instance).finish


def test_a_narrow_uplink_is_crossed_less_often():
    """Sums are made behind a leaf whose uplinks carry a quarter, so that few of them cross."""
    instance = make_instance(fabric(2, 4, 1, "40GB/s"), "reducescatter", size="12MB", num_chunks=4)
    before = straight(instance)
    after = trimmed(instance, before, Goal(**GOAL))
    # 4 contributions to 4 sums of 1.5 MB each cross at 40 GB/s: 600 us, or 150 us once added up.
    assert before.finish > 600_000_000
    assert after.finish < 400_000_000
    assert verified(instance, after).finish_ps <= after.finish


def test_a_plan_at_its_bound_is_left_alone():
    """Nothing is taken out of a plan that meets its target."""
    instance = make_instance(fabric(2, 4, 1, "40GB/s"), "allgather", size="12MB", num_chunks=4)
    plan = straight(instance)
    assert trimmed(instance, plan, Goal(target=plan.finish, allowance=10**9)) is plan
