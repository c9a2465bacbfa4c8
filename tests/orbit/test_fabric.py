"""Fabrics: folding a topology and listing it again gives the topology."""

import random

import numpy as np
import pytest
from tests.orbit.drawing import draw_fabric

from teccl import Topology
from teccl.errors import TopologyError
from teccl.orbit.expansion import expanded_topology
from teccl.orbit.fabric import Fabric, LinkOrbit, NodeOrbit
from teccl.orbit.folding import fold
from teccl.orbit.presets import parse_fabric

NAMED = [
    *("torus:dims=4x3", "torus:dims=2x5,alpha=0", "torus:dims=3x3x3,overhead=1us", "ring:gpus=6"),
    *("ring:gpus=2", "dgx-h100:chassis=3", "gb200-nvl72:chassis=2", "mi300x:chassis=2"),
    *("hypercube:dimension=3", "twisted-torus:dims=2x2x4", "star:gpus=6", "fat-tree:k=4"),
    *("two-tier", "dgx-b300:chassis=2,planes=2", "ndv2:chassis=3", "fully-connected:gpus=5"),
    *("dgx-a100:chassis=2,rates=effective", "dgx1", "dgx2:chassis=2"),
]


def links_of(topology: Topology) -> list[object]:
    """Every link by the names of its ends, in one order."""
    names = [node.name for node in topology.nodes]
    return sorted(
        (names[x.src], names[x.dst], x.bandwidth, x.alpha, x.overhead, x.shares)
        for x in topology.links
    )


@pytest.mark.parametrize("spec", NAMED)
def test_presets_come_back_from_their_fabric(spec):
    """Names of nodes, ranks and all links are those of the preset."""
    topology, again = Topology.parse(spec), expanded_topology(parse_fabric(spec))
    assert links_of(again) == links_of(topology)
    ranks = [[t.nodes[i].name for i in t.gpus] for t in (topology, again)]
    assert ranks[0] == ranks[1]
    assert [n.group for n in again.nodes if not n.is_switch] == [
        topology.nodes[i].group for i in topology.gpus
    ]


@pytest.mark.parametrize(
    "spec", ["mesh:dims=3x3", "line:gpus=5", "dgx-h100:nvls=true", "mi250:chassis=2"]
)
def test_what_has_no_free_group_is_refused(spec):
    """A mesh has ends, and switches that reduce and shared capacities are not folded."""
    with pytest.raises(TopologyError, match="plan it without orbits"):
        parse_fabric(spec)


def test_a_fault_leaves_a_smaller_group_or_none():
    """One slow link among equal ones is no symmetry that moves every GPU."""
    slow = Topology.parse("torus:dims=3x3").without_links(["0>1"])
    assert fold(slow) is None


@pytest.mark.parametrize(
    ("spec", "group", "orbits"),
    [
        ("fat-tree:k=4", (4, 2, 2), 1),
        ("fat-tree:k=6", (6, 3, 3), 1),
        ("two-tier:leaves=4,gpus=8,spines=2", (4, 2), 4),
        ("two-tier:leaves=5,gpus=6,spines=4", (5, 2), 3),
        ("two-tier:leaves=6,gpus=2,spines=1", (6,), 2),
    ],
)
def test_links_between_switches_move_with_some_group(spec, group, orbits):
    """Upper switches are rotated with GPUs, in fewer places where there are fewer of them."""
    fabric = parse_fabric(spec)
    assert fabric.moduli == group
    assert len(fabric.gpu_orbits) == orbits
    assert {lattice.order for lattice in fabric.link_lattices} == {fabric.group.order}


def test_shifts_move_links_as_they_move_their_ends():
    """The image of a link leads from the image of its source to that of its destination."""
    for seed in range(20):
        fabric = draw_fabric(random.Random(seed))
        links = np.arange(fabric.num_links)
        src, dst = fabric.link_ends(links)
        for element in range(fabric.group.order):
            by = np.full(len(links), element)
            ends = fabric.link_ends(fabric.moved_links(links, by))
            assert np.array_equal(ends[0], fabric.moved_nodes(src, by))
            assert np.array_equal(ends[1], fabric.moved_nodes(dst, by))


def test_large_tori_need_no_list():
    """A quarter of a million GPUs are six link orbits."""
    fabric = parse_fabric("torus:dims=64x64x64")
    assert (fabric.num_gpus, fabric.num_links, len(fabric.links)) == (2**18, 6 * 2**18, 6)


GPUS = NodeOrbit(name="gpu{0}", moduli=(4,))
ON = LinkOrbit(
    src=0, dst=0, offset=(1,), bandwidth=GPUS and parse_fabric("ring").links[0].bandwidth
)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"moduli": ()}, "give 1 to 8 positive orders"),
        ({"moduli": (2**21,)}, "more than teccl handles"),
        ({"nodes": (NodeOrbit(name="gpu{0}", moduli=(2,)),)}, "stay in place"),
        ({"nodes": (NodeOrbit(name="gpu{0}", moduli=(3,)),)}, "give divisors"),
        ({"nodes": (NodeOrbit(name="gpu", moduli=(4,)),)}, "coordinates"),
        ({"nodes": (NodeOrbit(name="{0.real}", moduli=(4,)),)}, "coordinates"),
        ({"nodes": (GPUS, GPUS)}, "one name"),
        ({"links": ()}, "0 link orbits"),
        ({"links": (LinkOrbit(src=0, dst=0, offset=(0,), bandwidth=ON.bandwidth),)}, "themselves"),
        (
            {"links": (LinkOrbit(src=0, dst=1, offset=(1,), bandwidth=ON.bandwidth),)},
            "node orbit 1",
        ),
        ({"links": (LinkOrbit(src=0, dst=0, offset=(4,), bandwidth=ON.bandwidth),)}, "offset"),
        ({"links": (LinkOrbit(src=0, dst=0, offset=(1,), bandwidth=0 * ON.bandwidth),)}, "bytes/s"),
    ],
)
def test_impossible_fabrics_are_refused(parts, message):
    """The message names what is wrong."""
    with pytest.raises(TopologyError, match=message):
        Fabric(**{"name": "f", "moduli": (4,), "nodes": (GPUS,), "links": (ON,), **parts})
