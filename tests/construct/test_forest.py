"""Forests: trees at the optimal rate, and plans that repeat them."""

import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import teccl
from teccl.construct.forest import Forest, aims_of, best_forest, best_rate
from teccl.construct.forest_plans import ForestTimes, forest_plan
from teccl.construct.realise import realise
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.forests import Forests
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict
from teccl.verification import verify

GRAPHS = Path(__file__).parents[2] / "benchmarks" / "data" / "forestcoll"
# What ForestColl proves of each graph, in GB/s of all GPUs together.
OPTIMUM = {
    "a100x1": Fraction(2400, 7),
    "a100x2": Fraction(1040, 3),
    "a100x4": Fraction(800, 3),
    "mi250x1": Fraction(2400, 7),
    "mi250x2": Fraction(5312, 15),
    "mi250x4": Fraction(1024, 3),
    "h100x2": Fraction(1600, 3),
}
SPANNING = ["allgather", "reducescatter", "broadcast", "reduce", "allreduce"]
# The cousins of those graphs that a test can afford.
SMALL = ["dgx1", "star:gpus=5", "dgx-h100:chassis=2", "torus:dims=3x3", "ring:gpus=4"]


def make(topology: str | Topology, collective: str, **options: Any) -> Problem:
    """Return a large collective, all of it on a preset or a topology."""
    network = Topology.parse(topology) if isinstance(topology, str) else topology
    return Problem(topology=network, demand=Demand.collective(collective, size="1GB"), **options)


def random_machine(rng: random.Random) -> Topology:
    """Return GPUs, some behind switches, with links of mixed rates both ways."""
    gpus = [f"g{i}" for i in range(rng.randint(3, 6))]
    switches = [f"s{i}" for i in range(rng.randint(0, 2))]
    names = gpus + switches
    pairs = {(gpus[i], gpus[i - 1]) for i in range(1, len(gpus)) if rng.random() < 0.6}
    pairs |= {(gpu, rng.choice(switches)) for gpu in gpus if switches}
    pairs |= {tuple(rng.sample(names, 2)) for _ in range(len(names))}
    links = []
    for a, b in sorted(pairs):
        rate = f"{rng.choice([10, 20, 25, 50])}GB/s"
        links += [{"src": x, "dst": y, "bandwidth": rate} for x, y in ((a, b), (b, a))]
    unique = {(link["src"], link["dst"]): link for link in links}
    nodes = [{"name": name} for name in gpus] + [{"name": s, "kind": "switch"} for s in switches]
    return topology_from_dict({"nodes": nodes, "links": list(unique.values())})


def assert_exact(problem: Problem, forest: Forest) -> None:
    """Every tree spans the members, and no link is held for longer than the period."""
    topology, halves = problem.topology, aims_of(problem)
    held: Counter[int] = Counter()
    for chunk, hops in enumerate(forest.trees):
        for aim in halves:
            part = [hop for hop in hops if hop.reduce is aim.reduce]
            # Whoever adds up a piece that all want is free to choose.
            is_free = len(halves) > 1
            first = part[-1].dst if aim.reduce else part[0].src
            reached = {first if is_free else aim.roots[chunk // forest.pieces]}
            for hop in reversed(part) if aim.reduce else part:
                near, far = (hop.dst, hop.src) if aim.reduce else (hop.src, hop.dst)
                assert near in reached
                assert far not in reached
                reached.add(far)
            assert reached >= set(aim.members)
        held.update(link for hop in hops for link in hop.way)
    for link, count in held.items():
        assert count * forest.rate <= forest.pieces * topology.rate(topology.links[link])


def assert_right(problem: Problem, forest: Forest) -> None:
    """What is made of a forest's trees is a correct schedule."""
    assert not verify(realise(*forest_plan(problem, forest), method="construct"))


def finish_of(problem: Problem) -> tuple[int, ForestTimes]:
    """Return when the plan of a forest ends, and how long its data and its ways take."""
    forest = best_forest(problem, problem.num_chunks)
    assert forest is not None
    return forest_plan(problem, forest)[1].finish, ForestTimes.of(problem, forest)


@pytest.mark.parametrize("graph", sorted(OPTIMUM))
def test_rate_of_known_graphs_is_the_optimum(graph: str):
    """The rate of ForestColl's graphs is what they are proven to allow, as a fraction."""
    topology = Topology.parse(GRAPHS / f"{graph}.yaml")
    rate = best_rate(make(topology, "allgather"))
    assert rate is not None
    assert rate * topology.num_gpus == OPTIMUM[graph] * 10**9


@pytest.mark.parametrize("graph", ["a100x1", "mi250x1", "h100x2"])
def test_period_of_known_graphs_is_exact(graph: str):
    """The trees of ForestColl's graphs are whole ones at that very rate."""
    problem = make(Topology.parse(GRAPHS / f"{graph}.yaml"), "allgather")
    forest = best_forest(problem, 100)
    assert forest is not None
    assert forest.rate == best_rate(problem)
    assert_exact(problem, forest)


@pytest.mark.parametrize("collective", SPANNING)
@pytest.mark.parametrize("topology", SMALL)
def test_trees_span_and_fit_the_period(topology: str, collective: str):
    """Each collective's trees reach everybody, within what links carry in a period."""
    problem = make(topology, collective)
    forest = best_forest(problem, 100)
    assert forest is not None
    assert_exact(problem, forest)


@pytest.mark.parametrize("seed", range(5))
def test_trees_of_random_machines_fit_and_schedules_are_right(seed: int):
    """On random machines with switches trees are exact and what is made of them is verified."""
    rng = random.Random(seed)
    for _ in range(8):
        topology, collective = random_machine(rng), rng.choice(SPANNING)
        problem = make(topology, collective)
        forest = best_forest(problem, 64)
        if forest is None:
            continue
        assert_exact(problem, forest)
        repeated = make(topology, collective, num_chunks=2 * forest.pieces)
        assert_right(repeated, forest)


def test_relays_that_want_nothing_pass_on():
    """A sub-group whose GPUs reach each other by others only has trees over these."""
    demand = Demand.collective("allgather", size="1GB", ranks=[0, 2, 4])
    problem = Problem(topology=Topology.parse("ring:gpus=6"), demand=demand, num_chunks=2)
    forest = best_forest(problem, 64)
    assert forest is not None
    assert forest.rate == Fraction(100, 2) * 10**9
    assert_right(problem, forest)


def test_twice_the_pieces_halve_what_the_ends_take():
    """Beyond the exact period only the ends are left, which shrink with the pieces."""
    topology = Topology.parse(GRAPHS / "mi250x1.yaml")
    gaps = []
    for pieces in (48, 96):
        finish, times = finish_of(make(topology, "allgather", num_chunks=pieces))
        gaps.append(finish - times.load_ps)
    assert 0 < gaps[1] < 0.6 * gaps[0]


def test_ports_of_a_full_switch_are_never_idle():
    """Matched in rounds, a star's ports are busy without a break from the first arrival on."""
    problem = make("star:gpus=6", "allgather", num_chunks=4)
    hold, alpha = int(problem.hold_ps[0, 0]), int(problem.topology.alpha_ps[0])
    assert finish_of(problem)[0] == (20 + 1) * hold + 2 * alpha


def slow_corner() -> Topology:
    """Return four connected GPUs, one of which has links of a tenth of the others' rate."""
    rates = {(a, b): 10 if 3 in (a, b) else 100 for a in range(4) for b in range(4) if a != b}
    links = [
        {"src": f"gpu{a}", "dst": f"gpu{b}", "bandwidth": f"{rate}GB/s"}
        for (a, b), rate in rates.items()
    ]
    return topology_from_dict({"nodes": 4, "links": links})


def test_sums_and_results_share_links_around_a_slow_gpu():
    """A slow GPU sends its own and takes the results at once, and adds up nothing for others.

    Its three links carry 30 GB/s either way, so nothing is faster than the buffer at 30 GB/s; in
    two halves, of which each has the links to itself, it would be about half of that.
    """
    problem = make(slow_corner(), "allreduce")
    forest = best_forest(problem, 64)
    assert forest is not None
    assert 4 * forest.rate > Fraction(99, 100) * 30 * 10**9
    assert_exact(problem, forest)
    assert_right(make(slow_corner(), "allreduce", num_chunks=forest.pieces), forest)


def test_rates_without_a_common_measure_are_rounded_to_few_pieces():
    """Where the exact rate needs thousands of pieces, a hundred come close to it."""
    links = [
        {"src": f"gpu{a}", "dst": f"gpu{b}", "bandwidth": f"{97 + 10 * a + b}.{7 * a + b}GB/s"}
        for a in range(4)
        for b in range(4)
        if a != b
    ]
    problem = make(topology_from_dict({"nodes": 4, "links": links}), "allgather")
    best = best_rate(problem)
    assert best is not None
    assert best.numerator > 100
    forest = best_forest(problem, 100)
    assert forest is not None
    assert not forest.is_optimal
    assert Fraction(98, 100) * best < forest.rate <= best
    assert_exact(problem, forest)


@pytest.mark.parametrize("topology", ["ring:gpus=4", "star:gpus=5", "dgx1"])
def test_all_pieces_follow_a_few_where_their_order_keeps_links_busy(topology: str):
    """Rounds and direct links waste nothing, so that both turns are made, each a schedule."""
    request = Request(
        topology=Topology.parse(topology), demand=Demand.collective("allgather", size=10**9)
    )
    search = Search(request=request, started=0.0)
    search.bound = search.prove(request.problem(1), narrow=False)
    # So little that all pieces are too much for a first try.
    search.budget.total = 1_000_000
    assert len(list(Forests(is_promising=True).attempts(search))) == 2
    few, many = sorted(search.incumbents)[-2:]
    assert search.incumbents.fastest == search.incumbents.get(many).finish_ps
    assert few < many


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["allgather", "reducescatter"])
@pytest.mark.parametrize("graph", sorted(OPTIMUM))
def test_large_collectives_are_within_half_a_per_cent(graph: str, collective: str):
    """At 64 GB `auto` ends within half a per cent of the optimum of ForestColl's graphs."""
    topology = Topology.parse(GRAPHS / f"{graph}.yaml")
    result = teccl.solve(topology, collective, size="64GB")
    optimum_ps = 64 * 10**12 / OPTIMUM[graph]
    assert optimum_ps <= result.finish_ps <= optimum_ps * Fraction(1005, 1000)
    assert result.message is not None
    assert "as much as any schedule" in result.message
