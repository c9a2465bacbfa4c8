"""Bounds in the quotient: never above what is reached, and those known for listed problems."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.orbit.drawing import COLLECTIVES, draw_problem, draw_schedule

import teccl
from teccl.bounds.summary import summarise as listed_bounds
from teccl.demand import Collective
from teccl.errors import MethodError
from teccl.orbit.bounds import for_any_chunks, summarise
from teccl.orbit.damage import Damage
from teccl.orbit.expansion import expanded_problem
from teccl.orbit.fabric import Fabric, LinkOrbit, NodeOrbit
from teccl.orbit.presets import parse_fabric
from teccl.orbit.problem import FabricProblem


def problem_of(spec: str, collective: Collective, size: int, chunks: int = 1) -> FabricProblem:
    """A problem of a preset."""
    fabric = parse_fabric(spec)
    return FabricProblem(
        fabric=fabric, collective=collective, size=Fraction(size), num_chunks=chunks
    )


@pytest.mark.parametrize("first", [0, 100])
def test_no_drawn_schedule_beats_a_bound(first):
    """Bounds hold for every correct schedule of random fabrics."""
    for seed in range(first, first + 40):
        rng = random.Random(seed)
        problem = draw_problem(rng)
        bound = summarise(problem)
        finish = draw_schedule(rng, problem).finish_ps
        assert bound.physical_ps <= finish
        assert bound.chunk_ps <= finish


SMALL = [
    *("torus:dims=3x3", "torus:dims=4x4", "ring:gpus=5", "dgx-h100:chassis=2", "star:gpus=4"),
    *("hypercube:dimension=3", "mi300x:chassis=2", "fully-connected:gpus=4", "ndv2:chassis=2"),
    *("fat-tree:k=4", "two-tier:leaves=3,gpus=4,spines=2", "two-tier:leaves=4,gpus=3,spines=1"),
    "rail-tree:pods=1,units=2,chassis=2,gpus=2,oversubscription=2",
]


@pytest.mark.parametrize("collective", COLLECTIVES, ids=str)
def test_no_solver_beats_a_bound(collective):
    """What the general solver finds is never below the bound."""
    check_against_solver("torus:dims=2x2", collective, 10**6)


@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES, ids=str)
@pytest.mark.parametrize("spec", SMALL)
@pytest.mark.parametrize("size", [10**4, 10**8])
def test_no_solver_beats_any_bound(spec, collective, size):
    """The same on other networks and for small and large sizes."""
    check_against_solver(spec, collective, size)


def check_against_solver(spec: str, collective: Collective, size: int) -> None:
    """Assert that schedules with any chunks, or one, take no less than the bound."""
    problem = problem_of(spec, collective, size)
    bound = summarise(problem)
    topology = expanded_problem(problem).topology
    for chunks in (None, 1):
        options = {} if chunks is None else {"chunks": chunks}
        result = teccl.solve(topology, collective.value, size=f"{size}B", effort="quick", **options)
        limit = bound.physical_ps if chunks is None else bound.chunk_ps
        assert result.finish_ps >= limit - result.num_sends


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        *(("torus:dims=8x8", 64 * 10**6), ("torus:dims=8x8", 64_000)),
        *(("torus:dims=4x4x4", 10**6), ("ring:gpus=7", 10**6)),
    ],
)
def test_tori_have_the_bounds_of_the_listed_problem(spec, size):
    """One chunk of an AllGather on a torus: both ways to compute it agree."""
    problem = problem_of(spec, Collective.ALLGATHER, size)
    listed = listed_bounds(expanded_problem(problem), given_chunks=True)
    found = summarise(problem)
    assert abs(found.chunk_ps - listed.chunk_ps) <= 3
    assert abs(found.physical_ps - listed.physical_ps) <= 1


def test_an_allreduce_takes_twice_what_enters_a_chassis():
    """Of 64 chassis each gets 63 parts of 64 twice, over eight network cards of 50 GB/s."""
    problem = problem_of("dgx-h100:chassis=64,alpha=0", Collective.ALLREDUCE, 8 * 10**8)
    bound = summarise(problem)
    assert bound.physical_ps == 2 * 63 * 8 * 10**8 * 10**12 // (64 * 400 * 10**9)
    scattering = replace(problem, collective=Collective.REDUCESCATTER)
    assert bound.physical_ps > summarise(scattering).physical_ps


def test_an_allreduce_of_several_orbits_enters_each_gpu_twice():
    """Where the first GPUs of two orbits share a leaf, each of them still binds."""
    problem = problem_of(
        "two-tier:leaves=4,gpus=8,spines=4,alpha=0", Collective.ALLREDUCE, 32 * 10**8
    )
    assert len(problem.fabric.gpu_orbits) == 2
    assert summarise(problem).physical_ps == 2 * 31 * 10**8 * 10**12 // (50 * 10**9)


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_each_chassis_binds_however_many_orbits_there_are(oversubscription):
    """All but 8 of 64 blocks enter a chassis over 8 cards, in an AllReduce twice on average."""
    spec = f"rail-tree:pods=1,units=2,chassis=4,alpha=0,oversubscription={oversubscription}"
    problem = problem_of(spec, Collective.ALLGATHER, 64 * 10**6)
    assert len(problem.fabric.gpu_orbits) == oversubscription
    assert summarise(problem).physical_ps == 56 * 10**6 * 10**12 // (8 * 50 * 10**9)
    adding = replace(problem, collective=Collective.ALLREDUCE)
    assert summarise(adding).physical_ps == 2 * 56 * 10**6 * 10**12 // (8 * 50 * 10**9)


def test_a_pod_is_bound_by_its_links_to_the_core():
    """What leaves a pod crosses the switches above its leaves, which are counted as its own."""
    problem = problem_of("fat-tree:k=4,alpha=0", Collective.ALLTOALL, 16 * 10**6)
    slow = tuple(
        replace(link, bandwidth=link.bandwidth / 4)
        if {problem.fabric.nodes[end].name[:4] for end in (link.src, link.dst)} == {"core", "pod{"}
        else link
        for link in problem.fabric.links
    )
    narrow = replace(problem, fabric=replace(problem.fabric, links=slow))
    assert "links into 4 gpus around" in summarise(narrow).certificate
    assert summarise(narrow).physical_ps == 4 * 12 * 10**6 // 4 * 10**12 // (50 * 10**9 // 4)


def test_a_row_of_a_torus_is_bound_by_a_slow_axis():
    """Without switches cosets are looked at, too: 56 chunks enter a row of 8 over 16 slow links."""
    problem = problem_of("torus:dims=8x8,alpha=0", Collective.ALLGATHER, 64 * 10**6)
    slow = tuple(
        replace(link, bandwidth=link.bandwidth / 10) if link.offset[0] else link
        for link in problem.fabric.links
    )
    narrow = replace(problem, fabric=replace(problem.fabric, links=slow))
    assert summarise(narrow).physical_ps == 56 * 10**6 * 10**12 // (16 * 5 * 10**9)


@pytest.mark.parametrize(("places", "crossing"), [(8, 4 * 4 * 3 * 3), (5, 2 * 3 * 3 * 3)])
def test_half_of_an_axis_binds_an_alltoall(places, crossing):
    """What one half of a long axis sends to the other crosses six links, three at either end."""
    spec = f"torus:dims={places}x3,alpha=0"
    problem = problem_of(spec, Collective.ALLTOALL, 3 * places * 10**6)
    assert summarise(problem).physical_ps == crossing * 10**6 * 10**12 // (6 * 50 * 10**9)


def test_the_farthest_way_binds_a_small_alltoall():
    """Four and four steps of half a microsecond, and 64 bytes hardly add to that."""
    small = summarise(problem_of("torus:dims=8x8,alpha=500ns", Collective.ALLTOALL, 64))
    assert small.physical_ps >= 4_000_000
    assert "of way from gpu36 to gpu0" in small.certificate


def test_certificates_name_what_binds():
    """A cut names its links, a way its ends."""
    wide = summarise(problem_of("torus:dims=8x8", Collective.ALLGATHER, 64 * 10**6))
    assert wide.certificate == "59 chunks must cross 4 links into gpu0, none before 20.5 us"
    far = summarise(problem_of("torus:dims=8x8", Collective.ALLGATHER, 64))
    assert "of way from gpu36 to gpu0" in far.certificate


def apart() -> Fabric:
    """Two circles of four GPUs each, which no link joins."""
    return Fabric(
        name="apart",
        moduli=(4,),
        nodes=tuple(NodeOrbit(name=f"{name}{{n}}", moduli=(4,)) for name in "gh"),
        links=tuple(
            LinkOrbit(src=i, dst=i, offset=(1,), bandwidth=Fraction(10**9)) for i in range(2)
        ),
    )


@pytest.mark.parametrize("collective", COLLECTIVES, ids=str)
@pytest.mark.parametrize("kept", [1, 2])
def test_gpus_that_nothing_joins_are_refused(collective, kept):
    """What no schedule can do has no bound: a GPU without links, and circles that do not meet."""
    fabric = replace(apart(), links=apart().links[:kept])
    problem = FabricProblem(fabric=fabric, collective=collective, size=Fraction(10**6))
    for bound in (summarise, for_any_chunks):
        with pytest.raises(MethodError, match="links do not join"):
            bound(problem)


@pytest.mark.parametrize("collective", COLLECTIVES, ids=str)
def test_a_gpu_that_damage_cuts_off_is_refused(collective):
    """No time is enough to reach it."""
    problem = problem_of("dgx-h100:chassis=4", collective, 10**6)
    damage = Damage.of(problem.fabric, down=["c0/gpu0:*"])
    with pytest.raises(MethodError, match=r"links do not join .*c0/gpu0"):
        for_any_chunks(problem, damage)


@pytest.mark.parametrize("collective", [Collective.ALLGATHER, Collective.REDUCESCATTER], ids=str)
@pytest.mark.parametrize(("rate", "size"), [(1013, 69651254), (1009, 80003263), (1013, 92779632)])
def test_bounds_of_days_are_exact(collective, rate, size):
    """Ways of more picoseconds than floats hold are not rounded up: one step takes no longer."""
    problem = problem_of(f"ring:gpus=3,bandwidth={rate}B/s,alpha=0", collective, size)
    step = Fraction(size * 10**12, 3 * rate)
    assert step - 8 < summarise(problem).chunk_ps <= step
