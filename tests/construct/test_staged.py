"""Staged AllReduces: every scheme is correct on every network, and steps are saved."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.construct.networks import random_network

import teccl
from teccl import Collective, Demand, Problem, Tenant, Topology
from teccl.construct.factors import coarsenings, neighbours, product_coordinates
from teccl.construct.goal import Goal
from teccl.construct.schemes import one_shot, outlook, owned, schemes
from teccl.construct.staged import shallow_finish, staged_schedule
from teccl.reachability import find_unreachable
from teccl.replay import simulate
from teccl.topology.topology_files import topology_from_dict
from teccl.verification import verify


def allreduce(spec: str, size: object, pieces: int = 1) -> Problem:
    """Return an AllReduce whose buffer is cut as a whole."""
    return Problem(
        topology=Topology.parse(spec),
        demand=Demand.collective("allreduce", size=size),
        num_chunks=pieces,
        whole_buffer=True,
    )


def random_allreduce(seed: int) -> Problem:
    """Return a small AllReduce among some GPUs of a random network, some of them late."""
    rng = random.Random(seed)
    while True:
        topology = random_network(rng)
        gpus = topology.num_gpus
        ranks = sorted(rng.sample(range(gpus), rng.choice([gpus, rng.randrange(2, gpus + 1)])))
        ready = {ranks[0]: "1us"} if rng.random() < 0.2 else None
        size = rng.choice([256, 4096, 65536])
        demand = Demand.collective("allreduce", size=size, ranks=ranks, ready=ready)
        problem = Problem(
            topology=topology, demand=demand, num_chunks=rng.choice([1, 2, 5]), whole_buffer=True
        )
        if gpus <= 12 and find_unreachable(problem) is None:
            return problem


def check_schemes(problem: Problem) -> None:
    """Make every scheme of a problem and judge it, replayed and as it is."""
    for scheme in schemes(problem):
        if problem.topology.has_profiles and scheme.num_stages > 1:
            continue
        schedule = staged_schedule(problem, scheme, Goal())
        assert schedule is not None
        assert schedule.same_order
        verify(schedule, strict=True)
        replayed = simulate(schedule)
        verify(replayed.schedule, strict=True)
        assert replayed.finish_ps >= outlook(problem, scheme).floor_ps


@pytest.mark.parametrize("seed", [*range(6), 65])
def test_schemes_are_correct_on_random_networks(seed):
    """Whatever the network, members, pieces and late ranks, every scheme is a correct AllReduce."""
    check_schemes(random_allreduce(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 106))
def test_schemes_are_correct_on_many_random_networks(seed):
    """The same on a hundred more."""
    check_schemes(random_allreduce(seed))


@pytest.mark.parametrize("gpus", [4, 6, 9])
def test_schemes_are_correct_around_a_switch(gpus):
    """GPUs that are all equally far apart also exchange along the digits of their ranks."""
    problem = allreduce(f"star:gpus={gpus},overhead=1us", "1MB", pieces=4)
    assert "digits" in {scheme.name for scheme in schemes(problem)}
    check_schemes(problem)


@pytest.mark.parametrize("effort", ["quick", pytest.param("normal", marks=pytest.mark.slow)])
def test_digits_need_few_messages(effort):
    """16 GPUs, 5 us a message: 4 of them in exchanges of pairs, 16 where each owns a piece."""
    spec = "star:gpus=16,overhead=5us"
    found = teccl.solve(spec, "allreduce", size="64KB", effort=effort)
    assert found.method == "digits"
    problem = allreduce(spec, "64KB", pieces=16)
    owners = simulate(staged_schedule(problem, owned(16), Goal()))
    assert found.finish_ps < 0.6 * owners.finish_ps


def test_fewer_owners_than_gpus_send_fewer_messages():
    """8 GPUs, 0.6 us a message: four owners beat eight, and the outlook says so."""
    spec = "dgx-b200:rates=effective"
    problem = allreduce(spec, "1MB")
    expected = {n: outlook(problem, owned(8, n)).expected_ps for n in (1, 4, 8)}
    assert expected[4] < expected[8]
    assert expected[4] < expected[1]
    few, all_of_them = (
        staged_schedule(allreduce(spec, "1MB", pieces=n), owned(8, n), Goal()) for n in (4, 8)
    )
    assert verify(few) == ()
    assert simulate(few).finish_ps < simulate(all_of_them).finish_ps


def test_owners_balance_messages_against_bytes():
    """72 GPUs, 0.6 us a message and 1.385 us a buffer: the root of 71 x 1.385 / 0.6 is 12.8."""
    found = schemes(allreduce("gb300-nvl72:rates=effective", "1MB"))
    assert 13 in {len(scheme.shares) for scheme in found if scheme.name == "owners"}
    plain = schemes(allreduce("gb300-nvl72", "1MB"))
    assert {len(scheme.shares) for scheme in plain if scheme.name == "owners"} == {72}


def test_one_shot_meets_the_bound_of_connected_gpus():
    """One step is all that GPUs need that are linked with each other."""
    problem = allreduce("fully-connected:gpus=8", "1KB")
    schedule = staged_schedule(problem, one_shot(8), Goal())
    assert simulate(schedule).finish_ps == 520_000


def test_exchange_halves_the_steps_of_a_torus():
    """An exchange along both dimensions ends near the bound where two halves take twice as long."""
    result = teccl.solve("torus:dims=4x4", "allreduce", size="64KB", effort="quick")
    assert result.method == "exchange"
    assert result.finish_ps <= 1.05 * result.bound.physical_ps


def test_halving_takes_fewer_steps_than_owners_and_fewer_bytes_than_an_exchange():
    """On a 4x4 torus two of four pairings halve: six hops of 0.5 us and two buffers into a GPU."""
    problem = allreduce("torus:dims=4x4", "1MB")
    found = {len(each.shares): each for each in schemes(problem) if each.name == "halving"}
    # Each of four pairings is the first in turn; the first one, two or three have 2, 4, 8 holders.
    assert sorted(found) == [4 * 2, 4 * 4, 4 * 8]
    assert outlook(problem, found[16]).latency_ps == 6 * 500_000
    # All four links together carry 200 GB/s.
    assert outlook(problem, found[16]).expected_ps == 6 * 500_000 + 2 * 5_000_000


@pytest.mark.parametrize("spec", ["torus:dims=4x4", "torus:dims=3x4", "mesh:dims=2x5"])
def test_halving_along_factors_is_correct(spec):
    """Sums of first factors that one GPU holds for each share are whole and the same everywhere."""
    problem = allreduce(spec, "64KB", pieces=5)
    made = [each for each in schemes(problem) if each.name == "halving"]
    assert made
    for scheme in made:
        schedule = staged_schedule(problem, scheme, Goal())
        assert schedule is not None
        assert schedule.same_order
        verify(schedule, strict=True)


def test_idle_gpus_own_sums():
    """Four of twelve GPUs send a buffer and get one, where owners among them move 1.5 each way."""
    demand = Demand.collective("allreduce", size="1MB", ranks=[0, 1, 2, 3])
    star = Topology.parse("star:gpus=12")
    ends = []
    for scheme in schemes(Problem(topology=star, demand=demand, whole_buffer=True)):
        pieces = 8 * len(scheme.shares)
        problem = Problem(topology=star, demand=demand, num_chunks=pieces, whole_buffer=True)
        if scheme.name == "owners":
            schedule = staged_schedule(problem, scheme, Goal())
            assert verify(schedule) == ()
            ends.append((schedule.finish_ps, bool(scheme.helpers)))
    helped = min(end for end, has_helpers in ends if has_helpers)
    alone = min(end for end, has_helpers in ends if not has_helpers)
    assert helped < 0.85 * alone


def test_sums_of_leaves_go_straight_to_everybody():
    """Near and far latency and what ports take in: passages branch in switches, none waits."""
    leaves = [{"name": f"leaf{i}", "kind": "switch"} for i in range(2)]
    gpus = [{"name": f"gpu{i}"} for i in range(8)]
    wire = {"bandwidth": "10GB/s", "alpha": "1us", "bidirectional": True}
    links = [{"src": f"gpu{i}", "dst": f"leaf{i // 4}", **wire} for i in range(8)]
    links.append({"src": "leaf0", "dst": "leaf1", **wire})
    topology = topology_from_dict({"nodes": gpus + leaves, "links": links})
    demand = Demand.collective("allreduce", size=4096)
    problem = Problem(topology=topology, demand=demand, num_chunks=64, whole_buffer=True)
    ends = [
        schedule.finish_ps
        for scheme in schemes(problem)
        for schedule in [staged_schedule(problem, scheme, Goal(target=10**9))]
        if scheme.name == "hierarchy" and scheme.num_stages == 2
    ]
    # Three quarters and one and three quarters of a buffer enter a port, 0.41 us each.
    assert min(ends) < 1.05 * (5_000_000 + 7 * 409_600 // 4)


def test_sums_are_added_up_on_the_way_to_a_central_owner():
    """On a line a sum crosses each link once each way, in pieces that follow each other."""
    problem = allreduce("line:gpus=9,bandwidth=10GB/s,alpha=1us", "64KB", pieces=32)
    center = [each for each in schemes(problem) if each.name == "owners" and len(each.shares) == 1]
    schedule = staged_schedule(problem, center[0], Goal())
    assert schedule is not None
    verify(schedule, strict=True)
    assert len(schedule.sends) == 2 * 8 * 32
    # Eight hops, the buffer once, and a piece of 200 ns on each of seven hops more.
    assert schedule.finish_ps == 8_000_000 + 6_400_000 + 7 * 200_000


def test_fast_gpus_around_a_switch_own_sums_alone():
    """Of four GPUs one takes in three buffers while each other sends one, and ends soonest."""
    topology = Topology.parse("star:gpus=4,bandwidth=10GB/s,alpha=1us")
    links = tuple(
        replace(link, bandwidth=4 * link.bandwidth) if 3 in (link.src, link.dst) else link
        for link in topology.links
    )
    problem = replace(
        allreduce("star:gpus=4", "100KB", pieces=64), topology=replace(topology, links=links)
    )
    owners = [each for each in schemes(problem) if each.name == "owners"]
    assert [len(each.shares) for each in owners] == [4, 1]
    everybody, fast = (staged_schedule(problem, each, Goal()) for each in owners)
    assert verify(fast) == ()
    # Four hops and the buffer once, in pieces of 156 ns.
    assert fast.finish_ps < 15 * 10**6 < everybody.finish_ps


def test_ways_through_a_shared_card_are_passages_of_their_own():
    """Two GPUs behind one card are entered one after the other, not in one passage."""
    problem = allreduce("mi250:chassis=2", "64KB", pieces=2)
    schedule = staged_schedule(problem, one_shot(32), Goal())
    assert schedule is not None
    verify(schedule, strict=True)


def test_clusters_are_groups_where_all_latencies_are_equal():
    """Chassis are told apart though their GPUs are as near to those on their rails."""
    found = schemes(allreduce("dgx-h100:chassis=4,alpha=0.48us", "32KiB"))
    sizes = {len(set(each.shares[0][0].classes)) for each in found if each.name == "hierarchy"}
    assert 4 in sizes


def test_given_chunks_are_kept():
    """As many chunks as were asked for are cut from every rank's share."""
    result = teccl.solve("ring:gpus=4", "allreduce", size="1KB", chunks=1)
    assert not result.schedule.problem.whole_buffer
    assert result.schedule.problem.num_chunks == 1


def test_large_allreduces_have_owners():
    """Where bandwidth counts, every piece is summed at one place and no scheme looks better."""
    problem = allreduce("dgx-h100", "1GB")
    halves = outlook(problem, owned(8)).expected_ps
    assert min(outlook(problem, each).expected_ps for each in schemes(problem)) == halves


def graph_of(spec: str) -> dict[int, set[int]]:
    """Return who is linked with whom."""
    topology = Topology.parse(spec)
    return neighbours(topology.num_gpus, topology.link_src.tolist(), topology.link_dst.tolist())


@pytest.mark.parametrize(
    ("spec", "sides"),
    [
        ("hypercube:dimension=3", [2, 2, 2]),
        ("torus:dims=4x4", [2, 2, 2, 2]),
        ("torus:dims=3x5", [3, 5]),
        ("mesh:dims=2x3", [2, 3]),
        ("ring:gpus=8", [8]),
        ("fully-connected:gpus=5", [5]),
    ],
)
def test_factors(spec, sides):
    """Products fall into their factors, rings of four into two pairs."""
    found = product_coordinates(graph_of(spec))
    assert sorted(max(column) + 1 for column in found) == sides


def test_pairs_of_a_ring_are_neighbours():
    """A ring pairs off without rest, and another turn pairs it off the other way."""
    graph = graph_of("ring:gpus=6")
    ways = [coarsenings(graph, turn=turn, depth=1)[0] for turn in (0, 1)]
    for pairs in ways:
        mates = [[n for n in range(6) if pairs[n] == each] for each in range(3)]
        assert all(b in graph[a] for a, b in mates)
    assert ways[0] != ways[1]


def test_stages_serve_one_tenant_off_the_grid():
    """Several tenants and epochs leave the AllReduce to other strategies."""
    from teccl.synthesis.features import Features
    from teccl.synthesis.request import Request
    from teccl.synthesis.strategies.staged import Staged

    request = Request(
        topology=Topology.parse("ring:gpus=4"), demand=Demand.collective("allreduce", size=1000)
    )
    strategy = Staged(is_promising=True)
    assert strategy.refusal(Features(request)) is None
    assert strategy.refusal(Features(replace(request, grid=True))) is not None


@pytest.mark.parametrize("scheme", ["ring:gpus=4", "line:gpus=5", "hypercube:dimension=3"])
def test_late_contributions_are_waited_for_in_every_stage(scheme: str) -> None:
    """A holder of a sum that is ready last sends nothing of it before, in later stages too."""
    tenant = Tenant(
        collective=Collective.ALLREDUCE,
        size=Fraction(1000),
        ready={3: Fraction(1, 10**5), 1: Fraction(1, 10**6)},
    )
    result = teccl.solve(scheme, demand=Demand(tenants=(tenant,)), effort="quick")
    assert result.verified
    assert result.finish_ps > 10**7


def test_ways_that_need_a_shared_capacity_twice_are_no_ways():
    """GPUs whose links in and out are one card cannot be reached from beside it through a leaf."""
    nodes = [{"name": f"gpu{n}"} for n in range(4)]
    nodes += [{"name": name, "kind": "switch"} for name in ("leaf0", "leaf1", "spine")]
    wires = [(f"gpu{n}", f"leaf{n // 2}", {"shares": [f"card{n // 2}"]}) for n in range(4)]
    wires += [(f"leaf{n}", "spine", {}) for n in range(2)]
    shape = {"bandwidth": "50GB/s", "alpha": "1us", "bidirectional": True}
    links = [{"src": src, "dst": dst, **shape, **more} for src, dst, more in wires]
    shared = {f"card{n}": "50GB/s" for n in range(2)}
    network = {"schema_version": 1, "nodes": nodes, "links": links, "shared": shared}
    problem = Problem(
        topology=topology_from_dict(network),
        demand=Demand.collective("allreduce", size="64KB"),
        whole_buffer=True,
    )
    assert shallow_finish(problem, one_shot(4)) is None
