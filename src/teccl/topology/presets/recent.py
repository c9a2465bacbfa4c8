"""Machines of the years 2024 to 2026, each with the source of its figures.

What is marked *unconfirmed* rests on secondary pages or on analogy; set it by a file once it is
known. Latencies and clusters are as in `vendor`; `rates` has effective figures.
"""

import math
from collections.abc import Sequence
from itertools import product

from teccl.errors import TopologyError
from teccl.topology.graph import Topology
from teccl.topology.presets._wiring import (
    Wiring,
    check_count,
    check_size,
    read_alpha,
    read_bandwidth,
    read_dims,
)
from teccl.topology.presets.clusters import nvlink_cluster, nvlink_machine, xgmi_machine
from teccl.units import Quantity, parse_bandwidth

_NVLINK4, _NVLINK5 = parse_bandwidth("450GB/s"), parse_bandwidth("900GB/s")
_NVLINK_H800 = parse_bandwidth("200GB/s")
_NDR, _XDR = parse_bandwidth("400Gb/s"), parse_bandwidth("800Gb/s")
_XGMI_MI325, _XGMI_MI355 = parse_bandwidth("64GB/s"), parse_bandwidth("76.8GB/s")


dgx_b200 = nvlink_machine(
    "dgx-b200",
    """NVIDIA DGX B200: 8 GPUs on NVSwitch, one 400 Gb/s NIC per GPU.

    NVLink 5 has 18 links of 50 GB/s, 900 GB/s in each direction (stas00/ml-engineering, network;
    NCCL counts 18 x 40.1); eight ConnectX-7 ports of 400 Gb/s (the same).""",
    gpus=8,
    nvlink=_NVLINK5,
    nic=_NDR,
)


def dgx_b300(
    *,
    chassis: int = 1,
    planes: int = 1,
    nvls: bool = False,
    alpha: Quantity | None = None,
    rates: str = "line",
) -> Topology:
    """NVIDIA DGX B300: 8 GPUs on NVSwitch, one 800 Gb/s NIC per GPU, on one plane or two.

    900 GB/s of NVLink in each direction; eight ConnectX-8 adapters, rail-optimised, optionally as
    two planes of half the rate (NVIDIA enterprise reference architecture for HGX B300). That an
    adapter has 800 Gb/s is unconfirmed.

    Parameters
    ----------
    chassis
        Number of chassis of 8 GPUs.
    planes
        1, or 2 for a leaf and a spine of each plane.
    nvls
        Whether the NVSwitches reduce (NVLink SHARP).
    alpha
        Latency of every link, instead of the module's figures.
    rates
        ``line`` or ``effective``, see `teccl.topology.presets.rates`.
    """
    check_count("dgx-b300", "planes", planes, low=1, high=2)
    return nvlink_cluster(
        *("dgx-b300", chassis, 8, _NVLINK5, _XDR),
        planes=planes,
        nvls=nvls,
        alpha=alpha,
        rates=rates,
    )


gb300_nvl72 = nvlink_machine(
    "gb300-nvl72",
    """NVIDIA GB300 NVL72: racks of 72 GPUs on NVLink switches, one 800 Gb/s NIC per GPU.

    As the GB200 NVL72, with ConnectX-8 (NVIDIA documentation of GB300 and A4X Max); that one has
    800 Gb/s is unconfirmed. Four rails: GPU i is on leaf i mod 4.""",
    gpus=72,
    nvlink=_NVLINK5,
    nic=_XDR,
    num_rails=4,
)


h800 = nvlink_machine(
    "h800",
    """NVIDIA H800: 8 GPUs on NVSwitch at 200 GB/s, one 400 Gb/s NIC per GPU.

    200 GB/s of NVLink in each direction (NVIDIA/nccl issue 1374); eight NICs of 400 Gb/s
    (NVIDIA/nccl issue 1154).""",
    gpus=8,
    nvlink=_NVLINK_H800,
    nic=_NDR,
)


h20 = nvlink_machine(
    "h20",
    """NVIDIA H20: 8 GPUs on NVSwitch at 450 GB/s, one 400 Gb/s NIC per GPU.

    NVLink as on an H100, 450 GB/s in each direction (NVIDIA/nccl issue 1374). One 400 Gb/s NIC per
    GPU is unconfirmed: servers differ.""",
    gpus=8,
    nvlink=_NVLINK4,
    nic=_NDR,
)


p5 = nvlink_machine(
    "p5",
    """AWS p5: 8 H100 on NVSwitch, 32 EFA ports of 100 Gb/s, four per GPU.

    450 GB/s of NVLink in each direction; 32 x 100 Gb/s a node (stas00/ml-engineering, network,
    table of EFA), modelled as one NIC of 50 GB/s per GPU. Rails are unconfirmed: EFA spreads
    packets over its network. That effective rates hold for EFA is unconfirmed, too.""",
    gpus=8,
    nvlink=_NVLINK4,
    nic=_NDR,
)


a3_ultra = nvlink_machine(
    "a3-ultra",
    """Google A3 Ultra: 8 H200 on NVSwitch, eight RoCE NICs of 400 Gb/s.

    450 GB/s of NVLink in each direction (DGX H200 data sheet); 8 x 400 Gb/s ConnectX-7 (Google's
    cluster-toolkit v1.44.1).""",
    gpus=8,
    nvlink=_NVLINK4,
    nic=_NDR,
)


mi325x = xgmi_machine(
    "mi325x",
    """AMD Instinct MI325X: 8 GPUs fully connected by xGMI, one 400 Gb/s NIC per GPU.

    The links of an MI300X, 7 x 64 GB/s (stas00/ml-engineering, network); the NICs are its too.""",
    link=_XGMI_MI325,
    nic=_NDR,
)


mi355x = xgmi_machine(
    "mi355x",
    """AMD Instinct MI355X: 8 GPUs fully connected by xGMI, one 400 Gb/s NIC per GPU.

    7 x 76.8 GB/s, 153.6 both ways, is unconfirmed: secondary pages only. RCCL takes 48 GB/s for
    these links as for the MI300X's.""",
    link=_XGMI_MI355,
    nic=_NDR,
)


def tpu_v5p(
    *,
    dims: str | Sequence[int] = "4x4x4",
    twisted: bool = False,
    bandwidth: Quantity = "100GB/s",
    alpha: Quantity = "0.5us",
) -> Topology:
    """Google TPU v5p: a 3D torus of chips, plain or twisted.

    1200 GB/s per chip both ways over six links, 100 GB/s a link and direction; twisted tori of
    4x4x8 and 4x8x8 (Google Cloud documentation, TPU v5p). The latency is no published figure.

    Parameters
    ----------
    dims
        Chips along each axis.
    twisted
        Whether wraparounds of the shorter axes also shift the longer ones; see `twisted_torus`.
    bandwidth, alpha
        Of every link.
    """
    return _torus("tpu-v5p", dims, 3, bandwidth, alpha, twisted=twisted)


def tpu_v6e(
    *,
    dims: str | Sequence[int] = "4x4",
    bandwidth: Quantity = "100GB/s",
    alpha: Quantity = "0.5us",
) -> Topology:
    """Google TPU v6e: a 2D torus of chips, up to 16 x 16.

    800 GB/s per chip both ways over four ports, 100 GB/s a link and direction, which agrees with
    the 3.2 TB/s of bisection of a pod: 2 x 16 links (Google Cloud documentation, TPU v6e). The
    latency is no published figure.

    Parameters
    ----------
    dims
        Chips along each axis.
    bandwidth, alpha
        Of every link.
    """
    return _torus("tpu-v6e", dims, 2, bandwidth, alpha, twisted=False)


def trn2(*, bandwidth: Quantity = "160GB/s", alpha: Quantity = "0.5us") -> Topology:
    """AWS Trainium2: 16 chips in a 4x4 torus of NeuronLink-v3.

    The torus is AWS Neuron's documentation. 1.28 TB/s per chip is unconfirmed; over four links and
    both ways it makes 160 GB/s each. The latency is no published figure.

    Parameters
    ----------
    bandwidth, alpha
        Of every link.
    """
    return _torus("trn2", "4x4", 2, bandwidth, alpha, twisted=False)


def twisted_torus(
    *,
    dims: str | Sequence[int] = "4x4x8",
    bandwidth: Quantity = "50GB/s",
    alpha: Quantity = "0.5us",
) -> Topology:
    """Torus in which the wraparounds of its shorter axes shift the longer ones by half.

    For k x k x 2k and k x 2k x 2k, the shapes for which Google's documentation names twisted tori:
    a step off the end of an axis of length k comes back k further along every axis of length 2k.
    That this is Google's twist is unconfirmed.

    Parameters
    ----------
    dims
        k x k x 2k or k x 2k x 2k.
    bandwidth, alpha
        Of every link.
    """
    return _torus("twisted-torus", dims, 3, bandwidth, alpha, twisted=True)


def two_tier(
    *,
    leaves: int = 4,
    gpus: int = 8,
    spines: int = 2,
    oversubscription: int = 2,
    gpu_bandwidth: Quantity = "50GB/s",
    alpha: Quantity = "0.5us",
) -> Topology:
    """Leaves and spines, the leaves oversubscribed by a factor.

    Every leaf has so many GPUs and a link to each spine; together these carry what its GPUs send,
    divided by the factor.

    Parameters
    ----------
    leaves, gpus, spines
        Leaf switches, GPUs on each, and spine switches.
    oversubscription
        How much more the GPUs of a leaf can send than its uplinks carry; 1 is none.
    gpu_bandwidth, alpha
        Of a GPU's link, and the latency of every link.
    """
    name = "two-tier"
    for key, value in (("leaves", leaves), ("gpus", gpus), ("spines", spines)):
        check_count(name, key, value, low=1)
    check_count(name, "oversubscription", oversubscription, low=1, high=1000)
    check_size(
        name,
        nodes=leaves * (gpus + 1) + spines,
        links=2 * leaves * (gpus + spines),
        lower="leaves, gpus or spines",
    )
    if leaves * gpus < 2:
        raise TopologyError("preset two-tier: a single gpu; give more leaves or gpus")
    rate, latency = read_bandwidth(name, gpu_bandwidth), read_alpha(name, alpha)
    wiring = Wiring(name)
    members = [
        [wiring.gpu(f"gpu{n * gpus + i}", group=f"leaf{n}") for i in range(gpus)]
        for n in range(leaves)
    ]
    tops = [wiring.switch(f"spine{i}") for i in range(spines)]
    for number, group in enumerate(members):
        leaf = wiring.switch(f"leaf{number}", group=f"leaf{number}")
        for gpu in group:
            wiring.wire(gpu, leaf, rate, latency)
        for spine in tops:
            wiring.wire(leaf, spine, gpus * rate / (oversubscription * spines), latency)
    return wiring.topology()


def _torus(
    preset: str,
    dims: str | Sequence[int],
    axes: int,
    bandwidth: Quantity,
    alpha: Quantity,
    *,
    twisted: bool,
) -> Topology:
    """GPUs at the points of a grid whose axes close, with a twist if wanted."""
    sizes = read_dims(preset, dims)
    if len(sizes) != axes:
        raise TopologyError(f"preset {preset}: dims is {dims!r}; give {axes} sizes")
    short, long = min(sizes), max(sizes)
    if twisted and (set(sizes) != {short, long} or long != 2 * short):
        raise TopologyError(
            f"preset {preset}: dims {dims!r} has no twist; give k x k x 2k or k x 2k x 2k"
        )
    count = math.prod(sizes)
    check_size(preset, nodes=count, links=2 * count * axes, lower="dims")
    rate, latency = read_bandwidth(preset, bandwidth), read_alpha(preset, alpha)
    wiring = Wiring(preset)
    wiring.gpus(count)
    known: set[tuple[int, int]] = set()
    for point in product(*(range(size) for size in sizes)):
        for axis, size in enumerate(sizes):
            if size == 1:
                continue
            end = list(point)
            end[axis] = (point[axis] + 1) % size
            if twisted and end[axis] == 0 and size == short:
                for other, length in enumerate(sizes):
                    if length == long:
                        end[other] = (end[other] + short) % long
            pair = _number(point, sizes), _number(end, sizes)
            key = min(pair), max(pair)
            if key not in known:
                known.add(key)
                wiring.wire(*pair, rate, latency)
    return wiring.topology()


def _number(point: Sequence[int], sizes: Sequence[int]) -> int:
    """Rank of a point, row-major."""
    rank = 0
    for place, size in zip(point, sizes, strict=True):
        rank = rank * size + place
    return rank
