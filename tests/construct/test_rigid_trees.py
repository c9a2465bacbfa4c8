"""Rigid trees keep to every limit on buffers, and joined copies leave a GPU once."""

from dataclasses import replace

import pytest
from tests.construct.small import make_instance, random_fabric

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.joining import _passages
from teccl.construct.params import NEVER
from teccl.construct.plan import Plan
from teccl.construct.realise import realise
from teccl.construct.rigid_trees import may_be_rigid, rigid_tree_plans
from teccl.demand import Demand
from teccl.demand.demand_files import demand_from_dict
from teccl.keywords import Transit
from teccl.synthesis import solve
from teccl.verification import verify


def limited(instance: Instance, buffer: int) -> Instance:
    return replace(instance, problem=replace(instance.problem, buffer=buffer))


def rigid_plans(instance: Instance) -> list[Plan]:
    return list(rigid_tree_plans(instance, Goal(target=1, allowance=1)))


def check_random(seeds: range, buffer: int) -> int:
    """Check all plans of random problems; returns how many problems had one."""
    served = 0
    for seed in seeds:
        instance = random_fabric(seed)
        if instance is None or not may_be_rigid(limited(instance, buffer)):
            continue
        plans = rigid_plans(limited(instance, buffer))
        for plan in plans:
            schedule = realise(limited(instance, buffer), plan, method="construct")
            assert not verify(schedule), seed
            assert schedule.finish_ps == plan.finish
        served += bool(plans)
    return served


@pytest.mark.parametrize("buffer", [0, 1, 3])
def test_random_problems_keep_to_their_buffers(buffer: int) -> None:
    """No more than the limit ever waits, for copies and for sums."""
    assert check_random(range(12), buffer) > 3


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [0, 1, 2, 4, 16])
def test_many_random_problems_keep_to_their_buffers(buffer: int) -> None:
    """No more than the limit ever waits, for copies and for sums."""
    assert check_random(range(100, 400), buffer) > 100


def test_branches_of_unequal_rates_are_circuits_of_their_own() -> None:
    """One circuit for all would go at the rate of the slowest, and what follows would be early."""
    rates = {"a>s": "10GB/s", "s>b": "10GB/s", "s>c": "1GB/s", "b>d": "4GB/s"}
    links = [
        {"src": name[0], "dst": name[2], "bandwidth": rate, "alpha": "0"}
        for name, rate in rates.items()
    ]
    nodes = [{"name": name} for name in "abcd"] + [{"name": "s", "kind": "switch"}]
    options = {"buffer": 0, "transit": Transit.CUT_THROUGH, "num_chunks": 2}
    instance = make_instance({"nodes": nodes, "links": links}, "broadcast", "64KB", **options)
    plans = rigid_plans(instance)
    assert plans
    for plan in plans:
        assert not verify(realise(instance, plan, method="construct"))


def test_sums_that_all_want_are_one_piece_each() -> None:
    """Contributions to a sum arrive together, and it leaves for all others at that moment."""
    instance = make_instance("ring:gpus=4,alpha=0", "allreduce", "4MB", buffer=0)
    plans = rigid_plans(instance)
    assert not any(verify(realise(instance, plan, method="construct")) for plan in plans)
    # Each of four chunks of 1 MB passes three links in and three links out, at 50 GB/s.
    assert min(plan.finish for plan in plans) <= 2 * 6 * 20_000_000


def test_allreduces_without_buffers_are_served_by_sparse_networks() -> None:
    """Where no GPU reaches all others directly, relays pass sums on the moment they have them."""
    result = solve(
        "random:gpus=8,degree=3,seed=2", "allreduce", size="1MB", buffer="none", chunks=1
    )
    assert verify(result.schedule) == ()


def test_pieces_follow_one_another_without_gaps() -> None:
    """Around a ring all links are busy from the first to the last hop, though nothing waits."""
    instance = make_instance("ring:gpus=4,alpha=0", "allgather", "4MB", num_chunks=2, buffer=0)
    best = min((plan.finish for plan in rigid_plans(instance)), default=NEVER)
    # Three blocks of 1 MB enter each GPU over two links of 50 GB/s.
    assert best == 30_000_000


def test_plans_that_fit_stay_as_they_are() -> None:
    """A limit that nothing reaches costs nothing."""
    instance = make_instance("torus:dims=3x3", "allgather", "9MB", num_chunks=2)
    wide, none = (
        min(plan.finish for plan in rigid_plans(limited(instance, buffer))) for buffer in (99, 0)
    )
    assert wide < none


def test_ways_over_one_link_are_one_passage() -> None:
    """Ways with a first link in common share it, others are passages of their own."""
    ends = [10, 11, 12, 13, 14]
    assert _passages([(0, 1), (0, 2, 3), (0, 2, 4), (3,)], ends) == [(0, 0), (0, 1), (0, 2), (3, 0)]


def test_ways_that_meet_again_stay_apart() -> None:
    """A switch that would have the chunk twice passes it on twice."""
    ends = [10, 11, 12, 12]
    assert _passages([(0, 1, 2), (0, 3)], ends) == [(0, 0), (1, 0)]


def test_a_schedule_for_fewer_buffers_is_a_start_for_more() -> None:
    """Whatever keeps to a limit keeps to a higher one, so that more room never costs time."""
    start = solve("ring:gpus=4", "allgather", size="1MB", buffer="none", chunks=2, effort="quick")
    more = solve(
        "ring:gpus=4", "allgather", size="1MB", buffer=1, from_schedule=start.schedule, chunks=2
    )
    assert more.finish_time_s is not None
    assert start.finish_time_s is not None
    assert more.finish_time_s <= start.finish_time_s
    assert more.schedule is not None
    assert more.schedule.problem.buffer == 1


def test_chunks_of_several_sizes_keep_their_own_times() -> None:
    """Plans that are timed for the largest chunks are not taken as they are for smaller ones."""
    matrix = [[0, 3000, 1000], [500, 0, 2000], [700, 900, 0]]
    entry = {"collective": "alltoallv", "matrix": matrix}
    instance = make_instance("star:gpus=3", demand_from_dict(entry), buffer=9)
    plans = rigid_plans(instance)
    assert plans
    for plan in plans:
        assert not verify(realise(instance, plan, method="construct"))


def test_plans_that_say_what_feeds_what_keep_it() -> None:
    """Numbers of transfers that a plan names as feeders are not given to others."""
    ways = ("root", "relay"), ("relay", "far"), ("far", "end"), ("end", "switch"), ("switch", "far")
    links = [{"src": a, "dst": b, "bandwidth": "10GB/s", "alpha": "1us"} for a, b in ways]
    # What comes in faster than it goes out would have to wait.
    links[0]["bandwidth"] = "50GB/s"
    nodes = [{"name": name} for name in ("relay", "far", "root", "end")]
    document = {"nodes": [*nodes, {"name": "switch", "kind": "switch"}], "links": links}
    scatter = Demand.collective("scatter", size="4KB", root=2)
    instance = limited(make_instance(document, scatter), 0)
    plans = rigid_plans(instance)
    assert plans
    for plan in plans:
        assert not verify(realise(instance, plan, method="construct"))
