"""Exact closing in continuous time: best plans are found and proven, and no bound is wrong."""

import random
from fractions import Fraction
from operator import attrgetter

import pytest
from tests.bounds.clock import Clock
from tests.bounds.instances import UNIT, random_problem
from tests.bounds.oracle import Oracle, OutOfTimeError
from tests.construct.small import best_plan, make_instance, plans, verified
from tests.construct.test_insertion import last_plan

import teccl
from teccl.bounds import summarise
from teccl.construct.instance import Instance
from teccl.demand import Demand
from teccl.demand.demand_files import demand_from_dict
from teccl.models.milp.continuous import closed_plan, is_small
from teccl.problem import Problem
from teccl.reachability import find_unreachable
from teccl.replay import simulate
from teccl.solvers import SolverOptions
from teccl.topology import Link, Node, Topology
from teccl.topology.topology_files import topology_from_dict

finish = attrgetter("finish")


def random_small(seed: int) -> Instance | None:
    """Return a collective of few chunks on up to four GPUs with random links."""
    rng = random.Random(seed)
    gpus = rng.choice([3, 4])
    pairs = [(a, b) for a in range(gpus) for b in range(gpus) if a != b and rng.random() < 0.6]
    links = tuple(
        Link(
            src=a,
            dst=b,
            bandwidth=Fraction(rng.choice([1, 2]) * 10**9),
            alpha=Fraction(rng.choice([0, 1]), 10**6),
        )
        for a, b in pairs
    )
    nodes = tuple(Node(name=f"n{i}") for i in range(gpus))
    collective = rng.choice(["allgather", "alltoall", "broadcast", "reducescatter"])
    topology = Topology(name="small", nodes=nodes, links=links)
    problem = Problem(topology=topology, demand=Demand.collective(collective, size="12KB"))
    return None if find_unreachable(problem) is not None else Instance.build(problem)


def check_random(seed: int) -> bool:
    """Close a small random problem; whether its plan was proven best."""
    instance = random_small(seed)
    if instance is None:
        return False
    known = best_plan(instance, level="quick")
    closed = closed_plan(instance, known, options=SolverOptions(work=5.0))
    assert closed is not None
    finish = simulate(verified(instance, closed.plan)).finish_ps
    assert closed.plan.finish <= known.finish
    assert closed.bound <= finish
    # Nothing ends before the bound for any chunks, which is found in another way.
    assert summarise(instance.problem).physical_ps <= closed.plan.finish
    assert not closed.is_optimal or last_plan(instance).finish >= closed.bound
    return closed.is_optimal


def test_a_ring_is_closed() -> None:
    """Two hops of 5.5 us each are the least for an exchange on a ring of four, and proven so."""
    made = make_instance("ring:gpus=4", "alltoall", "1MB")
    closed = closed_plan(made, last_plan(made, budget=1), options=SolverOptions(work=20.0))
    assert closed is not None
    assert closed.plan.finish == closed.bound == 11_000_000
    verified(made, closed.plan)


def test_sources_that_have_a_chunk_at_different_times_are_not_closed() -> None:
    """One that has it late may pass on what another sends it before, which the program forgets."""
    chunk = {"sources": [0, 1], "destinations": [2], "size": "100KB"}
    demand = {"chunks": [chunk], "ready": {"1": "4us"}}
    made = make_instance("line:gpus=3", demand_from_dict(demand))
    assert closed_plan(made, best_plan(made), options=SolverOptions(work=1.0)) is None


def test_small_problems_are_closed() -> None:
    """Most problems of a few chunks are proven, and no proof contradicts a schedule."""
    assert sum(check_random(seed) for seed in range(8)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 150))
def test_many_small_problems_are_closed(seed: int) -> None:
    """More of the same."""
    check_random(seed)


def undercuts(seed: int) -> bool | None:
    """Whether an independent program ends before what closing has proven; None if undecided."""
    problem = random_problem(seed)
    start = min(plans(Instance.build(problem), target=0, level="quick"), key=finish, default=None)
    if start is None:
        return None
    closed = closed_plan(Instance.build(problem), start, options=SolverOptions(work=5.0))
    if closed is None or closed.bound == 0:
        return None
    oracle = Oracle(Clock(problem, UNIT, exact=True), seconds=30.0)
    try:
        return oracle.starts(-(-closed.bound // int(UNIT * 10**12)) - 1) is not None
    except OutOfTimeError:
        return None


def test_no_schedule_ends_before_what_is_proven() -> None:
    """An independent program, written from the rules alone, finds nothing sooner."""
    verdicts = [undercuts(seed) for seed in range(20)]
    assert verdicts.count(False) >= 3
    assert True not in verdicts


@pytest.mark.slow
@pytest.mark.parametrize("number", range(41))
def test_no_schedule_ends_before_what_is_proven_in_batches(number: int) -> None:
    """More of the same."""
    assert True not in [undercuts(seed) for seed in range(60 * number, 60 * (number + 1))]


def test_nobody_sends_of_a_sum_what_it_has_not_got() -> None:
    """A GPU that contributes nothing and passes nothing on has no part in a closed sum.

    The program, which looks at sums turned round, may send idle copies for nothing.
    """
    nodes = [{"name": "sw0", "kind": "switch"}, *({"name": f"gpu{i}"} for i in range(3))]
    rates = [("gpu0", "sw0", 25, 1.0), ("gpu1", "sw0", 10, 0.0), ("gpu2", "sw0", 7, 0.05)]
    rates += [("gpu1", "gpu2", 12.5, 1.3), ("gpu0", "sw0", 46, 1.0)]
    links = [
        {
            "src": src,
            "dst": dst,
            "bandwidth": f"{rate}GB/s",
            "alpha": f"{alpha}us",
            "bidirectional": True,
        }
        for src, dst, rate, alpha in rates
    ]
    one_sum = {"sources": [2], "destinations": [0], "reduce": True}
    demand = demand_from_dict(
        {
            "schema_version": 1,
            "collectives": [
                {"name": "sum", "size": "1000B", "chunks": [one_sum], "priority": 2},
                {"name": "rest", "collective": "scatter", "size": "64KB", "root": 2},
            ],
        }
    )
    result = teccl.solve(
        topology_from_dict({"nodes": nodes, "links": links}),
        demand=demand,
        chunks=4,
        effort="quick",
        switch="no-copy",
    )
    assert result.status is teccl.Status.OPTIMAL


def test_joined_passages_are_not_bounded() -> None:
    """Where branches may join in a switch, which the program does not know, nothing is proven."""
    made = make_instance("star:gpus=3", "allgather", "3KB")
    closed = closed_plan(made, last_plan(made), options=SolverOptions(work=5.0))
    assert closed is not None
    assert closed.bound == 0


def test_what_the_program_does_not_model_is_left_alone() -> None:
    """A limit on buffers is none of its rows."""
    made = make_instance("ring:gpus=3", "allgather", "3KB", buffer=0)
    assert closed_plan(made, last_plan(made), options=SolverOptions(work=1.0)) is None


def test_large_problems_are_left_alone() -> None:
    """Nothing is built where chunks and routes are many."""
    made = make_instance("dgx2", "alltoall", "1MB")
    assert not is_small(made)
    assert closed_plan(made, last_plan(made, budget=1), options=SolverOptions(work=1.0)) is None
