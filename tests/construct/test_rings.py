"""Rings: found wherever they should be, as wide as they can be."""

from fractions import Fraction

import numpy as np
import pytest

from teccl.construct.baselines._hamiltonian import hamiltonian_cycle, may_have_cycle
from teccl.construct.baselines._patching import patched_cycle
from teccl.construct.baselines._rings import widest_ring
from teccl.construct.baselines._rotations import rotated_cycle
from teccl.topology import Link, Node, Topology

GB = 10**9
# Topology and the bandwidth of the widest ring through all its GPUs, in GB/s.
WIDEST = {
    "dgx1": 50,
    "ndv2:chassis=1": 50,
    "ndv2:chassis=2": 12.5,
    "ndv2:chassis=3": 12.5,
    "ndv2:chassis=4": 12.5,
    "dgx2:chassis=2": 12.5,
    "internal1:chassis=1": 50,
    "internal1:chassis=64": 50,
    "internal2:chassis=1": 50,
    "internal2:chassis=64": 12.5,
    "ring:gpus=64": 50,
    "ring:gpus=2": 50,
    "fully-connected:gpus=16": 50,
    "star:gpus=33": 50,
    "hypercube:dimension=3": 50,
    "hypercube:dimension=8": 50,
    "torus:dims=3x3": 50,
    "torus:dims=15x15": 50,
    "torus:dims=4x4x4": 50,
    "mesh:dims=3x4": 50,
    "mesh:dims=15x16": 50,
    "mesh:dims=2x30": 50,
    "random:gpus=60,degree=3": 50,
    "dgx-h100:chassis=1": 450,
    "dgx-h100:chassis=64": 50,
    "fat-tree:k=4": 50,
}


def is_cycle(adjacency, cycle):
    """Whether a list of nodes is a cycle through all of them."""
    complete = sorted(cycle) == list(range(len(adjacency)))
    return complete and bool(adjacency[cycle, np.roll(cycle, -1)].all())


def adjacency_of(spec):
    topology = Topology.parse(spec)
    adjacency = np.zeros((topology.num_gpus, topology.num_gpus), dtype=bool)
    adjacency[topology.link_src, topology.link_dst] = True
    return adjacency


@pytest.mark.parametrize("spec", WIDEST)
def test_widest_ring_is_found(spec):
    """The ring visits every GPU once and is as wide as the topology allows."""
    topology = Topology.parse(spec)
    ring = widest_ring(topology, tuple(topology.gpus.tolist()))
    assert ring is not None
    assert sorted(ring.nodes) == topology.gpus.tolist()
    assert ring.bandwidth == Fraction(WIDEST[spec]) * GB
    assert not ring.through_gpus


@pytest.mark.parametrize("spec", ["line:gpus=3", "line:gpus=40", "mesh:dims=3x3", "mesh:dims=5x7"])
def test_no_ring_where_there_is_none(spec):
    """Lines and meshes of odd size have no ring."""
    topology = Topology.parse(spec)
    assert widest_ring(topology, tuple(topology.gpus.tolist())) is None


def test_ring_stays_in_each_chassis_and_on_each_rail():
    """Crossing between H100 chassis uses one leaf switch, the same rail at both ends."""
    topology = Topology.parse("dgx-h100:chassis=4")
    ring = widest_ring(topology, tuple(topology.gpus.tolist()))
    names = [topology.nodes[node].name for node in ring.nodes]
    crossings = [
        (a, b)
        for a, b in zip(names, [*names[1:], names[0]], strict=True)
        if a.split("/")[0] != b.split("/")[0]
    ]
    assert len(crossings) == 4
    assert all(a.split("/")[1] == b.split("/")[1] for a, b in crossings)


def test_ring_of_a_sub_group_passes_through_others_only_if_it_must():
    """Opposite members of a ring of four meet through GPUs that take no part."""
    topology = Topology.parse("ring:gpus=4")
    assert widest_ring(topology, (0, 2)).through_gpus
    assert not widest_ring(topology, (0, 1)).through_gpus


def test_ring_crosses_a_trunk_as_seldom_as_it_can():
    """GPUs that are numbered across two switches are visited switch by switch."""
    topology = Topology.parse("fat-tree:k=4")
    shuffled = tuple(topology.gpus.tolist()[i] for i in (0, 8, 1, 9, 2, 10, 3, 11))
    ring = widest_ring(topology, shuffled)
    far = [i for i, node in enumerate(ring.nodes) if node in topology.gpus[8:12].tolist()]
    assert sum((i + 1) % 8 not in far for i in far) == 1


def test_ring_in_one_direction_is_found():
    """A ring whose links go one way only is found in a shuffled order."""
    order = [3, 0, 4, 1, 5, 2]
    links = tuple(
        Link(src=a, dst=b, bandwidth=Fraction(GB))
        for a, b in zip(order, [*order[1:], order[0]], strict=True)
    )
    topology = Topology(
        name="loop", nodes=tuple(Node(name=f"gpu{i}") for i in range(6)), links=links
    )
    assert widest_ring(topology, tuple(range(6))).nodes[:3] in [
        tuple((order * 2)[i : i + 3]) for i in range(6)
    ]


def test_ring_prefers_the_widest_links_one_by_one():
    """Among many different bandwidths the smallest on the ring is as large as possible."""
    wide, narrow = [(i, (i + 1) % 8) for i in range(8)], [(i, (i + 3) % 8) for i in range(8)]
    links = tuple(
        Link(src=src, dst=dst, bandwidth=Fraction(rate * GB))
        for rate, (src, dst) in enumerate(narrow + wide, start=1)
    )
    topology = Topology(
        name="mixed", nodes=tuple(Node(name=f"gpu{i}") for i in range(8)), links=links
    )
    assert widest_ring(topology, tuple(range(8))).bandwidth == 9 * GB


def test_small_graph_without_a_cycle_is_searched_exhaustively():
    """The Petersen graph has cycle covers and is connected, but has no Hamiltonian cycle."""
    outer = [(i, (i + 1) % 5) for i in range(5)]
    inner = [(5 + i, 5 + (i + 2) % 5) for i in range(5)]
    adjacency = np.zeros((10, 10), dtype=bool)
    for a, b in outer + inner + [(i, i + 5) for i in range(5)]:
        adjacency[a, b] = adjacency[b, a] = True
    assert may_have_cycle(adjacency)
    assert hamiltonian_cycle(adjacency) is None


@pytest.mark.parametrize("spec", ["mesh:dims=6x7", "torus:dims=5x5", "hypercube:dimension=5"])
def test_patching_joins_cycles(spec):
    """Cycle patching alone finds a cycle in grids."""
    adjacency = adjacency_of(spec)
    assert is_cycle(adjacency, patched_cycle(adjacency))


@pytest.mark.parametrize("spec", ["random:gpus=80,degree=3", "random:gpus=200,degree=4"])
def test_rotations_find_a_cycle(spec):
    """Rotations alone find a cycle in sparse irregular graphs."""
    adjacency = adjacency_of(spec)
    assert is_cycle(adjacency, rotated_cycle(adjacency))
