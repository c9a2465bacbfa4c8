"""Baselines: hand-computed finish times, correctness everywhere, and what they refuse."""

from fractions import Fraction

import numpy as np
import pytest

import teccl
from teccl.construct.baselines import BASELINES, build_baseline, serving_baselines
from teccl.construct.baselines.binomial_tree import tree_rounds
from teccl.construct.baselines.double_binary_tree import allreduce_trees, rooted_trees
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.errors import MethodError
from teccl.problem import Problem, SwitchMode, Transit
from teccl.replay import simulate
from teccl.topology import Link, Node, Topology
from teccl.verification import verify

NS = 1000
# 50 KB at 50 GB/s: what one chunk takes on the generic presets, beside 500 ns of latency.
CHUNK = 50_000
SENT = 1000 * NS
HOP = SENT + 500 * NS

COLLECTIVES = (
    "allgather",
    "alltoall",
    "reducescatter",
    "allreduce",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "scattergather",
)
SERVED = {
    "allgather": {"ring", "recursive-doubling", "shortest-path"},
    "alltoall": {"shortest-path"},
    "reducescatter": {"ring", "recursive-doubling", "shortest-path"},
    "allreduce": set(BASELINES),
    "broadcast": {"ring", "binomial-tree", "double-binary-tree", "shortest-path"},
    "reduce": {"ring", "binomial-tree", "double-binary-tree", "shortest-path"},
    "scatter": {"binomial-tree", "shortest-path"},
    "gather": {"binomial-tree", "shortest-path"},
    "scattergather": {"shortest-path"},
}
TOPOLOGIES = (
    "dgx1",
    "ndv2:chassis=2",
    "ndv2:chassis=3",
    "dgx2:chassis=2",
    "internal1:chassis=2",
    "internal2:chassis=3",
    "dgx-h100:chassis=2",
    "torus:dims=3x3",
    "mesh:dims=2x3",
    "star:gpus=5",
    "ring:gpus=2",
    "line:gpus=4",
    "hypercube:dimension=3",
    "fat-tree:k=4",
    "random:gpus=9,degree=4",
)
MODES = [(switch, transit) for switch in SwitchMode for transit in Transit]


def problem_of(spec, collective, *, size=None, num_chunks=1, demand=None, **options):
    topology = Topology.parse(spec)
    demand = demand or Demand.collective(collective, size=size or "1MB")
    return Problem(topology=topology, demand=demand, num_chunks=num_chunks, **options)


def finish(name, problem):
    """Finish of a baseline's exact replay, which must be correct."""
    replay = simulate(build_baseline(name, problem))
    assert not verify(replay.schedule)
    return replay.finish_ps


def check_all(problem):
    """Every baseline that serves a problem solves it, and its replay is no later."""
    for name in serving_baselines(problem):
        schedule = build_baseline(name, problem)
        assert not verify(schedule), name
        replay = simulate(schedule)
        assert not verify(replay.schedule), name
        assert replay.finish_ps <= schedule.finish_ps, name


@pytest.mark.parametrize("alpha_ns", [0, 500])
@pytest.mark.parametrize("n", range(2, 17))
def test_ring_allgather_takes_a_round_per_other_member(n, alpha_ns):
    """AllGather on a ring takes (n - 1) (alpha + S / (n C))."""
    problem = problem_of(f"ring:gpus={n},alpha={alpha_ns}ns", "allgather", size=n * CHUNK)
    assert finish("ring", problem) == (n - 1) * (SENT + alpha_ns * NS)


@pytest.mark.parametrize("n", range(2, 17))
def test_ring_reducescatter_takes_as_long_as_allgather(n):
    """ReduceScatter on a ring takes (n - 1) (alpha + S / (n C))."""
    problem = problem_of(f"ring:gpus={n}", "reducescatter", size=n * CHUNK)
    assert finish("ring", problem) == (n - 1) * HOP


@pytest.mark.parametrize("alpha_ns", [0, 500])
@pytest.mark.parametrize("n", range(2, 17))
def test_ring_allreduce_goes_round_twice(n, alpha_ns):
    """AllReduce on a ring takes 2 (n - 1) (alpha + S / (n C))."""
    problem = problem_of(f"ring:gpus={n},alpha={alpha_ns}ns", "allreduce", size=n * CHUNK)
    assert finish("ring", problem) == 2 * (n - 1) * (SENT + alpha_ns * NS)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("num_chunks", [1, 4])
def test_ring_chain_is_a_pipeline(collective, num_chunks):
    """Broadcast and Reduce on a ring fill a pipeline of n - 1 hops."""
    size = num_chunks * CHUNK
    problem = problem_of("ring:gpus=5", collective, size=size, num_chunks=num_chunks)
    assert finish("ring", problem) == 4 * HOP + (num_chunks - 1) * SENT


def test_ring_with_several_chunks_hides_the_latency():
    """With two chunks per block a link is busy all the time while the other chunk arrives."""
    problem = problem_of("ring:gpus=4", "allgather", size=8 * CHUNK, num_chunks=2)
    assert finish("ring", problem) == 6 * SENT + 500 * NS


def test_recursive_doubling_of_two_is_an_exchange():
    """Two members swap their blocks in one hop."""
    assert (
        finish("recursive-doubling", problem_of("ring:gpus=2", "allgather", size=2 * CHUNK)) == HOP
    )


def test_recursive_doubling_on_a_cube_is_bound_by_its_last_round():
    """The last of three rounds sends four chunks over one link and waits once for the second."""
    problem = problem_of("hypercube:dimension=3", "allgather", size=8 * CHUNK)
    assert finish("recursive-doubling", problem) == 4 * SENT + 2 * 500 * NS


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_binomial_tree_of_eight_is_three_deep(collective):
    """With a link to everyone all children are served at once, and three hops lead to the last."""
    problem = problem_of("fully-connected:gpus=8", collective, size=CHUNK)
    assert finish("binomial-tree", problem) == 3 * HOP


def test_binomial_scatter_sends_whole_subtrees():
    """The first child of eight gets four blocks one after another; the last two hop on."""
    problem = problem_of("fully-connected:gpus=8", "scatter", size=8 * CHUNK)
    schedule = build_baseline("binomial-tree", problem)
    assert len(schedule) == 4 + 2 + 1 + 2 + 1 + 1 + 1
    assert finish("binomial-tree", problem) == 3 * HOP + 3 * SENT


def test_shortest_path_alltoall_on_a_line():
    """The long ways go first, and the short ones fit before and behind them."""
    problem = problem_of("line:gpus=3", "alltoall", size=3 * CHUNK)
    schedule = build_baseline("shortest-path", problem)
    assert len(schedule) == 8
    assert finish("shortest-path", problem) == 2 * HOP


def test_shortest_path_does_not_copy():
    """A broadcast sends the chunk once for every destination beyond a link."""
    problem = problem_of("line:gpus=4", "broadcast", size=CHUNK, copy=False)
    schedule = build_baseline("shortest-path", problem)
    first = problem.topology.find_links("gpu0>gpu1")[0]
    assert (schedule.sends["link"] == first).sum() == 3
    assert not verify(schedule)


@pytest.mark.parametrize(("size", "hops"), [(100, 1), (10**6, 2)])
def test_shortest_path_prefers_the_cheaper_way_for_the_chunk(size, hops):
    """A small chunk takes the narrow link with little latency, a large one the wide way round."""
    chunks = (ExplicitChunk((0,), (1,)),)
    tenant = Tenant(collective=Collective.EXPLICIT, size=Fraction(size), chunks=chunks)
    topology = Topology.parse("ring:gpus=3").degraded({"gpu0:gpu1": Fraction(1, 10)})
    problem = Problem(topology=topology, demand=Demand(tenants=(tenant,)))
    assert len(build_baseline("shortest-path", problem)) == hops


@pytest.mark.parametrize("n", range(2, 20))
def test_binomial_tree_reaches_everyone_once(n):
    """Each place but the root is the child of one parent that was served before."""
    served = {0}
    for pairs in tree_rounds(n):
        for parent, child in pairs:
            assert parent in served
            assert child not in served
            served.add(child)
    assert served == set(range(n))


@pytest.mark.parametrize("trees", [allreduce_trees, rooted_trees])
@pytest.mark.parametrize("n", range(2, 34))
def test_double_binary_trees_span_and_swap_leaves(n, trees):
    """Both trees reach everyone with two children at most, and inner places of one are leaves."""
    inner = []
    for edges in trees(n):
        children = [child for _, child in edges]
        parents = [parent for parent, _ in edges]
        root = parents[0]
        assert sorted([root, *children]) == list(range(n))
        assert max(parents.count(parent) for parent in parents) <= 2
        inner.append({parent for parent in parents if parent != root})
    # With an odd number of places below the roots one cannot be a leaf of either.
    assert len(inner[0] & inner[1]) <= 1


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_collectives_are_served_by_the_baselines_meant_for_them(collective):
    """Among eight GPUs with a link to each other the served pairs are those of the table."""
    problem = problem_of("fully-connected:gpus=8", collective)
    assert set(serving_baselines(problem)) == SERVED[collective]


@pytest.mark.parametrize("num_chunks", [1, 3])
@pytest.mark.parametrize("spec", TOPOLOGIES)
def test_every_baseline_is_correct(spec, num_chunks):
    """Whatever a baseline serves it solves correctly, also for sizes that do not divide."""
    for collective in COLLECTIVES:
        check_all(problem_of(spec, collective, size=100_001, num_chunks=num_chunks))


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(("switch", "transit"), MODES)
@pytest.mark.parametrize("spec", ["star:gpus=4", "internal2:chassis=2", "dgx2:chassis=1"])
def test_every_baseline_keeps_the_switch_rules(spec, switch, transit, collective):
    """All switch and transit modes are kept."""
    check_all(problem_of(spec, collective, num_chunks=2, switch=switch, transit=transit))


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("spec", ["dgx1", "torus:dims=3x3", "internal1:chassis=2"])
def test_sub_groups_relay_through_others(spec, collective):
    """Members that are not neighbours reach each other through GPUs that take no part."""
    demand = Demand.collective(collective, size="1MB", ranks=[6, 0, 3, 5], ready={3: "2us"})
    check_all(problem_of(spec, collective, demand=demand, num_chunks=2))


@pytest.mark.parametrize("collective", ["allgather", "reduce", "allreduce"])
def test_late_ranks_are_waited_for(collective):
    """No baseline finishes before the data of a late rank can have left it."""
    demand = Demand.collective(collective, size="1MB", ready={2: "1ms"})
    problem = problem_of("fully-connected:gpus=4", collective, demand=demand)
    for name in serving_baselines(problem):
        assert finish(name, problem) > 10**9


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_without_copies_only_shortest_paths_serve(collective):
    """Where GPUs may not copy the other baselines step back; sums for all need copies."""
    problem = problem_of("ring:gpus=4", collective, copy=False)
    serves = [] if Collective(collective) is Collective.ALLREDUCE else ["shortest-path"]
    assert serving_baselines(problem) == serves
    check_all(problem)


def test_several_tenants_share_the_network():
    """Shortest paths serve tenants with different collectives, sizes and ready times."""
    tenants = (
        Tenant(collective=Collective.ALLTOALL, size=Fraction(10**6), name="a", ranks=(0, 1, 2)),
        Tenant(
            collective=Collective.ALLREDUCE, size=Fraction(10**5), name="b", priority=Fraction(3)
        ),
        Tenant(
            collective=Collective.BROADCAST,
            size=Fraction(77),
            name="c",
            ready={0: Fraction(1, 10**6)},
        ),
    )
    problem = problem_of("dgx1", None, demand=Demand(tenants=tenants), num_chunks=2)
    assert serving_baselines(problem) == ["shortest-path"]
    check_all(problem)


def test_matrix_and_explicit_demands_are_served_by_shortest_paths():
    """AllToAllv, and sums and copies chunk by chunk, are delivered."""
    matrix = [[0, 70_000, 1], [0, 0, 30_000], [500, 0, 0]]
    check_all(problem_of("ring:gpus=3", None, demand=Demand.collective("alltoallv", matrix=matrix)))
    chunks = (
        ExplicitChunk((0, 2), (1, 3), reduce=True),
        ExplicitChunk((1, 4), (0, 3)),
        ExplicitChunk((3,), (3, 5)),
    )
    tenant = Tenant(collective=Collective.EXPLICIT, size=Fraction(5000), chunks=chunks)
    check_all(problem_of("torus:dims=2x3", None, demand=Demand(tenants=(tenant,)), num_chunks=2))


def test_ring_avoids_the_narrow_links():
    """On a DGX-1 the ring keeps to the double links of 50 GB/s."""
    problem = problem_of("dgx1", "allgather")
    used = {int(link) for link in build_baseline("ring", problem).sends["link"]}
    assert {problem.topology.links[link].bandwidth for link in used} == {Fraction(50 * 10**9)}


@pytest.mark.parametrize(
    ("name", "spec", "collective", "options", "reason"),
    [
        ("ring", "ring:gpus=4", "alltoall", {}, "does not serve alltoall; use auto, shortest-path"),
        ("ring", "line:gpus=4", "allgather", {}, "finds no ring .* use auto, recursive-doubling"),
        ("ring", "mesh:dims=3x3", "allgather", {}, "finds no ring .* use auto, shortest-path"),
        ("recursive-doubling", "ring:gpus=6", "allgather", {}, "a power of two .* not 6; use auto"),
        ("recursive-doubling", "line:gpus=4", "reducescatter", {}, "no way for partial sums"),
        ("binomial-tree", "line:gpus=4", "reduce", {}, "no way for partial sums from gpu2 to gpu0"),
        ("ring", "ring:gpus=4", "allgather", {"buffer": 0}, "no buffer limit; use auto, construct"),
        ("ring", "ring:gpus=4", "allgather", {"copy": False}, "forbids; use auto, shortest-path"),
    ],
)
def test_pairs_that_are_not_served_name_others(name, spec, collective, options, reason):
    """A baseline that does not fit says why and names methods that do, which indeed do."""
    problem = problem_of(spec, collective, **options)
    with pytest.raises(MethodError, match=reason) as caught:
        build_baseline(name, problem)
    assert "\n" not in str(caught.value)
    for other in serving_baselines(problem):
        assert other in str(caught.value)
        build_baseline(other, problem)


def test_partial_sums_do_not_mix_in_a_relay():
    """Two sums that would wait in the same GPU outside the group are refused."""
    spokes = [(0, i) for i in range(1, 5)]
    hub = Topology(
        name="hub",
        nodes=tuple(Node(name=f"gpu{i}") for i in range(5)),
        links=tuple(
            Link(src=src, dst=dst, bandwidth=Fraction(10**9))
            for pair in spokes
            for src, dst in (pair, pair[::-1])
        ),
    )
    demand = Demand.collective("reduce", size="1MB", ranks=[1, 2, 3, 4])
    problem = Problem(topology=hub, demand=demand)
    with pytest.raises(MethodError, match="mix partial sums in gpu0"):
        build_baseline("binomial-tree", problem)
    check_all(problem)


def test_unknown_baseline_suggests_the_nearest():
    """A misspelt baseline is refused with the right spelling."""
    with pytest.raises(MethodError, match="did you mean 'ring'"):
        build_baseline("rings", problem_of("ring:gpus=4", "allgather"))


@pytest.mark.parametrize("name", BASELINES)
def test_same_problem_gives_the_same_sends(name):
    """Building twice gives equal arrays."""
    problem = problem_of("fully-connected:gpus=8", "allreduce", num_chunks=2)
    first, second = build_baseline(name, problem), build_baseline(name, problem)
    assert np.array_equal(first.sends, second.sends)


def one_way(links: list[tuple[int, int]], wanted: tuple[int, ...]) -> Problem:
    """GPU 0's and 1's data summed for some GPUs of a network with links of one direction only."""
    topology = Topology(
        name="one-way",
        nodes=tuple(Node(name=f"gpu{i}") for i in range(4)),
        links=tuple(Link(src=a, dst=b, bandwidth=Fraction(10**9)) for a, b in links),
    )
    tenant = Tenant(
        collective=Collective.EXPLICIT,
        size=Fraction(1000),
        chunks=(ExplicitChunk((0, 1), wanted, reduce=True),),
    )
    return Problem(topology=topology, demand=Demand(tenants=(tenant,)))


def test_sums_are_made_where_all_that_want_them_can_be_reached_from():
    problem = one_way([(0, 1), (1, 3), (0, 3), (3, 2)], (2, 3))
    result = teccl.solve(problem.topology, demand=problem.demand)
    assert result.verified
    assert not verify(build_baseline("shortest-path", problem))


def test_sums_that_no_place_serves_are_refused():
    problem = one_way([(0, 1), (1, 3), (1, 2)], (2, 3))
    with pytest.raises(MethodError, match="not all others can be reached"):
        build_baseline("shortest-path", problem)
    with pytest.raises(MethodError, match="no construction serves"):
        teccl.solve(problem.topology, demand=problem.demand)
