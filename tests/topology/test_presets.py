"""Presets: what they consist of, by hand, and what they refuse."""

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from teccl.errors import TopologyError
from teccl.topology import Topology
from teccl.topology.presets import PRESETS, _wiring, build_preset, list_presets

GB = 10**9
DOCS = Path(__file__).parents[2] / "docs"

# (specification, GPUs, switches, links, how the numbers come about)
COUNTS = [
    ("dgx1", 8, 0, 32, "8 pairs at 50 and 8 at 25 GB/s, both ways: 2 x 16"),
    ("ndv2", 8, 0, 32, "one DGX-1"),
    ("ndv2:chassis=2", 16, 0, 66, "2 x 32 and one direct link each way"),
    ("ndv2:chassis=3", 24, 1, 102, "3 x 32, 3 to the switch and 3 from it"),
    ("ndv2:chassis=4", 32, 1, 136, "4 x 32, 4 to the switch and 4 from it"),
    ("dgx2", 16, 1, 32, "16 GPUs, each to the NVSwitch and back"),
    ("dgx2:chassis=2", 32, 2, 80, "2 x 32 and 8 senders in each of 2 chassis"),
    ("dgx2:chassis=3", 48, 4, 144, "3 x 32, 3 x 8 to the switch and 3 x 8 from it"),
    ("internal1", 4, 1, 16, "ring of 4 both ways 8, to the switch and back 8"),
    ("internal1:chassis=2", 8, 1, 32, "2 x 16, one switch for both"),
    ("internal2", 2, 1, 6, "one pair 2, to the switch and back 4"),
    ("internal2:chassis=3", 6, 1, 18, "3 x 6, one switch for all"),
    ("dgx-a100", 8, 1, 16, "8 GPUs, each to the NVSwitch and back"),
    ("dgx-a100:chassis=2", 16, 11, 80, "2 x 16, 16 NICs both ways 32, 8 leaves to the spine 16"),
    ("dgx-h100", 8, 1, 16, "as dgx-a100"),
    ("dgx-h100:chassis=4", 32, 13, 144, "4 x 16, 32 NICs both ways 64, 8 leaves to the spine 16"),
    ("dgx-h200", 8, 1, 16, "as dgx-h100"),
    ("dgx-h200:chassis=2", 16, 11, 80, "as dgx-a100"),
    ("gb200-nvl72", 72, 1, 144, "72 GPUs, each to the switch and back"),
    ("gb200-nvl72:chassis=2", 144, 7, 584, "2 x 144, 144 NICs both ways 288, 4 leaves 8"),
    ("mi250", 16, 0, 56, "8 packages, 4 double and 16 single pairs, both ways: 2 x 28"),
    ("mi250:chassis=2", 32, 9, 192, "2 x 56, 32 GCDs to their leaf and back 64, 8 leaves 16"),
    ("mi300x", 8, 0, 56, "8 x 7 ordered pairs"),
    ("mi300x:chassis=2", 16, 9, 160, "2 x 56, 16 NICs both ways 32, 8 leaves 16"),
    ("dgx-b200", 8, 1, 16, "as dgx-h100"),
    ("dgx-b200:chassis=2", 16, 11, 80, "as dgx-h100"),
    ("dgx-b300", 8, 1, 16, "as dgx-h100"),
    ("dgx-b300:chassis=2", 16, 11, 80, "as dgx-h100"),
    ("dgx-b300:chassis=2,planes=2", 16, 20, 128, "2 x 16, 2 x 32 to leaves and back, 2 x 16 up"),
    ("gb300-nvl72", 72, 1, 144, "as gb200-nvl72"),
    ("gb300-nvl72:chassis=2", 144, 7, 584, "as gb200-nvl72"),
    ("h800", 8, 1, 16, "as dgx-h100"),
    ("h800:chassis=2", 16, 11, 80, "as dgx-h100"),
    ("h20", 8, 1, 16, "as dgx-h100"),
    ("h20:chassis=2", 16, 11, 80, "as dgx-h100"),
    ("p5", 8, 1, 16, "as dgx-h100"),
    ("p5:chassis=2", 16, 11, 80, "as dgx-h100"),
    ("a3-ultra", 8, 1, 16, "as dgx-h100"),
    ("a3-ultra:chassis=2", 16, 11, 80, "as dgx-h100"),
    ("mi325x", 8, 0, 56, "8 x 7 ordered pairs"),
    ("mi325x:chassis=2", 16, 9, 160, "as mi300x"),
    ("mi355x", 8, 0, 56, "8 x 7 ordered pairs"),
    ("mi355x:chassis=2", 16, 9, 160, "as mi300x"),
    ("tpu-v5p", 64, 0, 384, "64 chips with 6 neighbours"),
    ("tpu-v5p:dims=4x4x8,twisted=true", 128, 0, 768, "128 chips with 6 neighbours"),
    ("tpu-v6e", 16, 0, 64, "16 chips with 4 neighbours"),
    ("tpu-v6e:dims=16x16", 256, 0, 1024, "256 chips with 4 neighbours"),
    ("trn2", 16, 0, 64, "16 chips with 4 neighbours"),
    ("twisted-torus", 128, 0, 768, "128 GPUs with 6 neighbours"),
    ("twisted-torus:dims=2x4x4", 32, 0, 192, "32 GPUs with 6 neighbours"),
    ("two-tier", 32, 6, 80, "32 GPUs both ways 64, 4 leaves to 2 spines both ways 16"),
    ("two-tier:leaves=2,gpus=4,spines=1", 8, 3, 20, "8 GPUs both ways 16, 2 leaves both ways 4"),
    ("rail-tree", 128, 176, 1024, "128 NVLinks, 128 to 32 leaves, 4 up each, 64 spines: 2 x 512"),
    ("rail-tree:oversubscription=2,gpus=3", 48, 52, 288, "2 x (48 + 48 + 12 x 2 + 12 x 2)"),
    ("ring", 8, 0, 16, "2 x 8"),
    ("ring:gpus=2", 2, 0, 2, "one link each way, not two"),
    ("ring:gpus=3", 3, 0, 6, "2 x 3"),
    ("line", 8, 0, 14, "2 x 7"),
    ("line:gpus=2", 2, 0, 2, "2 x 1"),
    ("fully-connected", 8, 0, 56, "8 x 7"),
    ("fully-connected:gpus=3", 3, 0, 6, "3 x 2"),
    ("star", 8, 1, 16, "2 x 8"),
    ("random", 8, 0, 24, "8 GPUs with 3 neighbours"),
    ("random:gpus=10,degree=4", 10, 0, 40, "10 GPUs with 4 neighbours"),
    ("random:gpus=2,degree=1", 2, 0, 2, "the only network of two GPUs"),
    ("random:gpus=6,degree=5", 6, 0, 30, "everyone with everyone"),
    ("mesh", 16, 0, 48, "4 rows and 4 columns of 3 pairs: 2 x 24"),
    ("mesh:dims=2x3", 6, 0, 14, "3 pairs down, 4 along: 2 x 7"),
    ("mesh:dims=2x3x4", 24, 0, 92, "12 + 16 + 18 pairs: 2 x 46"),
    ("mesh:dims=5", 5, 0, 8, "a line"),
    ("torus", 16, 0, 64, "16 GPUs with 4 neighbours"),
    ("torus:dims=3x3x3", 27, 0, 162, "27 GPUs with 6 neighbours"),
    ("torus:dims=2x4", 8, 0, 24, "1 neighbour in the dimension of 2, and 2: 8 x 3"),
    ("torus:dims=1x4", 4, 0, 8, "a dimension of 1 adds nothing: a ring of 4"),
    ("torus:dims=2x2", 4, 0, 8, "4 GPUs with 2 neighbours"),
    ("hypercube", 8, 0, 24, "8 GPUs with 3 neighbours"),
    ("hypercube:dimension=1", 2, 0, 2, "one pair"),
    ("hypercube:dimension=4", 16, 0, 64, "16 GPUs with 4 neighbours"),
    ("fat-tree", 16, 20, 96, "16 hosts, 16 edge and 16 core cables, both ways: 2 x 48"),
    ("fat-tree:k=2", 2, 5, 12, "2 GPUs, 2 edge, 2 aggregation and 1 core switch; 2 x 6"),
    ("fat-tree:k=6", 54, 45, 324, "54 + 54 + 54 cables: 2 x 162"),
    ("dragonfly", 24, 12, 84, "24 GPUs 48, 4 groups of 3 router pairs 24, 6 pairs of groups 12"),
    ("dragonfly:groups=2,routers=1,gpus=1", 2, 2, 6, "2 GPUs 4, one pair of groups 2"),
    ("dragonfly:groups=1,routers=2,gpus=2", 4, 2, 10, "4 GPUs 8, one pair of routers 2"),
    ("dragonfly:groups=5,routers=2,gpus=3", 30, 10, 90, "30 GPUs 60, 5 x 2, 10 x 2"),
]
# Enough of each kind to see chassis, leaves and spines, for tests that hold for all presets.
SPECS = [spec for spec, *_ in COUNTS]


def link_figures(topology: Topology, src: str, dst: str) -> list[tuple[float, float]]:
    """Pairs (GB/s, us) of the links from one node to another."""
    ends = topology.find_node(src), topology.find_node(dst)
    return [
        (float(link.bandwidth / GB), float(link.alpha * 10**6))
        for link in topology.links
        if (link.src, link.dst) == ends
    ]


def out_rates(topology: Topology) -> Counter[int]:
    """Bytes per second that leave each node."""
    rates: Counter[int] = Counter()
    for link in topology.links:
        rates[link.src] += link.bandwidth
    return rates


def reached(topology: Topology, start: int) -> set[int]:
    """Nodes that data from one node can reach."""
    seen, new = {start}, {start}
    while new:
        new = {link.dst for link in topology.links if link.src in new} - seen
        seen |= new
    return seen


@pytest.mark.parametrize(("spec", "gpus", "switches", "links", "derivation"), COUNTS)
def test_counts(spec, gpus, switches, links, derivation):
    """Each preset has the nodes and links counted by hand."""
    topology = build_preset(spec)
    found = topology.num_gpus, topology.num_switches, topology.num_links
    assert found == (gpus, switches, links), derivation


def test_every_preset_is_counted():
    """No preset escapes the table of counts."""
    assert {spec.partition(":")[0] for spec in SPECS} == set(PRESETS)


@pytest.mark.parametrize("spec", SPECS)
def test_every_gpu_reaches_every_other(spec):
    """All presets are strongly connected."""
    topology = build_preset(spec)
    for gpu in topology.gpus[:: max(1, topology.num_gpus // 8)]:
        assert set(map(int, topology.gpus)) <= reached(topology, int(gpu))


@pytest.mark.parametrize("spec", SPECS)
def test_name_is_the_preset(spec):
    """A topology bears its preset's name, which tables print."""
    assert build_preset(spec).name == spec.partition(":")[0]


@pytest.mark.parametrize("spec", SPECS)
def test_no_two_links_are_parallel(spec):
    """Presets join two nodes by at most one link each way."""
    ends = Counter((link.src, link.dst) for link in build_preset(spec).links)
    assert set(ends.values()) == {1}


@pytest.mark.parametrize(
    ("spec", "src", "dst", "expected"),
    [
        ("dgx1", "gpu0", "gpu1", (50, 0.7)),
        ("dgx1", "gpu3", "gpu1", (50, 0.7)),
        ("dgx1", "gpu2", "gpu6", (50, 0.7)),
        ("dgx1", "gpu0", "gpu2", (25, 0.7)),
        ("dgx1", "gpu5", "gpu1", (25, 0.7)),
        ("dgx1", "gpu7", "gpu3", (25, 0.7)),
        ("ndv2", "c0/gpu0", "c0/gpu4", (50, 0.7)),
        ("ndv2:chassis=2", "c0/gpu0", "c1/gpu1", (12.5, 1.3)),
        ("ndv2:chassis=2", "c1/gpu0", "c0/gpu1", (12.5, 1.3)),
        ("ndv2:chassis=3", "c2/gpu0", "switch", (12.5, 1.3)),
        ("ndv2:chassis=3", "switch", "c2/gpu1", (12.5, 1.3)),
        ("dgx2:chassis=2", "c0/gpu15", "c0/nvswitch", (125, 0.35)),
        ("dgx2:chassis=2", "c1/nvswitch", "c1/gpu0", (125, 0.35)),
        ("dgx2:chassis=2", "c0/gpu1", "c1/gpu0", (12.5, 2.6)),
        ("dgx2:chassis=2", "c1/gpu15", "c0/gpu14", (12.5, 2.6)),
        ("dgx2:chassis=3", "c2/gpu3", "switch", (12.5, 1.3)),
        ("dgx2:chassis=3", "switch", "c0/gpu2", (12.5, 1.3)),
        ("internal1", "c0/gpu3", "c0/gpu0", (50, 0.6)),
        ("internal1", "c0/gpu2", "switch", (50, 0.75)),
        ("internal2", "c0/gpu0", "c0/gpu1", (50, 0.6)),
        ("internal2", "switch", "c0/gpu1", (12.5, 0.75)),
        ("dgx-a100:chassis=3", "c2/gpu7", "c2/nvswitch", (300, 0.35)),
        ("dgx-a100:chassis=3", "c2/gpu7", "leaf7", (25, 0.65)),
        ("dgx-a100:chassis=3", "leaf0", "spine", (75, 0.15)),
        ("dgx-h100:chassis=2", "c0/nvswitch", "c0/gpu0", (450, 0.35)),
        ("dgx-h100:chassis=2", "leaf3", "c1/gpu3", (50, 0.65)),
        ("dgx-h200:chassis=2", "spine", "leaf7", (100, 0.15)),
        ("gb200-nvl72:chassis=2", "c1/gpu71", "c1/nvswitch", (900, 0.35)),
        ("gb200-nvl72:chassis=2", "c1/gpu71", "leaf3", (50, 0.65)),
        ("gb200-nvl72:chassis=2", "leaf0", "spine", (1800, 0.15)),
        ("mi250", "c0/gpu6", "c0/gpu7", (200, 0.7)),
        ("mi250", "c0/gpu12", "c0/gpu8", (100, 0.7)),
        ("mi250", "c0/gpu5", "c0/gpu14", (50, 0.7)),
        ("mi250:chassis=3", "c2/gpu5", "leaf2", (25, 0.65)),
        ("mi250:chassis=3", "leaf2", "spine", (75, 0.15)),
        ("mi300x", "c0/gpu7", "c0/gpu0", (64, 0.7)),
        ("mi300x:chassis=2", "c1/gpu5", "leaf5", (50, 0.65)),
        ("torus", "gpu0", "gpu3", (50, 0.5)),
        ("fat-tree", "pod3/aggregation1", "core3", (50, 0.5)),
        ("dragonfly", "g0/router0", "g1/router0", (50, 0.5)),
    ],
)
def test_figures(spec, src, dst, expected):
    """Links have the bandwidth and latency of their source."""
    assert link_figures(build_preset(spec), src, dst) == [expected]


@pytest.mark.parametrize(
    ("spec", "src", "dst"),
    [
        ("dgx1", "gpu0", "gpu5"),
        ("ndv2:chassis=2", "c0/gpu1", "c1/gpu0"),
        ("dgx2:chassis=2", "c0/gpu0", "c1/gpu1"),
        ("dgx2:chassis=3", "c0/gpu0", "switch"),
        ("ndv2:chassis=3", "c0/gpu1", "switch"),
        ("dgx-h100:chassis=2", "c0/gpu0", "leaf1"),
        ("mi250", "c0/gpu0", "c0/gpu15"),
        ("mesh", "gpu0", "gpu3"),
        ("line", "gpu7", "gpu0"),
    ],
)
def test_missing_links(spec, src, dst):
    """Nodes that the source does not join are not joined."""
    assert link_figures(build_preset(spec), src, dst) == []


def test_dgx1_gives_every_gpu_six_nvlinks():
    """A V100 has six NVLinks of 25 GB/s."""
    assert set(out_rates(build_preset("dgx1")).values()) == {150 * GB}


def test_mi250_gives_every_gcd_seven_links():
    """Seven of a GCD's eight xGMI links of 50 GB/s go to other GCDs."""
    assert set(out_rates(build_preset("mi250")).values()) == {350 * GB}


def test_mi250_shares_a_nic_between_the_gcds_of_a_package():
    """Both GCDs of a package use one 25 GB/s NIC, sending and receiving apart."""
    topology = build_preset("mi250:chassis=2")
    users = Counter(name for link in topology.links for name in link.shares)
    assert users == {
        f"c{c}/nic{p}/{way}": 2 for c in (0, 1) for p in range(8) for way in ("in", "out")
    }
    assert set(topology.shared.values()) == {Fraction(25 * GB)}


def test_rails_are_not_oversubscribed():
    """What a leaf passes to the spine is what its NICs bring."""
    topology = build_preset("dgx-h100:chassis=5")
    leaf, spine = topology.find_node("leaf2"), topology.find_node("spine")
    arriving = sum(x.bandwidth for x in topology.links if x.dst == leaf and x.src != spine)
    leaving = sum(x.bandwidth for x in topology.links if (x.src, x.dst) == (leaf, spine))
    assert arriving == leaving == 250 * GB


@pytest.mark.parametrize("preset", ["dgx-a100", "dgx-h100", "dgx-h200", "gb200-nvl72"])
def test_nvls_makes_the_nvswitches_reduce(preset):
    """`nvls` turns reduction on in the NVSwitches and nowhere else."""
    topology = build_preset(f"{preset}:chassis=2,nvls=true")
    assert [n.name for n in topology.nodes if n.reduce] == ["c0/nvswitch", "c1/nvswitch"]


@pytest.mark.parametrize("spec", [*SPECS, "dgx-h100:chassis=2,nvls=false"])
def test_no_switch_reduces_unless_asked(spec):
    """Reduction in switches is off by default."""
    assert not any(node.reduce for node in build_preset(spec).nodes)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_ranks_run_through_the_groups_in_order(preset):
    """Rank order goes chassis by chassis, and by number inside each."""
    topology = build_preset(preset)
    parameters = list_presets()[preset].parameters
    if "pods" in parameters:
        groups = [f"p{p}/u{u}/c{c}" for p in range(2) for u in range(2) for c in range(4)]
        expected = [f"{group}/gpu{i}" for group in groups for i in range(8)]
    elif "chassis" in parameters:
        topology = build_preset(f"{preset}:chassis=3")
        size = topology.num_gpus // 3
        expected = [f"c{c}/gpu{i}" for c in range(3) for i in range(size)]
        groups = [f"c{c}" for c in range(3) for _ in range(size)]
        assert [topology.nodes[i].group for i in topology.gpus] == groups
    else:
        expected = [f"gpu{i}" for i in range(topology.num_gpus)]
    assert [topology.nodes[i].name for i in topology.gpus] == expected


def test_mesh_ranks_are_row_major():
    """In a mesh of 2x3 rank 1 is beside rank 0 and rank 3 below it."""
    topology = build_preset("mesh:dims=2x3")
    pairs = {tuple(sorted((link.src, link.dst))) for link in topology.links}
    assert pairs == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}


def test_torus_closes_every_dimension():
    """In a torus of 2x3x4 rank 0 has a neighbour at the other end of each dimension."""
    topology = build_preset("torus:dims=2x3x4")
    # Ranks are 12 i + 4 j + k.
    assert {link.dst for link in topology.links if link.src == 0} == {1, 3, 4, 8, 12}


def test_hypercube_joins_ranks_that_differ_in_one_bit():
    """Rank 5 = 101 in binary meets 100, 111 and 001."""
    topology = build_preset("hypercube:dimension=3")
    assert {link.dst for link in topology.links if link.src == 5} == {4, 7, 1}


def test_fat_tree_switches_use_all_their_ports():
    """Every switch of a fat tree has k links out and k in."""
    topology = build_preset("fat-tree:k=6")
    ports = Counter(link.src for link in topology.links)
    assert {ports[i] for i, node in enumerate(topology.nodes) if node.is_switch} == {6}


def test_dragonfly_spreads_global_links_over_routers():
    """Six other groups on four routers: each router has one or two links out of its group."""
    topology = build_preset("dragonfly:groups=7,routers=4,gpus=1")
    group = [node.group for node in topology.nodes]
    outside = [link for link in topology.links if group[link.src] != group[link.dst]]
    assert Counter(Counter(link.src for link in outside).values()) == {1: 14, 2: 14}
    assert set(Counter((group[x.src], group[x.dst]) for x in outside).values()) == {1}


def test_random_network_is_the_same_everywhere():
    """A seed names one network, on every platform and Python version."""
    topology = build_preset("random:gpus=6,degree=3,seed=7")
    pairs = sorted((link.src, link.dst) for link in topology.links if link.src < link.dst)
    assert pairs == [(0, 1), (0, 2), (0, 3), (1, 3), (1, 4), (2, 4), (2, 5), (3, 5), (4, 5)]


def test_random_seeds_give_different_networks():
    """Another seed gives another network."""
    networks = {build_preset(f"random:gpus=12,degree=4,seed={seed}") for seed in range(20)}
    assert len(networks) == 20


@pytest.mark.parametrize(("gpus", "degree"), [(3, 2), (9, 2), (10, 3), (16, 5), (30, 29), (41, 8)])
def test_random_network_is_regular_and_connected(gpus, degree):
    """Every GPU has `degree` different neighbours, and reaches all others."""
    for seed in range(10):
        topology = build_preset(f"random:gpus={gpus},degree={degree},seed={seed}")
        pairs = {(link.src, link.dst) for link in topology.links}
        assert Counter(src for src, _ in pairs) == dict.fromkeys(range(gpus), degree)
        assert all((dst, src) in pairs for src, dst in pairs)
        assert len(reached(topology, 0)) == gpus


@pytest.mark.parametrize("spec", SPECS)
def test_alpha_sets_all_links(spec):
    """`alpha=` replaces the latency of every link, and nothing else."""
    changed = build_preset(spec + ("," if ":" in spec else ":") + "alpha=3us")
    original = build_preset(spec)
    assert {link.alpha for link in changed.links} == {Fraction(3, 10**6)}
    assert changed.nodes == original.nodes
    assert [x.bandwidth for x in changed.links] == [x.bandwidth for x in original.links]


def test_alpha_may_be_zero():
    """`alpha=0` needs no unit."""
    assert {link.alpha for link in build_preset("ndv2:chassis=2,alpha=0").links} == {0}


UNIFORM = [name for name, info in list_presets().items() if "bandwidth" in info.parameters]


@pytest.mark.parametrize("preset", UNIFORM)
def test_bandwidth_sets_all_links(preset):
    """`bandwidth=` replaces the rate of every link."""
    topology = build_preset(f"{preset}:bandwidth=200Gb/s")
    assert {link.bandwidth for link in topology.links} == {Fraction(25 * GB)}


def test_bandwidth_is_a_parameter_of_uniform_presets_only():
    """Presets whose links differ do not take one bandwidth for all."""
    generic = {"ring", "line", "fully-connected", "star", "random", "mesh", "torus"}
    chips = {"tpu-v5p", "tpu-v6e", "trn2", "twisted-torus"}
    assert set(UNIFORM) == generic | chips | {"hypercube", "fat-tree", "dragonfly", "internal1"}


def test_topology_parse_takes_a_bandwidth_with_a_slash():
    """The slash of GB/s does not make a preset a file name."""
    topology = Topology.parse("ring:gpus=4,bandwidth=25GB/s")
    assert topology.links[0].bandwidth == 25 * GB


def test_values_may_have_spaces_around_them():
    """Spaces around names, keys and values do not matter."""
    assert build_preset(" ring : gpus = 4 , alpha = 1 us ") == build_preset("ring:gpus=4,alpha=1us")


def test_builders_take_python_values():
    """A builder called from Python takes numbers, sequences and quantities as they are."""
    topology = PRESETS["torus"](dims=[2, 3], bandwidth=Fraction(GB), alpha=0)
    assert topology == build_preset("torus:dims=2x3,bandwidth=1GB/s,alpha=0")


@pytest.mark.parametrize(
    ("spec", "fragments"),
    [
        ("", ["no preset ''"]),
        ("rnig", ["'rnig'", "did you mean 'ring'"]),
        ("NDV2:chassis=2", ["'NDV2'", "did you mean 'ndv2'"]),
        ("dgx-h10", ["did you mean 'dgx-h100'"]),
        ("x\ny", ["no preset 'x\\ny'"]),
        ("n" * 500, ["no preset", "..."]),
        ("ring:gpu=4", ["ring", "'gpu'", "did you mean 'gpus'"]),
        ("ndv2:bandwidth=1GB/s", ["ndv2", "'bandwidth'", "chassis"]),
        ("mi300x:nvls=true", ["mi300x", "'nvls'"]),
        ("dgx1:chassis=2", ["dgx1", "'chassis'"]),
        ("ring:", ["ring", "key=value", "gpus"]),
        ("ring:gpus", ["'gpus'", "key=value"]),
        ("ring:gpus=", ["'gpus='", "key=value"]),
        ("ring:=4", ["'=4'", "key=value"]),
        ("ring:gpus=4,", ["''", "key=value"]),
        ("ring:gpus=4,gpus=4", ["gpus", "twice"]),
        ("ring:gpus=1", ["ring", "gpus is 1", "from 2"]),
        ("ring:gpus=-4", ["gpus is -4", "whole number from 2"]),
        ("ring:gpus=4.5", ["gpus is '4.5'", "whole number"]),
        ("ring:gpus=٤", ["gpus is '٤'", "whole number"]),
        ("ring:gpus=1000000000", ["gpus is 1000000000", "100000"]),
        ("ring:gpus=" + "9" * 400, ["gpus is", "whole number"]),
        ("line:gpus=1", ["gpus is 1"]),
        ("star:gpus=1", ["gpus is 1"]),
        ("star:gpus=100000", ["100001 nodes", "lower gpus"]),
        ("fully-connected:gpus=1", ["gpus is 1"]),
        ("fully-connected:gpus=2237", ["5001932 links", "lower gpus"]),
        ("random:gpus=8,degree=8", ["degree is 8", "to 7"]),
        ("random:gpus=8,degree=1", ["degree is 1", "from 2"]),
        ("random:gpus=2,degree=0", ["degree is 0"]),
        ("random:gpus=9,degree=3", ["9 gpus", "3 neighbours", "even"]),
        ("random:seed=4294967296", ["seed is 4294967296"]),
        ("random:gpus=100000,degree=60", ["6000000 links", "lower gpus or degree"]),
        ("mesh:dims=0x3", ["mesh", "dims is '0x3'", "4x4"]),
        ("mesh:dims=4x", ["dims is '4x'", "4x4"]),
        ("mesh:dims=x", ["dims is 'x'"]),
        ("torus:dims=4X4", ["dims is '4X4'"]),
        ("torus:dims=4x-4", ["dims is '4x-4'"]),
        ("torus:dims=1x1", ["single gpu"]),
        ("torus:dims=400x400", ["160000 nodes", "lower dims"]),
        ("torus:dims=" + "x".join("2" * 17), ["dims", "up to 16"]),
        ("hypercube:dimension=0", ["dimension is 0", "from 1 to 16"]),
        ("hypercube:dimension=1000000000", ["dimension is 1000000000", "to 16"]),
        ("fat-tree:k=5", ["k is 5", "even"]),
        ("fat-tree:k=0", ["k is 0"]),
        ("fat-tree:k=74", ["nodes", "lower k"]),
        ("dragonfly:groups=0", ["groups is 0"]),
        ("dragonfly:routers=0", ["routers is 0"]),
        ("dragonfly:gpus=0", ["gpus is 0"]),
        ("dragonfly:groups=1,routers=1,gpus=1", ["single gpu"]),
        ("dragonfly:groups=100,routers=100,gpus=100", ["1010000 nodes", "lower groups"]),
        ("dragonfly:groups=3,routers=2000,gpus=1", ["links", "lower groups"]),
        ("dgx-h100:nvls=maybe", ["nvls is 'maybe'", "true or false"]),
        ("dgx-h100:nvls=1", ["nvls is '1'", "true or false"]),
        ("ring:alpha=1", ["ring: alpha '1'", "unit"]),
        ("ring:alpha=-1us", ["ring: alpha '-1us'", "negative"]),
        ("ring:alpha=inf", ["ring: alpha 'inf'"]),
        ("ndv2:alpha=1year", ["ndv2: alpha '1year'", "unit"]),
        ("ring:bandwidth=50", ["ring: bandwidth '50'", "unit"]),
        ("ring:bandwidth=0", ["ring: bandwidth is '0'", "positive"]),
        ("ring:bandwidth=0GB/s", ["ring: bandwidth is '0GB/s'", "positive"]),
    ],
)
def test_refusals(spec, fragments):
    """What cannot be built is refused in one line that names it and says what to do."""
    with pytest.raises(TopologyError) as caught:
        build_preset(spec)
    message = str(caught.value)
    assert "\n" not in message
    assert [text for text in fragments if text not in message] == []


CHASSIS = [name for name, info in list_presets().items() if "chassis" in info.parameters]


@pytest.mark.parametrize("preset", CHASSIS)
@pytest.mark.parametrize("chassis", ["0", "100001", "1000000000", "99999", "two"])
def test_absurd_chassis_are_refused(preset, chassis):
    """No chassis, too many, or no number of them: each preset refuses in one line."""
    with pytest.raises(TopologyError, match=rf"^preset {preset}: [^\n]*chassis[^\n]*$"):
        build_preset(f"{preset}:chassis={chassis}")


@pytest.mark.parametrize(
    "spec",
    [
        *(f"{preset}:chassis=99999" for preset in CHASSIS),
        "star:gpus=100000",
        "fully-connected:gpus=99999",
        "random:gpus=100000,degree=99998",
        "mesh:dims=99999x99999",
        "torus:dims=99999x2",
        "fat-tree:k=99998",
        "dragonfly:groups=99999,routers=99999,gpus=99999",
    ],
)
def test_size_is_refused_before_anything_is_built(spec, monkeypatch):
    """A network that is too large costs no memory: not one node is made."""
    monkeypatch.setattr(_wiring, "Node", None)
    monkeypatch.setattr(_wiring, "Link", None)
    with pytest.raises(TopologyError, match="more than teccl handles"):
        build_preset(spec)


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("ring", {"gpus": True}),
        ("ring", {"gpus": 4.0}),
        ("ring", {"gpus": 4, "bandwidth": float("nan")}),
        ("torus", {"dims": []}),
        ("torus", {"dims": [4, True]}),
        ("torus", {"dims": [4, 2.0]}),
        ("ndv2", {"chassis": None}),
    ],
)
def test_builders_refuse_wrong_python_values(preset, parameters):
    """Values of the wrong type are refused like wrong text."""
    with pytest.raises(TopologyError, match=rf"^preset {preset}: "):
        PRESETS[preset](**parameters)


def test_list_names_every_preset_with_its_defaults():
    """The list has a line of summary and all parameters with defaults for each preset."""
    presets = list_presets()
    assert list(presets) == list(PRESETS)
    assert presets["random"].parameters == {
        "gpus": "8",
        "degree": "3",
        "seed": "0",
        "bandwidth": "50GB/s",
        "alpha": "0.5us",
        "overhead": "0",
    }
    assert presets["dgx-h100"].parameters == {
        "chassis": "1",
        "nvls": "false",
        "alpha": "per link",
        "rates": "line",
        "overhead": "0",
    }
    assert all(re.fullmatch(r"[A-Z][^\n]{10,98}\.", info.summary) for info in presets.values())


@pytest.mark.parametrize("preset", list(PRESETS))
def test_listed_defaults_are_those_used(preset):
    """Writing a preset's defaults out changes nothing."""
    defaults = {k: v for k, v in list_presets()[preset].parameters.items() if v != "per link"}
    spec = f"{preset}:" + ",".join(f"{key}={value}" for key, value in defaults.items())
    assert build_preset(spec) == build_preset(preset)


def test_every_preset_takes_alpha():
    """`alpha` is a parameter of every preset."""
    assert all("alpha" in info.parameters for info in list_presets().values())


def test_documented_counts_hold():
    """The numbers in the page of presets are those that are built, for each of them."""
    text = (DOCS / "presets.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \| (\d+) \| (\d+) \|", text, flags=re.MULTILINE)
    assert {row[0].partition(":")[0] for row in rows} == set(PRESETS)
    for spec, *numbers in rows:
        topology = build_preset(spec)
        counts = [topology.num_gpus, topology.num_switches, topology.num_links]
        assert counts == [int(number) for number in numbers], spec


def test_a_new_preset_is_one_function_and_one_entry(monkeypatch):
    """Its parameters, their kinds and its summary are read from the function."""

    def toy(gpus: int = 2, wide: bool = False, bandwidth: str = "1GB/s") -> Topology:
        """A ring for a test."""
        rate = "2GB/s" if wide else bandwidth
        return build_preset(f"ring:gpus={gpus},bandwidth={rate}")

    monkeypatch.setitem(PRESETS, "toy", toy)
    assert Topology.parse("toy:gpus=3,wide=true").links[0].bandwidth == 2e9
    assert Topology.parse("toy:bandwidth=5GB/s").links[0].bandwidth == 5e9
    with pytest.raises(TopologyError, match="wide is 'yes'; give true or false"):
        Topology.parse("toy:wide=yes")
    with pytest.raises(TopologyError, match="gpus is 'x'; give a whole number"):
        Topology.parse("toy:gpus=x")
    assert list_presets()["toy"].parameters == {
        "gpus": "2",
        "wide": "false",
        "bandwidth": "1GB/s",
        "overhead": "0",
    }
