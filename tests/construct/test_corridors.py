"""Corridors, and trees laid across them."""

from fractions import Fraction

import numpy as np
import pytest
from tests.construct.small import make_instance, random_fabric, verified

import teccl
from teccl.bounds import summarise
from teccl.construct.corridors import Books, Corridors, corridors_of
from teccl.construct.instance import (
    Instance,
    is_joined_by_single_switches,
    without_long_ways,
)
from teccl.construct.multicast import Tables
from teccl.construct.plan import Plan, with_starts
from teccl.construct.tasks import finish_time, precedence, schedule_tasks, tasks_of_plan
from teccl.construct.trees import laid_plan, plan_across
from teccl.demand import Demand
from teccl.problem import Problem, SwitchMode, Transit
from teccl.topology import Topology


def fullest(instance: Instance, plan: Plan) -> float:
    """Time for which a plan holds the resource that it holds longest."""
    tasks = tasks_of_plan(instance, plan)
    return float(np.bincount(tasks.res, tasks.res_hold / instance.slots[tasks.res]).max())


def scheduled(instance: Instance, plan: Plan) -> Plan:
    """Return the plan with starts, in no particular order."""
    tasks = tasks_of_plan(instance, plan)
    key, order = np.zeros(len(tasks), dtype=np.int64), precedence(instance, tasks)
    start = schedule_tasks(instance, tasks, key=key, order=order)
    return with_starts(plan, start, finish_time(tasks, start))


def pairs(corridors: Corridors) -> dict[int, tuple[int, int]]:
    """Near and far node of every route, as the corridors' tables give them."""
    found: dict[int, tuple[int, int]] = {}
    for c in range(len(corridors.near_start) - 1):
        near = range(corridors.near_start[c], corridors.near_start[c + 1])
        far = range(corridors.far_start[c], corridors.far_start[c + 1])
        for i, a in enumerate(near):
            for j, b in enumerate(far):
                route = int(corridors.route[corridors.route_start[c] + i * len(far) + j])
                if route >= 0:
                    assert route not in found
                    found[route] = (int(corridors.near_node[a]), int(corridors.far_node[b]))
    return found


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("spec", ["star:gpus=4", "dgx1", "internal1:chassis=3", "dgx2:chassis=2"])
def test_corridors_hold_every_route_once(spec: str, inward: bool) -> None:
    """A route is found by its ends, from whichever side a tree grows."""
    instance = make_instance(spec, "allgather")
    corridors = corridors_of(instance, inward=inward)
    assert corridors is not None
    ends = list(zip(instance.routes.src.tolist(), instance.routes.dst.tolist(), strict=True))
    expected = {r: (d, s) if inward else (s, d) for r, (s, d) in enumerate(ends)}
    assert pairs(corridors) == expected
    for node in range(instance.problem.topology.num_nodes):
        own = slice(corridors.touching_start[node], corridors.touching_start[node + 1])
        places = [p for p in corridors.near_place[own].tolist() if p >= 0]
        assert all(corridors.near_node[place] == node for place in places)
        assert len(places) == int((corridors.near_node == node).sum())


def test_links_between_switches_belong_to_a_corridor() -> None:
    """Ways through several switches share what lies between these."""
    instance = make_instance("fat-tree:k=4", "allgather")
    corridors = corridors_of(instance, inward=False)
    if corridors is None:
        pytest.fail("a fat tree of four ports has all its ways listed")
    routes = instance.routes
    longest = int(np.diff(routes.link_start).max())
    assert int(np.diff(corridors.inner_start).max()) == longest - 2 > 0


def test_a_missing_way_leaves_no_corridors() -> None:
    """Where a pair of a corridor has no route its cheapest links may not fit together."""
    made = make_instance("star:gpus=4", "allgather")
    fewer = Instance.build(made.problem, ways=made.routes.ways()[1:])
    assert corridors_of(fewer, inward=False) is None
    assert plan_across(fewer, target=1.0) is None


def test_links_hold_what_they_share() -> None:
    """A link costs what it and its shared capacities cost."""
    instance = make_instance("ndv2:chassis=2", "allgather")
    books = Books.of(instance)
    (length, start, res, hold), (holders_start, holders) = books.links, books.holders
    topology = instance.problem.topology
    for link, one in enumerate(topology.links):
        own = res[start[link] : start[link + 1]]
        assert own[0] == link
        assert len(own) == 1 + len(one.shares)
        assert length[link] == instance.hold[link] + instance.latency[link]
        assert np.all(hold[start[link] : start[link + 1]] <= instance.hold[link])
        for resource in own:
            assert link in holders[holders_start[resource] : holders_start[resource + 1]]


def test_phases_have_books_of_their_own() -> None:
    """A link of either phase holds what both hold, and what only its phase holds for twice that."""
    instance = make_instance("ndv2:chassis=2", "allreduce")
    plain, books = Books.of(instance), Books.of(instance).by_phase(0.25)
    num, links, routes = instance.num_resources, len(instance.hold), len(instance.routes)
    assert len(books.slots) == 3 * num
    for old, new, count in (
        (plain.links, books.links, links),
        (plain.routes, books.routes, routes),
    ):
        for phase in (0, 1):
            for one in range(count):
                there = slice(*old[1][one : one + 2])
                here = slice(*new[1][phase * count + one : phase * count + one + 2])
                assert new[2][here][0::2].tolist() == old[2][there].tolist()
                assert new[2][here][1::2].tolist() == ((1 + phase) * num + old[2][there]).tolist()
                assert new[3][here][0::2].tolist() == old[3][there].tolist()
                assert new[3][here][1::2] == pytest.approx(old[3][there] * 1.6)
    starts, holders = books.holders
    for resource in range(3 * num):
        for link in holders[starts[resource] : starts[resource + 1]]:
            assert resource in books.links[2][books.links[1][link] : books.links[1][link + 1]]


def test_phases_of_sums_are_balanced() -> None:
    """Neither the way in nor the way out of sums needs much more than half of the time."""
    network = Topology.parse("dgx-h100:chassis=4").degraded({"c0/gpu0:leaf0": Fraction(1, 2)})
    demand = Demand.collective("allreduce", size="1GB")
    instance = Instance.build(Problem(topology=network, demand=demand, num_chunks=16))
    instance = without_long_ways(instance)
    bound = summarise(instance.problem).physical_ps
    plan = plan_across(instance, target=0.98 * bound, steepness=200.0, length_weight=30.0)
    assert plan is not None
    assert plan.reduce is not None
    assert fullest(instance, plan) <= 1.03 * bound
    for mask in (plan.reduce, ~plan.reduce):
        phase = Plan(rows=plan.rows[mask], reduce=plan.reduce[mask])
        assert fullest(instance, phase) <= 0.6 * bound


@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "allreduce", "broadcast"])
@pytest.mark.parametrize("spec", ["star:gpus=5", "internal1:chassis=3", "dgx-h100:chassis=2"])
def test_trees_across_switches_verify(spec: str, collective: str) -> None:
    """Laid trees serve the demand in whatever order they are scheduled."""
    instance = without_long_ways(make_instance(spec, collective, "8MB", num_chunks=2))
    plan = plan_across(instance, target=1e6)
    assert plan is not None
    verified(instance, scheduled(instance, plan))


@pytest.mark.parametrize("seed", range(40))
def test_random_fabrics_verify(seed: int) -> None:
    """Trees across any fabric are correct, or there are none."""
    instance = random_fabric(seed)
    if instance is None:
        pytest.skip("the fabric drawn is cut, or its rates change")
    plan = plan_across(instance, target=1e6, seed=seed)
    if plan is None:
        pytest.skip("no trees can be laid across this fabric")
    verified(instance, scheduled(instance, plan))


@pytest.mark.parametrize("seed", range(40))
def test_few_branches_verify(seed: int) -> None:
    """So are trees with few branches."""
    instance = random_fabric(seed)
    if instance is None:
        pytest.skip("the fabric drawn is cut, or its rates change")
    plan = plan_across(instance, target=1e6, seed=seed, patience=0.0)
    if plan is None:
        pytest.skip("no trees can be laid across this fabric")
    verified(instance, scheduled(instance, plan))


@pytest.mark.parametrize(("patience", "most"), [(np.inf, 15), (0.0, 4)])
def test_trees_have_few_branches_where_those_take_long(patience: float, most: int) -> None:
    """With no patience a tree over sixteen GPUs has two levels, else it is a star."""
    instance = make_instance("star:gpus=16", "allreduce", "16MB")
    plan = plan_across(instance, target=1e12, length_weight=30.0, patience=patience)
    assert plan is not None
    assert plan.reduce is not None
    routes = instance.routes
    chunk, route = plan.rows[:, 0], plan.rows[:, 1]
    hub = np.where(plan.reduce, routes.dst[route], routes.src[route])
    _, count = np.unique(np.stack([chunk, hub, plan.reduce]), axis=1, return_counts=True)
    assert count.max() == most
    verified(instance, scheduled(instance, plan))


def test_what_few_can_pass_on_has_more_branches() -> None:
    """Where one GPU alone sends through a switch, it has as many branches as it takes."""
    made = make_instance("star:gpus=16", "allreduce", "16MB")
    corridors = corridors_of(made, inward=False)
    assert corridors is not None
    hold = made.hold
    assert set(corridors.few_branches(hold, 0.0)[corridors.near_link].tolist()) == {4}
    one = corridors._replace(
        near_start=np.array([0, 1]),
        near_node=corridors.near_node[:1],
        near_link=corridors.near_link[:1],
    )
    assert one.few_branches(hold, 0.0)[one.near_link].tolist() == [32]
    assert np.all(corridors.few_branches(hold, np.inf) == np.iinfo(np.int64).max)


def test_paying_at_once_balances_better() -> None:
    """Prices that rise with each branch spread a tree over senders, where others lay a star."""
    network = Topology.parse("internal1:chassis=8").degraded({"c0/gpu0:switch": Fraction(1, 2)})
    demand = Demand.collective("allgather", size="64MB")
    instance = Instance.build(Problem(topology=network, demand=demand, num_chunks=4))
    bound = summarise(instance.problem).physical_ps
    options = {"target": 0.98 * bound, "steepness": 60.0, "passes": 8, "length_weight": 0.3}
    across = plan_across(instance, **options)
    along = laid_plan(instance, Tables.build(instance), **options)
    assert across is not None
    assert along is not None
    assert fullest(instance, across) <= 1.01 * bound
    assert fullest(instance, across) < fullest(instance, along)


def test_same_seed_same_trees() -> None:
    """Laying is deterministic."""
    instance = make_instance("dgx2:chassis=2", "allreduce")
    first, again = (plan_across(instance, target=1e6, seed=3) for _ in range(2))
    assert first is not None
    assert again is not None
    assert np.array_equal(first.rows, again.rows)


FAULTS = [
    ("allgather", {"degrade": ["c0/gpu0:switch=50%"]}, 0.01),
    ("allgather", {"without_links": ["c0/gpu0:switch"]}, 0.01),
    ("allgather", {"without_links": ["c0/gpu0:*"], "ranks": "1-63"}, 0.01),
    ("reducescatter", {"degrade": ["c0/gpu0:*=50%"]}, 0.01),
    ("allreduce", {"degrade": ["c0/gpu0:switch=50%"]}, 0.05),
]


@pytest.mark.parametrize(("collective", "change", "most"), [FAULTS[0], FAULTS[-1]])
def test_a_small_faulty_cluster_stays_near_its_bound(collective, change, most) -> None:
    """Without symmetry 20 GPUs behind a switch are planned about as well as with it."""
    result = teccl.solve("internal1:chassis=5", collective, size="64MB", effort="quick", **change)
    assert result.verified
    assert result.physical_gap <= most


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "change", "most"), FAULTS)
def test_a_faulty_cluster_stays_near_its_bound(collective, change, most) -> None:
    """Without symmetry 64 GPUs behind a switch are planned about as well as with it."""
    result = teccl.solve("internal1:chassis=16", collective, size="64MB", **change)
    assert result.verified
    assert result.physical_gap <= most


def test_a_dead_gpu_brings_no_long_ways() -> None:
    """A GPU without a link cannot be reached by any way, so that none is listed for its sake."""
    network = Topology.parse("dgx-h100:chassis=2").without_links(["c0/gpu0:*"])
    demand = Demand.collective("allgather", size="1MB", ranks=range(1, 16))
    instance = without_long_ways(Instance.build(Problem(topology=network, demand=demand)))
    assert int(np.diff(instance.routes.link_start).max()) == 2


@pytest.mark.parametrize("switch", ["copy", "hyper-edge"])
@pytest.mark.parametrize("transit", ["store-and-forward", "cut-through"])
def test_trees_across_serve_every_mode(switch: str, transit: str) -> None:
    """However switches pass data on, and whoever takes part, trees are correct."""
    demand = Demand.collective("allreduce", size="8MB", ranks=(0, 1, 3, 4, 5))
    made = make_instance(
        "internal2:chassis=4", demand, switch=SwitchMode(switch), transit=Transit(transit)
    )
    plan = plan_across(made, target=1e6)
    assert plan is not None
    verified(made, scheduled(made, plan))


def test_single_switches_join_a_cluster() -> None:
    """Rails and chassis meet in GPUs; the edges of a fat tree meet in other switches only."""
    assert is_joined_by_single_switches(Topology.parse("dgx-h100:chassis=2"))
    assert is_joined_by_single_switches(Topology.parse("internal1:chassis=3"))
    assert not is_joined_by_single_switches(Topology.parse("fat-tree:k=4"))
    dead = Topology.parse("dgx-h100:chassis=2").without_links(["c0/gpu0:*"])
    assert is_joined_by_single_switches(dead)


def test_a_time_limit_counts_in_a_faulty_cluster() -> None:
    """Something is found before trees are laid, and the limit is looked at between steps."""
    fault = {"degrade": ["c0/gpu0:switch=50%"]}
    result = teccl.solve("internal1:chassis=16", "allgather", size="64MB", time_limit=0.01, **fault)
    assert result.status.value == "time_limit"
    assert result.num_chunks == 1


@pytest.mark.parametrize(
    ("chassis", "size", "effort"),
    [
        (4, "4MB", "quick"),
        pytest.param(4, "4MB", "normal", marks=pytest.mark.slow),
        pytest.param(16, "8MB", "normal", marks=pytest.mark.slow),
    ],
)
def test_medium_sizes_get_trees_too(chassis: int, size: str, effort: str) -> None:
    """Where latencies count greedy schedules come first, but trees are not forgotten."""
    topology, slow = f"internal1:chassis={chassis}", ["c0/gpu0:switch=50%"]
    result = teccl.solve(topology, "allgather", size=size, degrade=slow, effort=effort)
    assert result.physical_gap <= 0.04
