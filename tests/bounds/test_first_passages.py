"""First passages: contributions that leave a part late leave it one by one."""

from dataclasses import replace

import numpy as np
import pytest

from teccl.bounds.first_passages import first_passage_bound, first_passage_bounds, is_served
from teccl.bounds.network import Network
from teccl.demand import Demand
from teccl.keywords import SwitchMode
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict

LEAVES = "two-tier:leaves=8,gpus=8,spines=2,oversubscription=2"


def network(collective: str, topology: Topology, switch: SwitchMode = SwitchMode.COPY) -> Network:
    """The problem of 64 KB as bounds see it, for any chunking."""
    demand = Demand.collective(collective, size="64KB")
    return Network.build(Problem(topology=topology, demand=demand, switch=switch), fluid=True)


def first_leaf(topology: Topology) -> np.ndarray:
    """Which nodes are the first leaf and the GPUs below it."""
    names = {"leaf0", *(f"gpu{n}" for n in range(8))}
    return np.array([node.name in names for node in topology.nodes])


@pytest.mark.parametrize(
    ("collective", "switch"),
    [("reducescatter", SwitchMode.COPY), ("allgather", SwitchMode.NO_COPY)],
)
def test_a_narrow_leaf_is_bounded_as_by_hand(collective, switch):
    """400 GB/s until 3 us before the end and 200 GB/s for 1 us more carry 448 KB in 3.62 us."""
    topology = Topology.parse(LEAVES)
    bound = first_passage_bound(
        network(collective, topology, switch), first_leaf(topology), "leaf0"
    )
    assert bound is not None
    assert bound.value == 3_620_000
    assert "448KB must cross the border of one of leaf0 at 200GB/s" in bound.certificate


def test_parts_are_found_without_being_named():
    """The groups of a fabric are among the parts that are looked at."""
    (bound,) = first_passage_bounds(network("reducescatter", Topology.parse(LEAVES)))
    assert bound.value == 3_620_000


def test_copies_in_switches_are_beyond_it():
    """A switch that copies serves several GPUs with one crossing."""
    assert not is_served(network("allgather", Topology.parse(LEAVES)))


def test_a_switch_that_adds_is_beyond_it():
    """Contributions that a switch adds up cross as one."""
    topology = Topology.parse(LEAVES)
    nodes = tuple(replace(n, reduce=True) if n.name == "leaf0" else n for n in topology.nodes)
    adding = network("reducescatter", replace(topology, nodes=nodes))
    assert first_passage_bound(adding, first_leaf(topology), "leaf0") is None


def test_nobody_else_inside_leaves_the_border_alone():
    """Two GPUs that reach each other by no way must cross, and the certificate says just that."""
    nodes = [{"name": "a"}, {"name": "b"}, {"name": "r"}, {"name": "s", "kind": "switch"}]
    links = [
        {"src": src, "dst": dst, "bandwidth": "64GB/s", "alpha": "0.5us"}
        for src, dst in (("a", "s"), ("b", "s"), ("s", "r"))
    ]
    topology = topology_from_dict({"schema_version": 1, "nodes": nodes, "links": links})
    demand = Demand.collective("reduce", size="64KB", root=2)
    part = Network.build(Problem(topology=topology, demand=demand), fluid=True)
    inside = np.array([node.name != "r" for node in topology.nodes])
    bound = first_passage_bound(part, inside, "all others")
    assert bound is not None
    # 128 KB leave over one link, 1 us from end to end.
    assert bound.value == 3_000_000
    assert bound.certificate.endswith("at 64GB/s")
