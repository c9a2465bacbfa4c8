"""Switches that reduce: sums come together in them, where ways meet in time, and only there."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.sampling import counts

import teccl
from teccl.construct.gathering import gathered_allreduce
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.realise import realise
from teccl.construct.sums import in_network_plans
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Link, Node, NodeKind, Topology
from teccl.verification import verify


def star(rates: list[int], *, alphas: list[int] | None = None, reduce: bool = True) -> Topology:
    """GPUs around a switch, each with a rate in GB/s and a latency in ns."""
    count = len(rates)
    nodes = [Node(name=f"gpu{i}") for i in range(count)]
    nodes.append(Node(name="switch", kind=NodeKind.SWITCH, reduce=reduce))
    links = []
    for i, (rate, alpha) in enumerate(zip(rates, alphas or [500] * count, strict=True)):
        for src, dst in ((i, count), (count, i)):
            links.append(
                Link(
                    src=src,
                    dst=dst,
                    bandwidth=Fraction(rate * 10**9),
                    alpha=Fraction(alpha, 10**9),
                )
            )
    return Topology(name="star", nodes=tuple(nodes), links=tuple(links))


def halves(topology: Topology) -> tuple[Instance, Instance]:
    demands = (Demand.collective(name, size="1MB") for name in ("reducescatter", "allgather"))
    scatter, gather = (
        Instance.build(Problem(topology=topology, demand=demand)) for demand in demands
    )
    return scatter, gather


def inputs_per_sum(schedule: teccl.Schedule) -> set[int]:
    """How many links of a passage that reduces lead into a switch."""
    topology, sends = schedule.problem.topology, schedule.sends
    into = topology.is_switch[topology.link_dst[sends["link"]]] & sends["reduce"]
    return set(np.unique(sends["transfer"][into], return_counts=True)[1].tolist())


def test_links_carry_each_byte_once_in_either_direction():
    """NVLink SHARP makes a large AllReduce take hardly longer than sending the data once."""
    with_sharp = teccl.solve("dgx-h100:nvls=true", "allreduce", size="256MB", effort="quick")
    without = teccl.solve("dgx-h100", "allreduce", size="256MB", effort="quick")
    assert with_sharp.physical_gap < 0.03
    assert with_sharp.finish_time_s < 0.6 * without.finish_time_s
    # Owners take in what seven others contribute, or all have it from the switch.
    assert inputs_per_sum(with_sharp.schedule) in ({7}, {8})


def test_both_halves_take_one_passage_for_each_chunk():
    plan = gathered_allreduce(*halves(star([10, 10, 10, 10])))
    assert plan is not None
    assert plan.reduce.sum() == 4 * 3
    assert len(np.unique(plan.rows[:, 3])) == 4 + 4


@pytest.mark.parametrize(
    ("rates", "alphas"),
    [([10, 10, 5, 10], None), ([10, 10, 10], [500, 500, 700])],
    ids=["one slow link", "one long link"],
)
def test_who_is_nearer_sets_out_later(rates, alphas):
    """All contributions to a sum come to the switch at once, and leave it as one."""
    topology = star(rates, alphas=alphas)
    problem = Problem(topology=topology, demand=Demand.collective("allreduce", size="1MB"))
    instance = Instance.build(problem)
    (plan,) = in_network_plans(instance, Goal(target=0))
    schedule = realise(instance, plan, method="test")
    assert verify(schedule) == ()
    assert inputs_per_sum(schedule) == {len(rates) - 1}
    reduced = teccl.solve(topology, "reduce", size="1KB", root=0, effort="quick", chunks=1)
    assert reduced.status is teccl.Status.OPTIMAL


@pytest.mark.parametrize(
    ("collective", "options"),
    [
        ("allreduce", {"switch": "hyper-edge"}),
        ("allreduce", {"switch": "no-copy"}),
        ("allreduce", {"transit": "cut-through"}),
        ("allreduce", {"grid": True}),
        ("reducescatter", {"switch": "hyper-edge"}),
        ("reduce", {"grid": True}),
    ],
)
def test_other_ways_of_switching_are_served(collective, options):
    result = teccl.solve(star([10, 10, 10]), collective, size="300KB", effort="quick", **options)
    assert verify(result.schedule) == ()


@pytest.mark.parametrize("chassis", counts(2, 3))
def test_sums_in_several_chassis_are_right(chassis):
    result = teccl.solve(
        f"dgx-h100:chassis={chassis},nvls=true", "allreduce", size="64MB", effort="quick"
    )
    assert verify(result.schedule) == ()


def test_only_those_that_take_part_contribute():
    topology = star([10] * 5)
    result = teccl.solve(topology, "allreduce", size="400KB", ranks=[0, 1, 3], chunks=32)
    assert verify(result.schedule) == ()
    assert inputs_per_sum(result.schedule) == {3}


def test_passages_enter_a_switch_once():
    """GPUs under one leaf that take different spines to one owner do not add up twice."""
    names = ["gpu0", "gpu1", "gpu2", "gpu3", "nv0", "nv1", "leaf0", "leaf1", "s0", "s1", "s2"]
    fast = [("gpu0", "nv0"), ("gpu1", "nv0"), ("gpu2", "nv1"), ("gpu3", "nv1")]
    slow = [("gpu0", "leaf0"), ("gpu1", "leaf0"), ("gpu2", "leaf1"), ("gpu3", "leaf1")]
    slow += [(leaf, spine) for leaf in ("leaf0", "leaf1") for spine in ("s0", "s1", "s2")]
    links = [
        Link(
            src=names.index(a),
            dst=names.index(b),
            bandwidth=Fraction(rate * 10**9),
            alpha=Fraction(1, 2 * 10**6),
        )
        for pairs, rate in ((fast, 100), (slow, 10))
        for pair in pairs
        for a, b in (pair, pair[::-1])
    ]
    nodes = [
        Node(name=name)
        if name.startswith("gpu")
        else Node(name=name, kind=NodeKind.SWITCH, reduce=True)
        for name in names
    ]
    topology = Topology(name="spines", nodes=tuple(nodes), links=tuple(links))
    result = teccl.solve(topology, "allreduce", size="1MB", effort="quick", max_chunks=8)
    assert verify(result.schedule) == ()


@pytest.mark.parametrize("shared", ["up", "down"])
def test_passages_use_a_shared_capacity_once(shared):
    topology = star([10, 10, 10, 10])
    switch = topology.num_nodes - 1
    links = [
        replace(link, shares=("pool",)) if (link.dst == switch) == (shared == "up") else link
        for link in topology.links
    ]
    topology = replace(topology, links=tuple(links), shared={"pool": Fraction(10**10)})
    result = teccl.solve(topology, "allreduce", size="1MB", effort="quick", max_chunks=8)
    assert verify(result.schedule) == ()
