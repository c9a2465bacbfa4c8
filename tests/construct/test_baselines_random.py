"""Baselines on random networks: whatever is served is solved correctly."""

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from teccl.construct.baselines import build_baseline, serving_baselines
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.errors import MethodError
from teccl.problem import Problem, SwitchMode, Transit
from teccl.reachability import find_unreachable
from teccl.replay import simulate
from teccl.topology import Link, Node, NodeKind, Topology
from teccl.verification import verify

GB = 10**9
RATES = [Fraction(r) * GB for r in (10, 12, 25, Fraction(100, 3))]
ALPHAS = [Fraction(a, 10**7) for a in (0, 1, 7)]
PROFILE = ((Fraction(1, 10**6), Fraction(5 * GB)), (Fraction(3, 10**6), Fraction(40 * GB)))
PLAIN = [c for c in Collective if c not in (Collective.ALLTOALLV, Collective.EXPLICIT)]


@st.composite
def topologies(draw, *, profiles=False):
    """Strongly connected networks of up to seven GPUs and three switches in any order."""
    gpus, switches = draw(st.integers(2, 7)), draw(st.integers(0, 3))
    kinds = draw(st.permutations([NodeKind.GPU] * gpus + [NodeKind.SWITCH] * switches))
    nodes = tuple(Node(name=f"n{i}", kind=kind) for i, kind in enumerate(kinds))
    shared = draw(st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(RATES)))
    loop = draw(st.permutations(range(len(nodes))))
    pairs = list(zip(loop, [*loop[1:], loop[0]], strict=True))
    anywhere = st.integers(0, len(nodes) - 1)
    more = draw(st.lists(st.tuples(anywhere, anywhere), max_size=3 * len(nodes)))
    links = tuple(
        Link(
            src=src,
            dst=dst,
            bandwidth=draw(st.sampled_from(RATES)),
            alpha=draw(st.sampled_from(ALPHAS)),
            profile=PROFILE if profiles and draw(st.booleans()) else (),
            shares=tuple(draw(st.sets(st.sampled_from(sorted(shared))))) if shared else (),
        )
        for src, dst in pairs + more
        if src != dst
    )
    return Topology(name="random", nodes=nodes, links=links, shared=shared)


@st.composite
def tenants(draw, num_gpus, name):
    """Any collective on any of the ranks, perhaps with late ones."""
    ranks = draw(st.permutations(range(num_gpus)))[: draw(st.integers(2, num_gpus))]
    collective = draw(st.sampled_from([*PLAIN, Collective.EXPLICIT]))
    chunks = None
    if collective is Collective.EXPLICIT:
        some = st.lists(st.sampled_from(ranks), min_size=1, max_size=4, unique=True).map(tuple)
        chunk = st.builds(ExplicitChunk, some, some, st.booleans(), size=st.none())
        chunks = tuple(draw(st.lists(chunk, min_size=1, max_size=3)))
    late = st.dictionaries(st.sampled_from(ranks), st.integers(0, 30).map(lambda t: t * ALPHAS[1]))
    return Tenant(
        collective=collective,
        size=Fraction(draw(st.sampled_from([1000, 100_000]))),
        ranks=tuple(ranks),
        root=draw(st.sampled_from(ranks)) if collective.has_root else None,
        name=name,
        ready=draw(late),
        chunks=chunks,
    )


@st.composite
def problems(draw, *, profiles=False):
    """Problems in every mode."""
    topology = draw(topologies(profiles=profiles))
    names = [f"tenant{i}" for i in range(draw(st.sampled_from([1, 1, 1, 2])))]
    demand = Demand(tenants=tuple(draw(tenants(topology.num_gpus, name)) for name in names))
    switches = [SwitchMode.COPY, SwitchMode.NO_COPY] if profiles else list(SwitchMode)
    transits = [Transit.STORE_AND_FORWARD] if profiles else list(Transit)
    return Problem(
        topology=topology,
        demand=demand,
        num_chunks=draw(st.integers(1, 3)),
        switch=draw(st.sampled_from(switches)),
        transit=draw(st.sampled_from(transits)),
        copy=draw(st.sampled_from([True, True, True, False])),
    )


def check(problem):
    """Build, verify and replay everything that serves a problem."""
    # The networks are connected; a circuit may still not hold a shared capacity twice.
    if problem.topology.shared:
        assume(find_unreachable(problem) is None)
    assert find_unreachable(problem) is None
    for name in serving_baselines(problem):
        try:
            schedule = build_baseline(name, problem)
        except MethodError:
            # The only reason left: a circuit that would hold a shared capacity twice.
            assert problem.topology.shared
            continue
        assert not verify(schedule), name
        replay = simulate(schedule)
        assert not verify(replay.schedule), name
        assert replay.finish_ps <= schedule.finish_ps, name


@given(problem=problems())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_random_problems_are_solved(problem):
    """On random networks in every mode all baselines are correct."""
    check(problem)


@given(problem=problems(profiles=True))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_problems_with_profiles_are_solved(problem):
    """Bandwidths that change over time are kept too."""
    check(problem)


@pytest.mark.slow
@given(problem=st.booleans().flatmap(lambda profiles: problems(profiles=profiles)))
@settings(
    max_examples=5000,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_many_random_problems_are_solved(problem):
    """The same on five thousand problems."""
    check(problem)
