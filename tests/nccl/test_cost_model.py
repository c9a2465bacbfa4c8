"""NCCL's cost model against figures worked by hand from the published constants.

An H100 node: 18 NVLinks of 20.6 GB/s = 370.8 GB/s, 16 channels. A hundred gigabytes per second
through the network cards of a node where there are several nodes, unless a case says otherwise.
"""

import pytest

from teccl import Topology
from teccl.demand import Collective
from teccl.errors import InputError
from teccl.nccl import Algorithm, Cost, Generation, Protocol, Shape, best, cost, costs, shape_of

AR, AG, RS = Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCESCATTER
TREE, RING, NVLS = Algorithm.TREE, Algorithm.RING, Algorithm.NVLS
NVLS_TREE, PAT = Algorithm.NVLS_TREE, Algorithm.PAT
LL, LL128, SIMPLE = Protocol


def node(**changes) -> Shape:
    """One H100 node."""
    known = {"ranks": 8, "nodes": 1, "generation": Generation.HOPPER, "intra_gbps": 370.8}
    return Shape(**{**known, **changes})


def cluster(nodes: int, **changes) -> Shape:
    """Several H100 nodes with 100 GB/s of network each."""
    return node(ranks=8 * nodes, nodes=nodes, inter_gbps=100.0, **changes)


CASES = [
    # Ring: 14 steps of 3.4 after 8.4; 8/14 of the bus bandwidth.
    (AR, RING, SIMPLE, node(), 8.4 + 14 * 3.4, 370.8 * 8 / 14),
    # LL: half the bandwidth, at most 141, and 14 steps of 0.6.
    (AR, RING, LL, node(), 6.6 + 14 * 0.6, 141.0 * 8 / 14),
    # LL128: 0.92 of 370.8 = 341.1, below 16 x 36.7 = 587.2.
    (AR, RING, LL128, node(), 14.0 + 14 * 1.9, 370.8 * 0.92 * 8 / 14),
    # AllGather: 7 steps, 8/7.
    (AG, RING, SIMPLE, node(), 8.4 + 7 * 3.4, 370.8 * 8 / 7),
    # Tree on one node: 2 x 7 x 4; 0.92 x 370.8 = 341.1, below 16 x 38.7 = 619.2; half.
    (AR, TREE, SIMPLE, node(), 8.4 + 2 * 7 * 4.0, 370.8 * 0.92 / 2),
    # Two nodes: 30 steps, 2 of them over the network at 14; within a node max(3.4, 3 x 1).
    (AR, RING, SIMPLE, cluster(2), 8.4 + 28 * 3.4 + 2 * 14.0, 100.0 * 16 / 30),
    # LL over two nodes with Intel CPUs: max(0.6, 1) within, 2.7 across; min(39, 50).
    (AR, RING, LL, cluster(2), 6.6 + 28 * 1.0 + 2 * 2.7, 39.0 * 16 / 30),
    # Tree over four nodes: 2 x (7 x 0.6 + 2 x 5); 92 / 3.8 = 24.2, above 20.4; half.
    (AR, TREE, LL, cluster(4), 6.8 + 2 * (7 * 0.6 + 2 * 5.0), 20.4 / 2),
    # NVLS: 25 us; 370.8 x 0.85 x 15/16, twice because the halves overlap, times 8/14.
    (AR, NVLS, SIMPLE, node(nvls=True), 25.0, 370.8 * 0.85 * 15 / 16 * 2 * 8 / 14),
    # NVLS tree over four nodes: 25 + 2 x 2 x 20.9; the network's 100 binds; 32/62.
    (AR, NVLS_TREE, SIMPLE, cluster(4, nvls=True), 25.0 + 4 * 20.9, 100.0 * 32 / 62),
    # PAT, one GPU on each of 8 nodes: 8 + 3 x 14 / 3.5 + 8 x 2.8; 0.75 of 50 GB/s.
    (
        *(AG, PAT, SIMPLE, node(nodes=8, inter_gbps=50.0)),
        *(8.0 + 3 * 14.0 / 3.5 + 8 * 2.8, 50.0 * 0.75),
    ),
    # CollNetDirect over two nodes: 2 x (3.7 + 7 x 0.4) + 31; 8 GPUs for 16 channels make 3/4.
    (
        *(AR, Algorithm.COLLNET_DIRECT, SIMPLE, cluster(2, collnet=True)),
        *(2 * (3.7 + 7 * 0.4) + 31.0, 100.0 / 0.75 * 0.85 / 2),
    ),
    # CollNetChain: 2 x 7 x 2.8 + 30, half of the network.
    (
        *(AR, Algorithm.COLLNET_CHAIN, SIMPLE, cluster(2, collnet=True)),
        *(2 * 7 * 2.8 + 30.0, 100.0 / 2),
    ),
    # A broadcast is a pipeline: one step of latency, the whole bus bandwidth.
    (Collective.BROADCAST, RING, SIMPLE, node(), 8.4 + 3.4, 370.8),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_figures_worked_by_hand(case):
    """Latency and bandwidth of each case."""
    collective, algorithm, protocol, shape, latency, rate = case
    found = cost(collective, algorithm, protocol, shape)
    assert found is not None
    assert found.latency_us == pytest.approx(latency)
    assert found.bandwidth_gbps == pytest.approx(rate)


def test_time_is_latency_and_bytes_over_bandwidth():
    """A gigabyte by ring: 56 us and 1e9 / 211.886 GB/s."""
    found = cost(AR, RING, SIMPLE, node())
    assert found.seconds(1e9, node()) == pytest.approx(56e-6 + 1 / (370.8 * 8 / 14))


def test_trees_are_corrected_by_size():
    """At 1 MiB, 2^14 times 64 bytes, a Simple tree reaches half of its bandwidth."""
    found = cost(AR, TREE, SIMPLE, node())
    seconds = (64.4 + 2**20 / 1000 / (370.8 * 0.46 * 0.5)) * 1e-6
    assert found.seconds(2**20, node()) == pytest.approx(seconds)


def test_rings_over_nodes_have_a_plateau():
    """From 64 bytes for each channel and rank on their latency is 1.4 times as long."""
    shape = cluster(2)
    found = cost(AR, RING, SIMPLE, shape)
    size = 64 * 16 * 16
    rest = size / (1000 * found.bandwidth_gbps)
    assert found.seconds(size, shape) == pytest.approx((1.4 * found.latency_us + rest) * 1e-6)
    assert found.seconds(size - 1, shape) < found.seconds(size, shape) - 0.3e-6 * 131


def test_small_sizes_take_ll_and_large_ones_simple():
    """The cheapest way changes with the size as NCCL's does."""
    assert best(AR, 1e3, node()).protocol is LL
    assert best(AR, 1e9, node()).protocol is SIMPLE
    assert best(AR, 1e9, node(nvls=True)).algorithm is NVLS


def test_what_nccl_does_not_do_has_no_cost():
    """No trees for AllGather, no NVLS without switches that add up, nothing for AllToAll."""
    assert cost(AG, TREE, SIMPLE, node()) is None
    assert cost(AR, NVLS, SIMPLE, node()) is None
    assert cost(AR, NVLS, LL, node(nvls=True)) is None
    assert best(Collective.ALLTOALL, 1e6, node()) is None
    assert {each.algorithm for each in costs(RS, node())} == {RING}


@pytest.mark.parametrize(
    ("topology", "nodes", "intra", "inter", "generation"),
    [
        ("dgx-h100", 1, 370.8, 0.0, "hopper"),
        ("dgx-h100:chassis=2", 2, 370.8, 400.0, "hopper"),
        ("dgx-a100:chassis=4", 4, 240.0, 200.0, "ampere"),
        ("gb200-nvl72", 1, 721.8, 0.0, "blackwell"),
    ],
)
def test_shapes_follow_from_topologies(topology, nodes, intra, inter, generation):
    """Groups are nodes, NVLink counts as NCCL counts it, network cards with their rate."""
    found = shape_of(Topology.parse(topology))
    assert (found.nodes, found.generation) == (nodes, generation)
    assert (found.intra_gbps, found.inter_gbps) == pytest.approx((intra, inter))
    assert not found.nvls


def test_switches_that_add_up_make_nvls():
    """NVLS within a node; without them there is none."""
    assert shape_of(Topology.parse("dgx-h100:nvls=true")) == node(nvls=True)


def test_an_unknown_machine_needs_its_generation():
    """A rate that no NVLink has is refused unless the user says which GPU it is."""
    with pytest.raises(InputError, match="--gpu"):
        shape_of(Topology.parse("ring:gpus=4,bandwidth=7GB/s"))
    found = shape_of(Topology.parse("ring:gpus=4,bandwidth=7GB/s"), generation=Generation.HOPPER)
    assert (found.ranks, found.intra_gbps) == (4, 14.0)


def test_costs_have_a_name():
    """Algorithm and protocol, as tables print them."""
    found = cost(AR, RING, LL128, node())
    assert isinstance(found, Cost)
    assert found.name == "ring ll128"
