"""Paths by a flow over time: whatever one GPU sends or receives, in whole chunks."""

import random

import pytest
from tests.construct.networks import random_network
from tests.construct.small import make_instance, verified
from tests.sampling import counts

from teccl.construct.goal import Goal
from teccl.construct.insertion import inserted_plans
from teccl.construct.instance import Instance
from teccl.construct.transshipped import flow_plans, has_one_end
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.reachability import find_unreachable

# Two ways from the root to all others: one is quick and narrow, the other slow and wide.
TWO_WAYS = {
    "nodes": [{"name": name} for name in ("root", "quick", "wide", "end", "last")],
    "links": [
        {"src": "root", "dst": "quick", "bandwidth": "10GB/s", "alpha": "1us"},
        {"src": "root", "dst": "wide", "bandwidth": "40GB/s", "alpha": "3us"},
        {"src": "quick", "dst": "end", "bandwidth": "10GB/s", "alpha": "1us"},
        {"src": "wide", "dst": "end", "bandwidth": "40GB/s", "alpha": "1us"},
        {"src": "quick", "dst": "last", "bandwidth": "10GB/s", "alpha": "1us"},
        {"src": "quick", "dst": "root", "bandwidth": "10GB/s", "alpha": "1us"},
        {"src": "last", "dst": "quick", "bandwidth": "10GB/s", "alpha": "1us"},
        {"src": "end", "dst": "wide", "bandwidth": "10GB/s", "alpha": "1us"},
        {"src": "wide", "dst": "root", "bandwidth": "10GB/s", "alpha": "1us"},
    ],
}


def random_star(seed: int) -> Instance | None:
    """A Scatter or a Gather of a few chunks on a random network; None where it cannot be."""
    rng = random.Random(f"star {seed}")
    network = random_network(rng)
    collective, chunks = rng.choice(["scatter", "gather"]), rng.choice([1, 2, 5])
    demand = Demand.collective(collective, size="1MB")
    problem = Problem(topology=network, demand=demand, num_chunks=chunks)
    if find_unreachable(problem) is not None or network.has_profiles:
        return None
    return Instance.build(problem)


@pytest.mark.parametrize("count", counts(16, 40))
def test_flows_become_schedules(count):
    """Every plan along a flow passes verification, on networks of every kind."""
    made = 0
    for seed in range(count):
        instance = random_star(seed)
        if instance is None:
            continue
        assert has_one_end(instance)
        for plan in flow_plans(instance, Goal(target=1, allowance=10**9)):
            verified(instance, plan)
            made += 1
    assert made > count / 2


def test_links_that_only_others_can_use_are_left_to_them():
    """What can go the wide way does, since one GPU has only the narrow one."""
    instance = make_instance(TWO_WAYS, "scatter", size="5MB", num_chunks=8)
    goal = Goal(target=1, allowance=10**9)
    flow = min(plan.finish for plan in flow_plans(instance, goal))
    # 2 MB for two GPUs enter the narrow link; the last chunk has another hop behind it.
    assert flow <= 200_000_000 + 2_000_000 + 12_500_000
    assert flow <= min(plan.finish for plan in inserted_plans(instance, goal))


@pytest.mark.parametrize("collective", ["alltoall", "allgather", "reduce", "scattergather"])
def test_several_ends_are_not_served(collective):
    """A flow cannot tell whose chunks are whose."""
    assert not has_one_end(make_instance("ring:gpus=4", collective))


def test_direct_links_side_by_side_are_all_used():
    """Two links between two GPUs take half of the chunks each."""
    wire = {"src": "a", "dst": "b", "bandwidth": "10GB/s", "alpha": "0us"}
    back = {"src": "b", "dst": "a", "bandwidth": "10GB/s", "alpha": "0us"}
    network = {"nodes": [{"name": "a"}, {"name": "b"}], "links": [wire, wire, back]}
    instance = make_instance(network, "scatter", size="2MB", num_chunks=8)
    best = min(plan.finish for plan in flow_plans(instance, Goal(target=1, allowance=10**9)))
    assert best == 50_000_000


def test_a_single_chunk_gets_a_longer_horizon():
    """Where nothing arrives in time, the next horizon is longer, for one chunk too."""
    demand = Demand.collective("scatter", size="9KB", ranks=[0, 2])
    instance = make_instance("line:gpus=3,alpha=1us,bandwidth=1GB/s", demand)
    plans = list(flow_plans(instance, Goal(target=1, allowance=10**9)))
    assert len(instance.problem.chunks) == 1
    assert len(plans) == 1
