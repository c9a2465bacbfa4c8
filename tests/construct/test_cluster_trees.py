"""Cluster trees: every cluster is entered once by a piece, by relays that take turns."""

from collections import Counter
from operator import itemgetter

import numpy as np
import pytest
from tests.construct.small import verified

from teccl.construct.cluster_trees import (
    _layings,
    _matched_plans,
    _Relays,
    cluster_tree_plans,
)
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.plan import Plan
from teccl.construct.route_first import listed_plans
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Topology


def plans_on(preset: str, collective: str, *, chunks: int = 1) -> tuple[Instance, list[Plan]]:
    """Return an instance and its plans along cluster trees."""
    demand = Demand.collective(collective, size="1MB")
    problem = Problem(topology=Topology.parse(preset), demand=demand, num_chunks=chunks)
    instance = Instance.build(problem)
    return instance, list(cluster_tree_plans(instance, Goal(allowance=10**7)))


def crossings(instance: Instance, plan: Plan) -> Counter[int]:
    """Return how many transfers of each chunk lead through several switches."""
    hops = np.diff(instance.routes.link_start)[plan.rows[:, 1]]
    return Counter(plan.rows[hops > 2, 0].tolist())


@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "broadcast", "reduce"])
def test_plans_are_right(collective: str) -> None:
    """Whatever the collective, what comes out verifies."""
    instance, plans = plans_on("fat-tree:k=4", collective, chunks=2)
    assert plans
    for plan in plans:
        verified(instance, plan)


def test_every_other_pod_is_entered_once() -> None:
    """In a fat tree of four pods each chunk enters three of them, and a second edge in each."""
    instance, plans = plans_on("fat-tree:k=4", "allgather")
    assert set(crossings(instance, plans[0]).values()) == {3 + 4}


def test_a_single_root_hands_its_pieces_over() -> None:
    """Of a Broadcast in fifteen pieces the root sends each once, to all others in turns."""
    instance, plans = plans_on("fat-tree:k=4", "broadcast", chunks=15)
    routes, gpus = instance.routes, instance.problem.topology.gpus.tolist()
    taken = plans[0].rows[:, 1]
    first = taken[routes.src[taken] == gpus[0]]
    assert sorted(routes.dst[first].tolist()) == gpus[1:]


def test_relays_are_those_whose_leaf_has_passed_on_the_least() -> None:
    """GPU 1 shares the root's leaf, which all pieces leave: it passes nothing on unless it must."""
    relays = _Relays([[0, 0, 1, 1, 2, 2]], balances=True)
    relays.leave(0, [2, 2, 4])
    heads = [relays.take(0, [1, 2, 3, 4, 5], turn) for turn in range(5)]
    assert heads == [2, 2, 3, 4, 5]
    relays.leave(2, [4] * 9)
    assert relays.take(0, [2, 3], 0) == 3
    assert relays.take(0, [1], 0) == 1


def test_copies_behind_one_switch_are_one_message_where_messages_cost() -> None:
    """Two chassis: each chunk is sent in its own one, to the other one, and there again."""
    instance, plans = plans_on("dgx-b200:chassis=2,rates=effective", "allgather")
    assert Counter(plans[-1].rows[:, 0].tolist()) == dict.fromkeys(range(16), 15)
    assert len(np.unique(plans[-1].rows[:, 3])) == 16 * 3
    verified(instance, plans[-1])


def test_all_planes_are_used_where_messages_cost() -> None:
    """Each of two chunks of a GPU crosses to its like in the other chassis on its own plane.

    The last is there after 3.989 us, as the first; on one plane it would be there at 5.633 us.
    """
    instance, plans = plans_on("dgx-b300:chassis=2,planes=2,rates=effective", "allgather", chunks=2)
    assert min(plan.finish for plan in plans) < 6_600_000
    for plan in plans:
        verified(instance, plan)


def test_relays_take_turns() -> None:
    """Of a ReduceScatter no GPU sends more than another."""
    instance, plans = plans_on("fat-tree:k=4", "reducescatter", chunks=2)
    sent = Counter(instance.routes.src[plans[0].rows[:, 1]].tolist())
    assert len(set(sent.values())) == 1


def test_nothing_where_gpus_have_no_route() -> None:
    """On a grid of direct links one GPU does not reach all others."""
    assert plans_on("mesh:dims=3x3", "allgather")[1] == []


def test_rounds_keep_full_ports_busier_than_lists_do() -> None:
    """Trees of a Reduce end sooner in the order in which rounds match their ports."""
    demand = Demand.collective("reduce", size="16MB")
    topology = Topology.parse("two-tier:leaves=6,gpus=3,spines=1,oversubscription=2")
    instance = Instance.build(Problem(topology=topology, demand=demand, num_chunks=128))
    goal = Goal(allowance=10**9)
    _, laid = min(_layings(instance, goal), key=itemgetter(0))
    (matched,) = _matched_plans(instance, laid, goal)
    listed = min(plan.finish for plan in listed_plans(instance, laid, goal))
    assert matched.finish < listed
    assert verified(instance, matched).finish_ps <= matched.finish


@pytest.mark.parametrize("preset", ["ring:gpus=4", "ndv2:chassis=2"])
def test_rounds_are_for_ports_that_take_equally_long(preset: str) -> None:
    """Links between GPUs have no ports to match, and slow cards no rounds with fast ones."""
    demand = Demand.collective("broadcast", size="1MB")
    instance = Instance.build(Problem(topology=Topology.parse(preset), demand=demand, num_chunks=4))
    goal = Goal(allowance=10**9)
    for _, laid in _layings(instance, goal):
        assert not list(_matched_plans(instance, laid, goal))
