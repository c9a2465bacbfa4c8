"""Meetings in switches: sums are made and copied in one passage, once at every switch."""

import numpy as np
import pytest
from tests.construct.test_staged import allreduce

import teccl
from teccl import Topology
from teccl.construct.goal import Goal
from teccl.construct.meetings import Meetings
from teccl.construct.schemes import schemes
from teccl.construct.staged import staged_schedule
from teccl.topology.topology_files import topology_from_dict
from teccl.verification import verify


def switched(ways: list[tuple[str, str]], *, reduces: tuple[str, ...]) -> Topology:
    """Return GPUs and switches, whose names begin with s, some of which reduce."""
    names = sorted({name for way in ways for name in way})
    nodes = [
        {"name": name, "kind": "switch", "reduce": name in reduces}
        if name.startswith("s")
        else {"name": name}
        for name in names
    ]
    wire = {"bandwidth": "10GB/s", "alpha": "1us", "bidirectional": True}
    return topology_from_dict(
        {"nodes": nodes, "links": [{"src": a, "dst": b, **wire} for a, b in ways]}
    )


def meetings(topology: Topology) -> Meetings:
    """Return meetings of chunks that hold every link for a microsecond."""
    hold = np.full(topology.num_links, 10**6)
    return Meetings(topology, hold, topology.alpha_ps)


def test_a_switch_adds_up_and_copies_at_once():
    """An AllReduce on an NVLS machine takes one way through the switch, each byte once."""
    result = teccl.solve("dgx-h100:nvls=true", "allreduce", size="64KB")
    assert result.method == "in-network"
    assert result.schedule.same_order
    assert result.physical_gap < 0.01


def test_unlike_ways_meet_at_one_instant():
    """Whoever is near the meeting point sets out later, and all have the sum after one way more."""
    topology = switched([("a", "s0"), ("b", "s0"), ("c", "s1"), ("s1", "s0")], reduces=("s0",))
    number = {node.name: i for i, node in enumerate(topology.nodes)}
    passage = meetings(topology).passage([number["a"], number["c"]], [number["b"]])
    assert passage is not None
    begins = {topology.nodes[topology.link_src[link]].name: when for link, when in passage.hops}
    assert begins == {"c": 0, "s1": 2 * 10**6, "a": 2 * 10**6, "s0": 4 * 10**6}
    assert passage.outs == [(number["b"], 6 * 10**6)]


def test_no_switch_is_crossed_twice():
    """What would go up and down through one leaf, or join in a plain switch, is no passage."""
    ways = [("a", "s0"), ("b", "s0"), ("c", "s1"), ("d", "s1"), ("s0", "s2"), ("s1", "s2")]
    everyone = [0, 1, 2, 3]
    for reduces in (("s0", "s1", "s2"), ("s2",)):
        topology = switched(ways, reduces=reduces)
        assert meetings(topology).passage(everyone, everyone) is None
    topology = switched(ways, reduces=("s0", "s1", "s2"))
    assert meetings(topology).passage([1, 2, 3], [0]) is not None


def test_switches_take_turns():
    """Of two switches that could serve, each adds up every other piece."""
    topology = switched([(g, s) for g in "abc" for s in ("s0", "s1")], reduces=("s0", "s1"))
    found = meetings(topology)
    places = [
        {int(topology.link_dst[link]) for link, _ in passage.hops} & {3, 4}
        for passage in (found.passage([0, 1, 2], [0, 1, 2]) for _ in range(4))
        if passage is not None
    ]
    assert places == [{3}, {4}, {3}, {4}]


@pytest.mark.parametrize(
    "spec",
    [
        "dgx-h100:chassis=2,nvls=true",
        "dgx-h100:nvls=true,overhead=1us",
        "gb200-nvl72:chassis=1,nvls=true",
    ],
)
def test_schemes_that_meet_are_correct(spec):
    """Whatever the machine, every scheme with sums in switches is a correct AllReduce."""
    found = [each for each in schemes(allreduce(spec, "64KB")) if each.meets]
    assert found
    for scheme in found:
        problem = allreduce(spec, "64KB", pieces=2 * len(scheme.shares))
        schedule = staged_schedule(problem, scheme, Goal())
        assert schedule is not None
        assert schedule.same_order
        verify(schedule, strict=True)
        assert schedule.sends["reduce"].any()
