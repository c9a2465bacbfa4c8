"""Plans by groups: every chunk enters every group once, where there is room for it."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.construct.small import make_instance
from tests.sampling import thinned

import teccl
from teccl import Demand, Problem, Topology
from teccl.construct import multicasts
from teccl.construct.hierarchy import hierarchical_plan
from teccl.construct.instance import Instance
from teccl.verification import verify


def group_of(made: Instance) -> np.ndarray:
    """Return a number for the group of every node."""
    names = [str(node.group) for node in made.problem.topology.nodes]
    return np.unique(names, return_inverse=True)[1]


@pytest.mark.parametrize(
    "spec", ["internal1:chassis=3", "internal2:chassis=4", "dgx-h100:chassis=3", "mi300x:chassis=2"]
)
def test_chunks_enter_groups_once_and_reach_all(spec):
    """Each chunk crosses into each other group once and is brought to each GPU once."""
    made = make_instance(spec, "allgather", num_chunks=2)
    plan = hierarchical_plan(made)
    assert plan is not None
    chunk, route = plan.rows[:, 0], plan.rows[:, 1]
    group = group_of(made)
    src, dst = group[made.routes.src[route]], group[made.routes.dst[route]]
    entries = np.stack([chunk, dst])[:, src != dst]
    groups = len(np.unique(group[made.problem.topology.gpus]))
    assert entries.shape[1] == len(np.unique(entries, axis=1).T)
    assert entries.shape[1] == len(made.problem.chunks) * (groups - 1)
    received = np.stack([chunk, made.routes.dst[route]])
    num_gpus = made.problem.topology.num_gpus
    assert len(plan.rows) == len(np.unique(received, axis=1).T)
    assert len(plan.rows) == len(made.problem.chunks) * (num_gpus - 1)


def test_crossings_are_shared_where_all_are_alike():
    """On a healthy cluster every GPU sends what is its own across, so that all send as much."""
    made = make_instance("internal1:chassis=3", "allgather")
    plan = hierarchical_plan(made)
    assert plan is not None
    src, dst = made.routes.src[plan.rows[:, 1]], made.routes.dst[plan.rows[:, 1]]
    group, gpus = group_of(made), made.problem.topology.gpus
    place = {int(gpu): rank % 4 for rank, gpu in enumerate(gpus)}
    crossing = group[src] != group[dst]
    first = np.array([place[int(node)] for node in src[crossing]])
    counts = np.bincount(first)
    assert np.array_equal(counts, np.full(4, 6))


def test_a_slow_uplink_carries_less():
    """Of the chunks that enter a chassis a slow uplink takes a smaller share."""
    topology = Topology.parse("internal2:chassis=8").degraded({"c0/gpu0:switch": Fraction(1, 2)})
    problem = Problem(topology=topology, demand=Demand.collective("allgather", size="1MB"))
    made = Instance.build(problem)
    plan = hierarchical_plan(made)
    assert plan is not None
    src, dst = made.routes.src[plan.rows[:, 1]], made.routes.dst[plan.rows[:, 1]]
    group = group_of(made)
    entered = dst[(group[src] != group[dst]) & (group[dst] == group[topology.gpus[0]])]
    slow, fast = ((entered == gpu).sum() for gpu in topology.gpus[:2])
    assert slow + fast == 14
    assert slow < fast


@pytest.mark.parametrize(
    ("spec", "collective"),
    [
        ("torus:dims=3x3", "allgather"),
        ("ndv2:chassis=2", "alltoall"),
        ("dgx1", "allreduce"),
        ("internal2:chassis=4", "broadcast"),
    ],
)
def test_other_problems_are_left_alone(spec, collective):
    """Without groups, or chunks of each GPU that all want, there is nothing to plan by groups."""
    assert hierarchical_plan(make_instance(spec, collective)) is None


@pytest.mark.parametrize(
    ("grid", "collective"),
    thinned(product([False, True], ["allgather", "reducescatter", "allreduce"]), 2),
)
def test_schedules_by_groups_are_right(collective, grid, monkeypatch):
    """What is made of groups verifies, and no greedy run is needed beside it."""
    monkeypatch.setattr(multicasts, "_greedy", lambda *given: iter(()))
    result = teccl.solve(
        "dgx-h100:chassis=3",
        collective,
        size="24MB",
        chunks=1,
        method="construct",
        effort="quick",
        grid=grid,
        degrade=["c0/gpu0:leaf0=50%"],
    )
    assert result.schedule is not None
    assert not verify(result.schedule)
