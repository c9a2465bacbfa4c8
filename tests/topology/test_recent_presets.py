"""Recent machines: figures with their sources, effective rates, twists, planes and tiers."""

from collections import Counter
from fractions import Fraction

import pytest

import teccl
from teccl.errors import TopologyError
from teccl.topology import Topology
from teccl.topology.overview import summarise
from teccl.topology.presets import build_preset

GB = 10**9

# (preset, GB/s out of a GPU within its chassis, GB/s to its leaf, where the figures come from)
FIGURES = [
    ("dgx-b200", 900, 50, "ml-engineering: 18 links of 50 GB/s; 400 Gb/s ConnectX-7"),
    ("dgx-b300", 900, 100, "HGX B300 reference architecture; 800 Gb/s unconfirmed"),
    ("gb300-nvl72", 900, 100, "GB300 documentation; 800 Gb/s unconfirmed"),
    ("h800", 200, 50, "nccl issues 1374 and 1154"),
    ("h20", 450, 50, "nccl issue 1374; the NIC unconfirmed"),
    ("p5", 450, 50, "ml-engineering: 32 x 100 Gb/s of 8 GPUs"),
    ("a3-ultra", 450, 50, "cluster-toolkit v1.44.1: 8 x 400 Gb/s"),
    ("mi325x", 7 * 64, 50, "ml-engineering: 7 x 64 GB/s"),
    ("mi355x", Fraction("537.6"), 50, "7 x 76.8 GB/s, unconfirmed"),
]
NEW = [preset for preset, *_ in FIGURES] + ["tpu-v5p", "tpu-v6e", "trn2", "two-tier"]


def rates_out(topology: Topology, gpu: str) -> Counter:
    """GB/s out of a GPU within its group and beyond."""
    found: Counter = Counter()
    node = topology.find_node(gpu)
    for link in topology.links:
        if link.src == node:
            same = topology.nodes[link.dst].group == topology.nodes[node].group
            found["inside" if same else "outside"] += link.bandwidth / GB
    return found


@pytest.mark.parametrize(("preset", "inside", "outside", "source"), FIGURES)
def test_rates_of_a_gpu(preset, inside, outside, source):
    """What leaves a GPU within its chassis and over its network card, one way."""
    found = rates_out(build_preset(f"{preset}:chassis=2"), "c0/gpu3")
    assert (found["inside"], found["outside"]) == (inside, outside), source


@pytest.mark.parametrize(
    ("preset", "degree", "source"),
    [
        ("tpu-v5p", 6, "Google Cloud, TPU v5p: 1200 GB/s both ways over 6 links"),
        ("tpu-v6e", 4, "Google Cloud, TPU v6e: 800 GB/s both ways over 4 ports"),
    ],
)
def test_chips_have_a_hundred_gigabytes_a_link(preset, degree, source):
    """Bandwidth of a chip, both ways, over its links."""
    topology = build_preset(preset)
    assert {link.bandwidth for link in topology.links} == {Fraction(100 * GB)}
    assert set(Counter(topology.link_src.tolist()).values()) == {degree}, source


def test_the_bisection_of_a_tpu_v6e_pod():
    """2 x 16 links of 100 GB/s between the halves of 16 x 16 chips: 3.2 TB/s."""
    topology = build_preset("tpu-v6e:dims=16x16")
    half = topology.num_gpus // 2
    crossing = [e for e in topology.links if e.src < half <= e.dst]
    assert sum(link.bandwidth for link in crossing) == 3200 * GB


def test_a_trainium2_chip():
    """Four links of 160 GB/s: 1.28 TB/s both ways, unconfirmed."""
    topology = build_preset("trn2")
    assert sum(link.bandwidth for link in topology.links if link.src == 0) * 2 == 1280 * GB


def eccentricity(topology: Topology) -> int:
    """Hops from the first GPU to the farthest."""
    near: dict[int, list[int]] = {}
    for link in topology.links:
        near.setdefault(link.src, []).append(link.dst)
    far, front = {0: 0}, [0]
    while front:
        node = front.pop(0)
        for other in near[node]:
            if other not in far:
                far[other] = far[node] + 1
                front.append(other)
    return max(far.values())


def test_a_twist_shortens_the_longest_way():
    """4 x 4 x 8: eight hops in the torus, fewer with the twist; all chips see the same."""
    plain, twisted = build_preset("torus:dims=4x4x8"), build_preset("twisted-torus:dims=4x4x8")
    assert eccentricity(plain) == 8
    assert eccentricity(twisted) < 8
    assert set(Counter(twisted.link_src.tolist()).values()) == {6}


def test_the_twist_of_the_smallest():
    """2 x 2 x 4: off the end of the first axis one comes back two further along the last."""
    topology = build_preset("twisted-torus:dims=2x2x4")
    ends = {(link.src, link.dst) for link in topology.links}
    # (1, 0, 0) is rank 8; a step along the first axis leads to (0, 0, 2), rank 2.
    assert (8, 2) in ends


def test_planes_halve_the_ports():
    """Two planes: every GPU has two ports of 50 GB/s, on leaves that no cable joins."""
    topology = build_preset("dgx-b300:chassis=2,planes=2")
    node = topology.find_node("c0/gpu0")
    ports = {
        topology.nodes[link.dst].name: link.bandwidth / GB
        for link in topology.links
        if link.src == node
    }
    assert ports == {"c0/nvswitch": 900, "p0/leaf0": 50, "p1/leaf0": 50}
    assert rates_out(build_preset("dgx-b300:chassis=2"), "c0/gpu0")["outside"] == 100


def test_oversubscription_divides_the_uplinks():
    """8 GPUs of 50 GB/s behind 2 uplinks, by 4: 50 GB/s each."""
    topology = build_preset("two-tier:leaves=4,gpus=8,spines=2,oversubscription=4")
    leaf = topology.find_node("leaf0")
    up = [
        e.bandwidth / GB
        for e in topology.links
        if e.src == leaf and e.dst >= 32 and topology.nodes[e.dst].name.startswith("spine")
    ]
    assert up == [50, 50]


@pytest.mark.parametrize(
    ("spec", "nvlink"),
    [
        ("dgx-a100", 240),
        ("dgx-h100", Fraction("370.8")),
        ("dgx-b200", Fraction("721.8")),
        ("h800", Fraction("164.8")),
        ("gb300-nvl72", Fraction("721.8")),
    ],
)
def test_effective_nvlink(spec, nvlink):
    """NCCL's rate of an NVLink times their number; 936.25 ns a passage; 0.6 us a message sent."""
    topology = build_preset(f"{spec}:rates=effective")
    out = next(e for e in topology.links if topology.nodes[e.dst].is_switch)
    back = next(e for e in topology.links if topology.nodes[e.src].is_switch)
    assert out.bandwidth == back.bandwidth == nvlink * GB
    assert out.alpha + back.alpha == Fraction("936.25e-9")
    assert (out.overhead, back.overhead) == (Fraction("6e-7"), 0)


def test_effective_network_cards():
    """48.5 of 50 GB/s, 2.7 us for a message of which 1 us is to post it."""
    topology = build_preset("dgx-h100:chassis=2,rates=effective")
    gpu, leaf = topology.find_node("c0/gpu0"), topology.find_node("leaf0")
    out = next(e for e in topology.links if (e.src, e.dst) == (gpu, leaf))
    back = next(e for e in topology.links if (e.src, e.dst) == (leaf, gpu))
    assert out.bandwidth == Fraction("48.5e9")
    assert out.alpha + back.alpha + out.overhead + back.overhead == Fraction("2.7e-6")


@pytest.mark.parametrize("spec", ["mi300x", "mi325x", "mi355x"])
def test_effective_xgmi(spec):
    """RCCL counts 48 GB/s a link."""
    topology = build_preset(f"{spec}:rates=effective")
    assert {link.bandwidth for link in topology.links} == {Fraction(48 * GB)}


@pytest.mark.parametrize("preset", ["dgx-a100", "dgx-h100", "dgx-h200", "gb200-nvl72", "mi300x"])
def test_line_rates_have_no_overhead(preset):
    """The default is as it was: line rates, and messages that cost nothing more."""
    assert not build_preset(preset).has_overheads


@pytest.mark.parametrize(
    "spec",
    [
        "dgx-h100:rates=real",
        "dgx-b300:planes=3",
        "twisted-torus:dims=4x4x4",
        "tpu-v6e:dims=4x4x4",
        "two-tier:oversubscription=0",
        "two-tier:leaves=1,gpus=1",
        "trn2:dims=4x4",
    ],
)
def test_refusals(spec):
    """One line that names the preset."""
    with pytest.raises(TopologyError, match=f"preset {spec.partition(':')[0]}"):
        build_preset(spec)


@pytest.mark.parametrize("preset", NEW)
def test_new_presets_pass_their_check(preset):
    """Every GPU reaches every other."""
    assert summarise(build_preset(preset)).is_strongly_connected


@pytest.mark.slow
@pytest.mark.parametrize("preset", NEW)
@pytest.mark.parametrize("size", ["1MB", "1GB"])
@pytest.mark.parametrize("collective", ["allgather", "alltoall", "reducescatter", "allreduce"])
def test_new_presets_are_solved(preset, collective, size):
    """Verified, and within a tenth of the bound at a gigabyte."""
    result = teccl.solve(preset, collective, size=size, effort="quick")
    assert result.verified
    if size == "1GB":
        assert result.physical_gap < 0.1
