"""Insertion on calendars: what it makes verifies, and is as good as can be where that is known."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.construct.networks import random_problem
from tests.construct.small import make_instance, plans, verified
from tests.construct.test_ways import fabric

from teccl.construct.goal import Goal
from teccl.construct.insertion import Workshop, estimated_work, inserted_plans, refusal
from teccl.construct.instance import Instance
from teccl.construct.labels import empty_rows
from teccl.construct.plan import Plan
from teccl.construct.realise import realise
from teccl.demand import Collective, Demand, Tenant
from teccl.demand.demand_files import demand_from_dict
from teccl.problem import Problem, SwitchMode
from teccl.replay import simulate
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.verification import verify

# A ring of three whose link from a to b is ten times slower from 5 us on.
FALLING: dict[str, Any] = {
    "nodes": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
    "links": [
        {"src": "a", "dst": "b", "bandwidth": "1GB/s", "alpha": 0, "profile": [["5us", "0.1GB/s"]]},
        {"src": "b", "dst": "c", "bandwidth": "1GB/s", "alpha": 0},
        {"src": "c", "dst": "a", "bandwidth": "1GB/s", "alpha": 0},
        {"src": "b", "dst": "a", "bandwidth": "1GB/s", "alpha": 0},
        {"src": "c", "dst": "b", "bandwidth": "1GB/s", "alpha": 0},
        {"src": "a", "dst": "c", "bandwidth": "1GB/s", "alpha": 0},
    ],
}


# Two GPUs whose links from a third share a card, and which hand on what they have.
CARD: dict[str, Any] = {
    "nodes": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
    "shared": {"card": "1GB/s"},
    "links": [
        {"src": "a", "dst": "b", "bandwidth": "1GB/s", "alpha": "1us", "shares": ["card"]},
        {"src": "a", "dst": "c", "bandwidth": "1GB/s", "alpha": "1us", "shares": ["card"]},
        {"src": "b", "dst": "c", "bandwidth": "10GB/s", "alpha": "1us"},
        {"src": "c", "dst": "b", "bandwidth": "10GB/s", "alpha": "1us"},
    ],
}


def last_plan(instance: Instance, *, target: int = 0, seed: int = 0, budget: int = 10**6) -> Plan:
    """Return the best of the plans that insertion makes."""
    *_, last = inserted_plans(instance, Goal(target=target, seed=seed, allowance=budget))
    return last


def check_random(seed: int, *, on_grid: bool, buffer: int | None = None) -> bool:
    """Verify what insertion makes of a random problem; whether it serves that at all."""
    problem = random_problem(seed)
    if buffer is not None:
        object.__setattr__(problem, "buffer", buffer)
    grid = TimeGrid.build(problem) if on_grid and len(problem.chunks.sizes) == 1 else None
    instance = Instance.build(problem, grid)
    if refusal(instance) is not None or len(problem.chunks) > 200:
        return False
    plans = list(inserted_plans(instance, Goal(seed=seed)))
    if not plans:
        # Only a sum for which nothing may wait can be beyond it.
        assert problem.has_reductions
        assert problem.buffer is not None
        return False
    schedule = verified(instance, plans[-1])
    if grid is None:
        assert simulate(schedule).finish_ps <= plans[-1].finish
    return True


@pytest.mark.parametrize("on_grid", [False, True])
def test_random_problems_verify(on_grid: bool) -> None:
    """Whatever the mode, sizes, shares and ready times, a plan verifies and ends when it says."""
    assert sum(check_random(seed, on_grid=on_grid) for seed in range(40)) >= 20


@pytest.mark.parametrize("buffer", [0, 2])
def test_random_problems_keep_to_their_buffers(buffer: int) -> None:
    """Nothing waits where nothing may, and no more than may do, sums included."""
    served = (check_random(seed, on_grid=False, buffer=buffer) for seed in range(40))
    assert sum(served) >= 15


def test_many_that_wait_in_one_gpu_have_room() -> None:
    """A hub keeps what comes over all of its links, far more than any one of them carries."""
    leaves = [f"gpu{i}" for i in range(6)]
    ends = [(a, b) for leaf in leaves for a, b in ((leaf, "hub"), ("hub", leaf))]
    links = [
        {"src": a, "dst": b, "bandwidth": f"{3 + i % 7}GB/s", "alpha": f"{100 + i}ns"}
        for i, (a, b) in enumerate(ends)
    ]
    document = {"nodes": [{"name": name} for name in (*leaves, "hub")], "links": links}
    made = make_instance(document, "alltoall", "1MB", num_chunks=2, buffer=50)
    shop = Workshop(made)
    assert shop.insert(np.arange(len(shop.chunk)))
    assert shop.table.count["busy"].max() <= shop.table.busy.shape[1]
    assert shop.table.count["busy"].max() > 2 * shop.table.count["who"].max() + 2
    verified(made, shop.plan())


@pytest.mark.parametrize("buffer", [0, 1, 4])
def test_exchanges_of_all_keep_to_their_buffers(buffer: int) -> None:
    """What waits in a GPU comes from all sources, so that one of them does not stand for all."""
    made = make_instance("dgx1", "alltoall", "1MB", num_chunks=4, buffer=buffer)
    for plan in plans(made, target=0, level="quick"):
        verified(made, plan)


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [None, 0, 1, 3])
@pytest.mark.parametrize("seed", range(40, 300))
def test_many_random_problems_verify(seed: int, buffer: int | None) -> None:
    """More of the same."""
    check_random(seed, on_grid=buffer is None and seed % 2 == 0, buffer=buffer)


def test_an_exchange_through_one_switch_is_optimal() -> None:
    """Three GPUs of a star exchange two chunks each over their ports without a pause."""
    made = make_instance("star:gpus=3,alpha=0", "alltoall", "600KB")
    hold = int(made.hold[0])
    assert last_plan(made, target=3 * hold).finish == 3 * hold


def test_branches_join_in_a_switch_that_copies() -> None:
    """A broadcast enters the switch once and leaves it to all at the same time."""
    made = make_instance("star:gpus=5,alpha=0", "broadcast", "1MB")
    plan = last_plan(made)
    assert plan.finish == 2 * int(made.hold[0])
    assert len(set(plan.rows[:, 3].tolist())) == 1


def test_a_link_that_will_be_slow_is_used_before_or_gone_round() -> None:
    """What would take 32 us over the link that falls goes by another GPU in 10 us."""
    made = make_instance(FALLING, "alltoall", "24KB")
    plan = last_plan(made, budget=10**7)
    assert plan.finish < 20_000_000
    assert simulate(verified(made, plan)).finish_ps <= plan.finish


def test_copies_are_handed_on_while_that_is_in_time() -> None:
    """Three of four chunks cross the card once; the last would come too late if it did."""
    instance = make_instance(CARD, "broadcast", "4KB", num_chunks=4)
    # Handing all on takes 6.1 us, sending all twice 9 us.
    plan = last_plan(instance, target=6_000_000)
    assert plan.finish == 6_000_000
    verified(instance, plan)


def test_what_cannot_be_in_time_is_served_all_the_same() -> None:
    """Before all is due, before anything can come, everyone is served as soon as may be."""
    instance = make_instance(CARD, "broadcast", "4KB", num_chunks=4)
    shop = Workshop(instance)
    shop.set_due(1)
    assert shop.insert(np.arange(4))
    assert shop.finish == 9_000_000
    verified(instance, shop.plan())


def test_sizes_have_their_own_times() -> None:
    """A block half as large holds the link that both go over for half as long."""
    sizes = ((0, 10**6, 10**6 // 2), (0, 0, 0), (0, 0, 0))
    matrix = tuple(tuple(Fraction(size) for size in row) for row in sizes)
    tenant = Tenant(collective=Collective.ALLTOALLV, size=Fraction(0), matrix=matrix)
    made = make_instance("line:gpus=3,alpha=0", Demand(tenants=(tenant,)))
    plan = last_plan(made, target=int(made.hold[0]) * 3 // 2)
    assert plan.finish == int(made.hold[0]) * 3 // 2
    verified(made, plan)


def test_what_it_does_not_serve_is_said() -> None:
    """An AllReduce is no multicast turned round, and yields nothing."""
    made = make_instance("ring:gpus=3", "allreduce", "3KB")
    assert refusal(made) == "sums cannot be turned round"
    assert list(inserted_plans(made, Goal())) == []


def test_estimates_grow_with_the_demand() -> None:
    """An exchange of more chunks is more work for insertion."""
    one, four = (make_instance("dgx1", "alltoall", "1MB", num_chunks=n) for n in (1, 4))
    assert 0 < estimated_work(one) * 4 == estimated_work(four)


def test_sums_on_hyper_edges_are_not_turned_round() -> None:
    """Ports are held from the start, so that ways of different latency meet otherwise backwards."""
    star = make_instance("star:gpus=4", "reducescatter", switch=SwitchMode.HYPER_EDGE)
    assert refusal(star) is not None
    assert refusal(make_instance("star:gpus=4", "reducescatter")) is None


def test_branches_of_a_passage_meet_nowhere() -> None:
    """In a fabric with several ways a copying passage stays a tree while it grows."""
    instance = make_instance(fabric(), Demand.collective("allgather", size="16MB"), num_chunks=2)
    for plan in inserted_plans(instance, Goal(allowance=10**7)):
        verified(instance, plan)


def test_very_many_sizes_are_left_to_others() -> None:
    """Each size has tables of its own, which must fit into memory."""
    gpus = 100
    rows = [[a * gpus + b + 1 if a != b else 0 for b in range(gpus)] for a in range(gpus)]
    instance = make_instance(f"star:gpus={gpus}", demand_from_dict({"matrix": rows}))
    assert refusal(instance) is not None


def test_ways_of_more_routes_than_there_is_room_for_are_booked_all_the_same() -> None:
    """Room for routes grows as long as a chunk may pass further GPUs."""
    problem = Problem(
        topology=Topology.parse("line:gpus=6"), demand=Demand.collective("alltoall", size="6KB")
    )
    shop = Workshop(Instance.build(problem))
    shop.rows = empty_rows(len(shop.chunk), 1)
    assert shop.insert(np.arange(len(shop.chunk)))
    assert verify(realise(shop.instance, shop.plan(), method="construct")) == ()


def test_a_pass_ends_when_its_work_is_done() -> None:
    """Beyond so much work nothing more is inserted."""
    problem = Problem(
        topology=Topology.parse("ring:gpus=8"), demand=Demand.collective("alltoall", size="1MB")
    )
    shop = Workshop(Instance.build(problem))
    assert not shop.insert(np.arange(len(shop.chunk)), until=100)
    assert shop.work < 10_000
