"""Machines of today, from their vendors' public figures.

Bandwidths are peak rates per direction out of data sheets and documentation, named in each
docstring. Latencies are not in data sheets; these are typical orders, to be replaced by `alpha=`
or by a topology file once a machine has been measured:

- GPU to NVSwitch 0.35 us, the paper's figure for DGX2;
- xGMI between two AMD GPUs 0.7 us, the paper's figure for a direct NVLink;
- GPU through its NIC to a leaf switch 0.65 us, so that two GPUs on one leaf are 1.3 us apart, the
  paper's figure for InfiniBand;
- leaf to spine 0.15 us, the order of one more switch hop.

Several chassis form a rail-optimised cluster: a leaf switch per rail takes the NICs in the same
position of all chassis, and one spine joins the leaves at the sum of their NICs' rates, so nothing
is oversubscribed. One chassis has no leaf and no spine. NVSwitch planes and spine layers are
symmetric, so one switch at the full rate stands for all of them.
"""

from teccl.topology.graph import Topology
from teccl.topology.presets._wiring import Wiring, check_count, check_size
from teccl.topology.presets.clusters import (
    NIC_ALPHA,
    XGMI_ALPHA,
    leaves_and_spine,
    nvlink_machine,
    xgmi_machine,
)
from teccl.units import Quantity, parse_bandwidth

_NVLINK3 = parse_bandwidth("300GB/s")
_NVLINK4 = parse_bandwidth("450GB/s")
_NVLINK5 = parse_bandwidth("900GB/s")
_HDR = parse_bandwidth("200Gb/s")
_NDR = parse_bandwidth("400Gb/s")
_XGMI_MI250 = parse_bandwidth("50GB/s")
_XGMI_MI300 = parse_bandwidth("64GB/s")

# The pairs of GCDs of an eight-package MI250 node by number of xGMI links between them; the other
# pairs that hold four are the two GCDs of a package.
_MI250_DOUBLE = ((0, 4), (3, 7), (8, 12), (11, 15))
_MI250_SINGLE = (
    *((0, 2), (1, 2), (1, 3), (1, 5), (2, 6), (4, 12), (5, 13), (5, 14)),
    *((6, 13), (6, 14), (7, 15), (8, 10), (9, 10), (9, 11), (9, 13), (10, 14)),
)


dgx_a100 = nvlink_machine(
    "dgx-a100",
    """NVIDIA DGX A100: 8 GPUs on NVSwitch, one 200 Gb/s NIC per GPU.

    Third-generation NVLink has 600 GB/s per GPU in both directions together, 300 GB/s in each;
    the compute fabric has eight single-port ConnectX-6 HDR adapters, 200 Gb/s = 25 GB/s each
    (NVIDIA DGX A100 data sheet and user guide). Rail-optimised: NVIDIA DGX SuperPOD reference
    architecture.""",
    gpus=8,
    nvlink=_NVLINK3,
    nic=_HDR,
)


dgx_h100 = nvlink_machine(
    "dgx-h100",
    """NVIDIA DGX H100: 8 GPUs on NVSwitch, one 400 Gb/s NIC per GPU.

    Fourth-generation NVLink has 900 GB/s per GPU in both directions together, 450 GB/s in each;
    eight ConnectX-7 NDR ports of 400 Gb/s = 50 GB/s serve the compute fabric (NVIDIA DGX H100
    data sheet and user guide). Rail-optimised: NVIDIA DGX SuperPOD reference architecture.""",
    gpus=8,
    nvlink=_NVLINK4,
    nic=_NDR,
)


dgx_h200 = nvlink_machine(
    "dgx-h200",
    """NVIDIA DGX H200: the network of a DGX H100, more memory on the GPUs.

    900 GB/s of NVLink per GPU, 450 GB/s in each direction, and eight ConnectX-7 ports of
    400 Gb/s = 50 GB/s (NVIDIA DGX H200 data sheet and DGX H100/H200 user guide).""",
    gpus=8,
    nvlink=_NVLINK4,
    nic=_NDR,
)


gb200_nvl72 = nvlink_machine(
    "gb200-nvl72",
    """NVIDIA GB200 NVL72: racks of 72 GPUs on NVLink switches, one 400 Gb/s NIC per GPU.

    Fifth-generation NVLink has 1.8 TB/s per GPU in both directions together, 900 GB/s in each,
    130 TB/s a rack (NVIDIA GB200 NVL72 data sheet). A rack has 18 compute trays of four GPUs with
    four ConnectX-7 ports of 400 Gb/s = 50 GB/s: four rails, GPU i is on leaf i mod 4.""",
    gpus=72,
    nvlink=_NVLINK5,
    nic=_NDR,
    num_rails=4,
)


def mi250(*, chassis: int = 1, alpha: Quantity | None = None) -> Topology:
    """AMD Instinct MI250: nodes of 8 packages, each two GCDs that count as GPUs, joined by xGMI.

    One xGMI link has 50 GB/s in each direction (16 lanes at 25 GT/s) and a GCD has eight, one of
    them for the host (ROCm documentation, MI250 microarchitecture). Which GCDs they join is the
    16-GCD node of RCCL's topology table, the one of TE-CCL's public AMD topology: four links
    inside a package (200 GB/s), two on 4 pairs (100 GB/s), one on 16 pairs (50 GB/s), 7 a GCD.
    Links between the same two GCDs are one link of their summed rate. The node has eight 200 Gb/s
    = 25 GB/s NICs, taken here as one per package: its two GCDs share the NIC, and rail p is
    package p.

    Parameters
    ----------
    chassis
        Number of nodes of 16 GCDs.
    alpha
        Latency of every link, instead of the module's figures.
    """
    check_count("mi250", "chassis", chassis, low=1)
    check_size("mi250", nodes=16 * chassis + 9, links=88 * chassis + 16, lower="chassis")
    wiring = Wiring("mi250", alpha=alpha)
    gpus = [wiring.chassis_gpus(c, 16) for c in range(chassis)]
    packages = tuple((gcd, gcd + 1) for gcd in range(0, 16, 2))
    for members in gpus:
        for pairs, links in ((packages, 4), (_MI250_DOUBLE, 2), (_MI250_SINGLE, 1)):
            for a, b in pairs:
                wiring.wire(members[a], members[b], links * _XGMI_MI250, XGMI_ALPHA)
    if chassis > 1:
        leaves = leaves_and_spine(wiring, 8, chassis * _HDR)
        for c, members in enumerate(gpus):
            for gcd, gpu in enumerate(members):
                leaf, nic = leaves[gcd // 2], f"c{c}/nic{gcd // 2}"
                out, back = wiring.share(f"{nic}/out", _HDR), wiring.share(f"{nic}/in", _HDR)
                wiring.link(gpu, leaf, _HDR, NIC_ALPHA, shares=(out,))
                wiring.link(leaf, gpu, _HDR, NIC_ALPHA, shares=(back,))
    return wiring.topology()


mi300x = xgmi_machine(
    "mi300x",
    """AMD Instinct MI300X: 8 GPUs fully connected by xGMI, one 400 Gb/s NIC per GPU.

    Each GPU has an xGMI link to each of its seven peers, 64 GB/s in each direction (AMD Instinct
    MI300X platform data sheet: 896 GB/s a GPU in both directions together). Eight 400 Gb/s =
    50 GB/s NICs a node, as in Azure's ND MI300X v5.""",
    link=_XGMI_MI300,
    nic=_NDR,
)
