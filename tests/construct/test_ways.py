"""Ways through switches: enough of them, spread over links, and around slow ones."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.construct.small import make_instance

from teccl.construct import ways as ways_module
from teccl.construct.ways import Way, ways_by_receiver, ways_of
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict


def chain(*, bridge: bool) -> dict[str, Any]:
    """Two GPUs on each of two linked switches; with `bridge` also a direct link across."""
    nodes = [{"name": f"g{i}"} for i in range(4)]
    nodes += [{"name": f"s{i}", "kind": "switch"} for i in range(2)]
    ends = [("g0", "s0"), ("g1", "s0"), ("g2", "s1"), ("g3", "s1"), ("s0", "s1")]
    ends += [("g1", "g2")] if bridge else []
    return {
        "nodes": nodes,
        "links": [
            {"src": a, "dst": b, "bandwidth": "1GB/s", "bidirectional": True} for a, b in ends
        ],
    }


@pytest.mark.parametrize(("bridge", "longest"), [(False, 3), (True, 2)])
def test_long_ways_only_where_they_are_needed(
    bridge: bool, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond their limit, passages through several switches remain only if GPUs need them."""
    monkeypatch.setattr(ways_module, "LONG_ROUTES", 0)
    ways = make_instance(chain(bridge=bridge), "allgather", "4KB").routes.ways()
    assert max(len(way) for way in ways) == longest


def test_few_long_ways_are_listed() -> None:
    """While there are few of them, passages through several switches are there to choose."""
    routes = make_instance(chain(bridge=True), "allgather", "4KB").routes
    across = {(int(a), int(b)) for a, b in zip(routes.src, routes.dst, strict=True)}
    assert across == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_passages_are_shortest_and_distinct() -> None:
    """In a fat tree each pair of GPUs has passages of one length, all different."""
    routes = make_instance("fat-tree:k=4", Demand.collective("allgather", size="1MB")).routes
    ways = routes.ways()
    assert len(set(ways)) == len(ways)
    hops = np.diff(routes.link_start)
    for source in np.unique(routes.src)[:4]:
        for target in np.unique(routes.dst)[:4]:
            pair = (routes.src == source) & (routes.dst == target)
            assert len(np.unique(hops[pair])) <= 1


def fabric(*, first: str = "100GB/s", inner: str = "100GB/s", core: str = "100GB/s") -> Any:
    """Two pods of two aggregation switches and two edges with a GPU each, and three cores."""
    nodes, links = [], []

    def link(a: str, b: str, rate: str) -> None:
        links.append({"src": a, "dst": b, "bandwidth": rate, "bidirectional": True})

    for gpu in range(4):
        nodes += [f"g{gpu}", f"edge{gpu}"]
        link(f"g{gpu}", f"edge{gpu}", first)
        for number in range(2):
            link(f"edge{gpu}", f"agg{gpu // 2}{number}", inner)
    for pod, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
        nodes.append(f"agg{pod}{number}")
        for c in range(3):
            link(nodes[-1], f"core{c}", core)
    nodes += [f"core{c}" for c in range(3)]
    named = [{"name": n} if n[0] == "g" else {"name": n, "kind": "switch"} for n in nodes]
    return {"nodes": named, "links": links}


def ways_in(description: Any) -> tuple[Topology, list[Way]]:
    """Return a topology and the ways of an AllToAll on it."""
    instance = make_instance(description, "alltoall", "4KB")
    return instance.problem.topology, ways_of(instance.problem)


def crossings(topology: Topology, ways: list[Way]) -> Counter[tuple[str, str]]:
    """Return how many ways take each link, by the names of its ends."""
    name = [node.name for node in topology.nodes]
    ends = zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)
    link = [(name[a], name[b]) for a, b in ends]
    return Counter(link[e] for way in ways for e in way)


def test_ways_are_spread_over_switches() -> None:
    """Both aggregation switches of a pod lead out as many ways, and let in as many."""
    topology, ways = ways_in(fabric())
    count = crossings(topology, [way for way in ways if len(way) == 6])
    assert count["edge0", "agg00"] == count["edge0", "agg01"]
    assert count["agg10", "edge2"] == count["agg11", "edge2"]


@pytest.mark.parametrize(("core", "least"), [("100GB/s", 4), ("20GB/s", 5), ("10GB/s", 10)])
def test_ways_fill_their_first_link(core: str, least: int) -> None:
    """The narrower the cores are, the more ways lead through them."""
    topology, ways = ways_in(fabric(core=core))
    across = [way for way in ways if topology.link_src[way[0]] == 0 and len(way) == 6]
    pairs = Counter(int(topology.link_dst[way[-1]]) for way in across)
    assert min(pairs.values()) == least


def test_detours_lead_around_slow_links() -> None:
    """Two switches are joined by a slow link, and by fast ones through a third."""
    nodes: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}]
    nodes += [{"name": n, "kind": "switch"} for n in ("s", "t", "u")]
    ends = [("a", "s", 100), ("b", "t", 100), ("s", "t", 1), ("s", "u", 100), ("u", "t", 100)]
    links = [
        {"src": a, "dst": b, "bandwidth": f"{rate}GB/s", "bidirectional": True}
        for a, b, rate in ends
    ]
    topology, ways = ways_in({"nodes": nodes, "links": links})
    lengths = sorted(len(way) for way in ways if topology.link_src[way[0]] == 0)
    assert lengths == [3, 4]


def test_alike_links_have_no_detours() -> None:
    """Where all links are as fast no way is longer than the shortest."""
    problem = Problem(
        topology=Topology.parse("fat-tree:k=4"), demand=Demand.collective("alltoall", size="1MB")
    )
    assert max(len(way) for way in ways_of(problem)) == 6


def test_receivers_tell_ways_apart_in_a_fat_tree():
    """When all GPUs send to others at equal distances, no two of their ways share a link."""
    topology = Topology.parse("fat-tree:k=4")
    problem = Problem(topology=topology, demand=Demand.collective("alltoall", size="1MB"))
    ways = ways_by_receiver(problem)
    assert ways is not None
    ends = {(topology.link_src[way[0]], topology.link_dst[way[-1]]): way for way in ways}
    gpus = topology.gpus.tolist()
    assert sorted(ends) == [(a, b) for a in gpus for b in gpus if a != b]
    for turn in range(4, 16, 2):
        # Two GPUs below each leaf, two leaves in each pod: whole leaves move, and places in them.
        links = [link for n in range(16) for link in ends[gpus[n], gpus[(n + turn) % 16]]]
        assert len(links) == len(set(links))


def test_ways_by_receiver_do_not_pass_through_gpus():
    """Where only a GPU joins two switches there are none."""
    nodes = [{"name": f"gpu{n}"} for n in range(3)]
    nodes += [{"name": f"switch{n}", "kind": "switch"} for n in range(2)]
    wires = [("gpu0", "switch0"), ("gpu1", "switch0"), ("gpu1", "switch1"), ("gpu2", "switch1")]
    shape = {"bandwidth": "1GB/s", "alpha": 0, "bidirectional": True}
    links = [{"src": src, "dst": dst, **shape} for src, dst in wires]
    topology = topology_from_dict({"schema_version": 1, "nodes": nodes, "links": links})
    problem = Problem(topology=topology, demand=Demand.collective("alltoall", size="1MB"))
    assert ways_by_receiver(problem) is None
