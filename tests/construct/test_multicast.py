"""Multicasts: optima that are known, and the same choices every time."""

from operator import attrgetter

import numpy as np
import pytest
from tests.construct.small import best_plan, make_instance, verified

from teccl.construct.goal import Goal
from teccl.construct.multicast import Tables, greedy
from teccl.construct.multicasts import multicast_plans
from teccl.demand import Demand
from teccl.demand.demand_files import demand_from_dict


@pytest.mark.parametrize(("chunks", "epochs"), [(1, 2), (2, 3), (3, 4)])
def test_dgx1_optima(chunks: int, epochs: int) -> None:
    """AllGather on a DGX-1 without latency meets SCCL's optimal numbers of steps."""
    made = make_instance(
        "dgx1:alpha=0", "allgather", f"{200 * chunks}KB", num_chunks=chunks, epoch="slowest"
    )
    plan = best_plan(made, target=epochs)
    assert plan.finish == epochs
    verified(made, plan)


def test_mesh_optimum() -> None:
    """A corner of a 4x4 mesh receives 15 chunks over two links, which takes 8 epochs."""
    made = make_instance("mesh:dims=4x4,alpha=0", "allgather", "16MB", epoch="fastest")
    plan = best_plan(made, target=8)
    assert plan.finish == 8
    verified(made, plan)


def test_two_ndv2_chassis_optimum() -> None:
    """The paper's AllGather of 16 MB on two NDv2 chassis needs 35 epochs, which is optimal."""
    made = make_instance("ndv2:chassis=2", "allgather", "16MB", epoch="fastest")
    plan = best_plan(made, target=35)
    assert plan.finish == 35
    verified(made, plan)


def run(seed: int, **options: bool) -> np.ndarray:
    """Return the rows of one greedy run on a DGX-1."""
    made = make_instance("dgx1", "allgather", num_chunks=2)
    plan = greedy(made, Tables.build(made), seed=seed, join=False, **options)
    assert plan is not None
    return plan.rows


def test_same_seed_same_rows() -> None:
    """A seed decides all choices, and another seed makes others."""
    assert np.array_equal(run(3), run(3))
    assert not np.array_equal(run(3), run(4))


def test_every_want_is_delivered_once() -> None:
    """Each GPU receives each chunk that it lacks exactly once."""
    made = make_instance("dgx2", "allgather")
    plan = greedy(made, Tables.build(made), seed=0, join=True)
    assert plan is not None
    received = list(zip(plan.rows[:, 0], made.routes.dst[plan.rows[:, 1]], strict=True))
    assert len(received) == len(set(received)) == 16 * 15


def test_joined_passages_share_their_first_link() -> None:
    """A copying switch serves several outputs with one arrival, which saves sends."""
    made = make_instance("star:gpus=4", "allgather")
    tables = Tables.build(made)
    joined = greedy(made, tables, seed=0, join=True)
    apart = greedy(made, tables, seed=0, join=False)
    assert joined is not None
    assert apart is not None
    assert len(np.unique(joined.rows[:, 3])) < len(np.unique(apart.rows[:, 3])) == 12
    assert joined.finish <= apart.finish
    assert len(verified(made, joined)) < len(verified(made, apart))


def test_thrifty_runs_cross_slow_links_once() -> None:
    """No chunk enters a chassis a second time over the slow link when routes are thrifty."""
    made = make_instance("ndv2:chassis=2", "allgather", num_chunks=2)
    plan = greedy(made, Tables.build(made), seed=0, join=False, thrifty=True)
    assert plan is not None
    topology, routes = made.problem.topology, made.routes
    between = [e for e in range(topology.num_links) if _crosses(topology, e)]
    used = plan.rows[np.isin(routes.links[routes.link_start[plan.rows[:, 1]]], between)]
    assert len(used) == len(made.problem.chunks)


def _crosses(topology, link: int) -> bool:
    ends = topology.links[link]
    return topology.nodes[ends.src].group != topology.nodes[ends.dst].group


def test_missed_deadline_gives_no_plan() -> None:
    """A run that cannot end by its deadline is cut short."""
    made = make_instance("ring:gpus=4,alpha=0", "allgather", epoch="fastest")
    tables = Tables.build(made)
    assert greedy(made, tables, seed=0, join=False, deadline=1) is None
    on_time = greedy(made, tables, seed=0, join=False, deadline=2)
    assert on_time is not None
    assert on_time.finish == 2


def test_late_data_is_sent_when_it_is_ready() -> None:
    """A rank's own data does not leave before its ready time."""
    demand = demand_from_dict({"collective": "allgather", "size": "4KB", "ready": {"1": "9us"}})
    made = make_instance("ring:gpus=4", demand)
    plan = greedy(made, Tables.build(made), seed=0, join=False)
    assert plan is not None
    own = plan.rows[(plan.rows[:, 0] == 1) & (made.routes.src[plan.rows[:, 1]] == 1)]
    assert own[:, 2].min() == 9 * 10**6
    verified(made, plan)


def test_outsiders_may_relay() -> None:
    """Ranks 0 and 2 of a line can only talk through rank 1, which wants nothing."""
    demand = Demand.collective("allgather", size="1KB", ranks=(0, 2))
    made = make_instance("line:gpus=3", demand)
    tables = Tables.build(made)
    assert greedy(made, tables, seed=0, join=False) is None
    verified(made, best_plan(made))


def test_copies_that_part_in_switches_take_balanced_trees():
    """On four Internal-1 chassis trees that share all inputs end long before greedy ones do."""
    made = make_instance("internal1:chassis=4", "broadcast", "1MB", num_chunks=192)
    goal = Goal(target=8_967_000, allowance=5_000_000)
    best = min(multicast_plans(made, goal), key=attrgetter("finish"))
    assert best.finish < 11_200_000
    verified(made, best)
