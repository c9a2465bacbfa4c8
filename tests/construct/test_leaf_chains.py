"""Leaf chains: pieces stream from leaf to leaf without a gap, in turns that are written down."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.sampling import thinned

import teccl
from teccl import Demand, Problem, Topology
from teccl.construct.leaf_chains import _free_turn, _receivers, leaf_chain
from teccl.construct.realise import realise
from teccl.keywords import SwitchMode, Transit
from teccl.replay import simulate
from teccl.schedule import Schedule
from teccl.topology import Link, Node, NodeKind
from teccl.units import PICOSECONDS
from teccl.verification import verify

GB = 10**9


def drawn_fabric(rng: random.Random) -> Topology:
    """Return GPUs behind leaves of any sizes, with pods above some, rates and latencies drawn."""
    pods = rng.choice([1, 1, 2, 3])
    rates = [Fraction(rng.randrange(5, 60) * GB) for _ in range(3)]
    alphas = [Fraction(rng.randrange(3000), 10**9) for _ in range(3)]
    gpus, cables = list[str](), list[tuple[str, str, int]]()
    for pod in range(pods):
        spines = [f"p{pod}s{n}" for n in range(rng.randrange(1, 4))]
        for leaf in range(rng.randrange(1, 4)):
            name = f"p{pod}l{leaf}"
            own = [f"{name}g{n}" for n in range(rng.randrange(1, 5))]
            gpus += own
            cables += [(gpu, name, 0) for gpu in own] + [(name, spine, 1) for spine in spines]
        cables += [(spine, f"c{n}", 2) for spine in spines for n in range(2)] if pods > 1 else []
    names = list(dict.fromkeys(name for cable in cables for name in cable[:2]))
    kinds = {name: NodeKind.GPU if name in gpus else NodeKind.SWITCH for name in names}
    number = {name: place for place, name in enumerate(names)}
    links = [
        Link(src=number[a], dst=number[b], bandwidth=rates[tier], alpha=alphas[tier])
        for near, far, tier in cables
        for a, b in ((near, far), (far, near))
    ]
    nodes = tuple(Node(name=name, kind=kinds[name]) for name in names)
    return Topology(name="drawn", nodes=nodes, links=tuple(links))


def drawn_problem(seed: int) -> Problem:
    """Return a Broadcast or a Reduce among some GPUs of such a fabric."""
    rng = random.Random(seed)
    while True:
        topology = drawn_fabric(rng)
        if topology.num_gpus > 2:
            break
    ranks = sorted(rng.sample(range(topology.num_gpus), rng.randrange(2, topology.num_gpus + 1)))
    collective = rng.choice(["broadcast", "reduce"])
    size = rng.choice(["10KB", "1MB", "64MB"])
    return Problem(
        topology=topology,
        demand=Demand.collective(collective, size=size, ranks=ranks, root=rng.choice(ranks)),
        num_chunks=rng.choice([1, 2, 5, 16, 40]),
        transit=rng.choice(list(Transit)),
        switch=rng.choice([SwitchMode.COPY, SwitchMode.NO_COPY]),
    )


def laid(problem: Problem) -> tuple[Schedule, int]:
    """Return the schedule of a problem's chain, and when its plan says that all is over."""
    chain = leaf_chain(problem)
    assert chain is not None
    instance, plan = chain.plan(problem)
    return realise(instance, plan, method="construct"), plan.finish


@pytest.mark.parametrize("size", range(1, 40))
def test_gateways_send_to_different_gpus_in_every_slot(size: int) -> None:
    """Each reaches all others of its leaf, and one GPU a slot is left for a piece from outside."""
    distances = _receivers(size)
    assert sorted(distances) == list(range(1, size))
    apart = {(to - turn) % size for turn, to in enumerate(distances, start=1)}
    assert apart | {_free_turn(size)} == set(range(size))
    assert len(apart) == size - 1


@pytest.mark.parametrize("seed", thinned(range(600), every=15))
def test_schedules_are_correct_as_they_are(seed: int) -> None:
    """Plans need no repair: all that they say of times holds, in fabrics of every shape."""
    problem = drawn_problem(seed)
    schedule, finish = laid(problem)
    assert verify(schedule) == ()
    assert schedule.finish_ps == finish
    assert simulate(schedule).finish_ps <= finish


@pytest.mark.parametrize("seed", thinned(range(300), every=15))
def test_finishes_are_known_before_anything_is_laid(seed: int) -> None:
    """A chain says when it ends with any number of pieces, but for what rounding makes of it."""
    problem = drawn_problem(seed)
    chain = leaf_chain(problem)
    assert chain is not None
    counts = [1, 7, 32]
    for count, about in zip(counts, chain.finishes(problem, counts), strict=True):
        finish = chain.plan(replace(problem, num_chunks=count))[1].finish
        # Times that are just a whole number of slots may be rounded to one more, in each leaf.
        wheel = max(len(leaf.out) for leaf in chain.leaves)
        slack = 2 * len(chain.leaves) * wheel * problem.hold_ps.max() / count
        assert finish <= about * (1 + 1e-6) + slack + 1000
        assert about <= finish * (1 + 1e-6) + slack + 1000


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_ports_are_never_idle_once_pieces_come(collective: str) -> None:
    """64 GPUs behind 8 leaves get 1 GB in little more than their ports need for it."""
    topology = Topology.parse("two-tier:leaves=8,gpus=8,spines=2,oversubscription=2")
    demand = Demand.collective(collective, size="1GB", root=3)
    schedule, finish = laid(Problem(topology=topology, demand=demand, num_chunks=1024))
    (port,) = {topology.links[link].bandwidth for link in topology.find_links("gpu3:*")}
    assert finish < 1.1 * GB / port * PICOSECONDS
    assert verify(schedule) == ()


def test_gpus_with_several_ports_are_not_chained() -> None:
    """A GPU of a DGX has more ways than one, and ports of unlike rates have no common slot."""
    for name in ("dgx-h100:chassis=2", "dgx1"):
        demand = Demand.collective("broadcast", size="1MB")
        assert leaf_chain(Problem(topology=Topology.parse(name), demand=demand)) is None
    slow = Topology.parse("fat-tree:k=4").degraded({"gpu3:*": Fraction(1, 2)})
    demand = Demand.collective("broadcast", size="1MB")
    assert leaf_chain(Problem(topology=slow, demand=demand)) is None


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_large_rooted_collectives_stream_through_stages(collective: str) -> None:
    """What trees leave a quarter above the bound a chain ends within a few hundredths of it."""
    topology = Topology.parse("two-tier:leaves=8,gpus=8,spines=2,oversubscription=2")
    result = teccl.solve(topology, collective, size="1GB", root=3, threads=1)
    assert result.physical_gap is not None
    assert result.physical_gap < 0.05
