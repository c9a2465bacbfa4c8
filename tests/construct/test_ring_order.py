"""Ring order: neighbours only, those of a leaf together, near the bound on fabrics."""

from fractions import Fraction

import numpy as np
import pytest

import teccl
from teccl.construct import route_first
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import TIME_PRICES
from teccl.construct.ring_order import cluster_ring_plans, widest_ring_plans
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Topology


def plans_on(preset, collective, *, chunks=2, size="1MB"):
    """Return the instance and its plans in ring order."""
    demand = Demand.collective(collective, size=size)
    problem = Problem(topology=Topology.parse(preset), demand=demand, num_chunks=chunks)
    instance = Instance.build(problem)
    return instance, list(cluster_ring_plans(instance, Goal()))


def test_everyone_sends_to_one_neighbour():
    """Each GPU of a fat tree has one receiver, and each receiver one sender."""
    instance, plans = plans_on("fat-tree:k=4", "allgather")
    routes = instance.routes
    for plan in plans:
        taken = plan.rows[:, 1]
        pairs = np.unique(np.stack([routes.src[taken], routes.dst[taken]]), axis=1)
        assert len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1] == 16
    assert plans


def test_neighbours_share_a_leaf():
    """A ring through a fat tree of k = 4 leaves each edge switch once, so half of its hops stay."""
    instance, plans = plans_on("fat-tree:k=4", "allgather")
    hops = np.diff(instance.routes.link_start)[plans[0].rows[:, 1]]
    within, across = (hops == 2).sum(), (hops > 2).sum()
    assert within == across


def test_nothing_where_neighbours_have_no_route():
    """On a grid of direct links the last GPU cannot reach the first."""
    assert plans_on("mesh:dims=3x3", "allgather")[1] == []


@pytest.mark.parametrize("effort", ["quick", pytest.param("normal", marks=pytest.mark.slow)])
def test_large_sums_on_a_fat_tree_come_near_their_bound(effort):
    """Balanced trees alone leave half of the time unused there."""
    result = teccl.solve("fat-tree:k=4", "reducescatter", size="256MB", effort=effort)
    assert result.physical_gap <= 0.05
    assert result.verified


def test_the_widest_ring_avoids_slow_links():
    """A ring whose hops are all fast is tried where the one through clusters has a slow hop."""
    topology = Topology.parse("fully-connected:gpus=4").degraded({"1:2": Fraction(1, 8)})
    problem = Problem(topology=topology, demand=Demand.collective("allgather", size="4MB"))
    instance = Instance.build(problem)
    firsts, widest = (
        min(plan.finish for plan in kind(instance, Goal()))
        for kind in (cluster_ring_plans, widest_ring_plans)
    )
    assert widest < firsts


def test_ways_that_come_again_are_not_scheduled_again(monkeypatch):
    """Along a ring there is one tree for each chunk, whatever time is worth."""
    scheduled = []
    known = route_first.listed_plans
    monkeypatch.setattr(
        route_first, "listed_plans", lambda *given: scheduled.append(1) or known(*given)
    )
    problem = Problem(
        topology=Topology.parse("dgx1"),
        demand=Demand.collective("allgather", size="1MB"),
        num_chunks=2,
    )
    plans = list(widest_ring_plans(Instance.build(problem), Goal(allowance=10**7)))
    assert plans
    assert len(scheduled) == 1 < len(TIME_PRICES)
