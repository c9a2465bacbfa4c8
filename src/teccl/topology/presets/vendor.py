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

from collections.abc import Sequence
from fractions import Fraction

from teccl.topology.model import Topology
from teccl.topology.presets._wiring import Wiring, check_count, check_size
from teccl.topology.presets.rates import check_rates, xgmi
from teccl.topology.presets.rates import nic as nic_figures
from teccl.topology.presets.rates import nvlink as nvlink_figures
from teccl.units import Quantity, parse_bandwidth, parse_duration

_NVSWITCH_ALPHA = parse_duration("0.35us")
_XGMI_ALPHA = parse_duration("0.7us")
_NIC_ALPHA = parse_duration("0.65us")
_SPINE_ALPHA = parse_duration("0.15us")

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


def dgx_a100(
    *,
    chassis: int = 1,
    nvls: bool = False,
    alpha: Quantity | None = None,
    rates: str = "line",
) -> Topology:
    """NVIDIA DGX A100: 8 GPUs on NVSwitch, one 200 Gb/s NIC per GPU.

    Third-generation NVLink has 600 GB/s per GPU in both directions together, 300 GB/s in each;
    the compute fabric has eight single-port ConnectX-6 HDR adapters, 200 Gb/s = 25 GB/s each
    (NVIDIA DGX A100 data sheet and user guide). Rail-optimised: NVIDIA DGX SuperPOD reference
    architecture.

    Parameters
    ----------
    chassis
        Number of chassis of 8 GPUs.
    nvls
        Whether the NVSwitches reduce. The A100's hardware does not; this is for comparisons.
    alpha
        Latency of every link, instead of the module's figures.
    rates
        ``line`` or ``effective``, see `teccl.topology.presets.rates`.
    """
    return nvlink_cluster(
        "dgx-a100", chassis, 8, _NVLINK3, _HDR, nvls=nvls, alpha=alpha, rates=rates
    )


def dgx_h100(
    *,
    chassis: int = 1,
    nvls: bool = False,
    alpha: Quantity | None = None,
    rates: str = "line",
) -> Topology:
    """NVIDIA DGX H100: 8 GPUs on NVSwitch, one 400 Gb/s NIC per GPU.

    Fourth-generation NVLink has 900 GB/s per GPU in both directions together, 450 GB/s in each;
    eight ConnectX-7 NDR ports of 400 Gb/s = 50 GB/s serve the compute fabric (NVIDIA DGX H100
    data sheet and user guide). Rail-optimised: NVIDIA DGX SuperPOD reference architecture.

    Parameters
    ----------
    chassis
        Number of chassis of 8 GPUs.
    nvls
        Whether the NVSwitches reduce (NVLink SHARP).
    alpha
        Latency of every link, instead of the module's figures.
    rates
        ``line`` or ``effective``, see `teccl.topology.presets.rates`.
    """
    return nvlink_cluster(
        "dgx-h100", chassis, 8, _NVLINK4, _NDR, nvls=nvls, alpha=alpha, rates=rates
    )


def dgx_h200(
    *,
    chassis: int = 1,
    nvls: bool = False,
    alpha: Quantity | None = None,
    rates: str = "line",
) -> Topology:
    """NVIDIA DGX H200: the network of a DGX H100, more memory on the GPUs.

    900 GB/s of NVLink per GPU, 450 GB/s in each direction, and eight ConnectX-7 ports of
    400 Gb/s = 50 GB/s (NVIDIA DGX H200 data sheet and DGX H100/H200 user guide).

    Parameters
    ----------
    chassis
        Number of chassis of 8 GPUs.
    nvls
        Whether the NVSwitches reduce (NVLink SHARP).
    alpha
        Latency of every link, instead of the module's figures.
    rates
        ``line`` or ``effective``, see `teccl.topology.presets.rates`.
    """
    return nvlink_cluster(
        "dgx-h200", chassis, 8, _NVLINK4, _NDR, nvls=nvls, alpha=alpha, rates=rates
    )


def gb200_nvl72(
    *,
    chassis: int = 1,
    nvls: bool = False,
    alpha: Quantity | None = None,
    rates: str = "line",
) -> Topology:
    """NVIDIA GB200 NVL72: racks of 72 GPUs on NVLink switches, one 400 Gb/s NIC per GPU.

    Fifth-generation NVLink has 1.8 TB/s per GPU in both directions together, 900 GB/s in each,
    130 TB/s a rack (NVIDIA GB200 NVL72 data sheet). A rack has 18 compute trays of four GPUs with
    four ConnectX-7 ports of 400 Gb/s = 50 GB/s, so there are four rails: GPU i is on leaf i mod 4.

    Parameters
    ----------
    chassis
        Number of racks of 72 GPUs.
    nvls
        Whether the NVLink switches reduce (NVLink SHARP).
    alpha
        Latency of every link, instead of the module's figures.
    rates
        ``line`` or ``effective``, see `teccl.topology.presets.rates`.
    """
    return nvlink_cluster(
        "gb200-nvl72", chassis, 72, _NVLINK5, _NDR, num_rails=4, nvls=nvls, alpha=alpha, rates=rates
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
                wiring.wire(members[a], members[b], links * _XGMI_MI250, _XGMI_ALPHA)
    if chassis > 1:
        leaves = _leaves_and_spine(wiring, 8, chassis * _HDR)
        for c, members in enumerate(gpus):
            for gcd, gpu in enumerate(members):
                leaf, nic = leaves[gcd // 2], f"c{c}/nic{gcd // 2}"
                out, back = wiring.share(f"{nic}/out", _HDR), wiring.share(f"{nic}/in", _HDR)
                wiring.link(gpu, leaf, _HDR, _NIC_ALPHA, shares=(out,))
                wiring.link(leaf, gpu, _HDR, _NIC_ALPHA, shares=(back,))
    return wiring.topology()


def mi300x(*, chassis: int = 1, alpha: Quantity | None = None, rates: str = "line") -> Topology:
    """AMD Instinct MI300X: 8 GPUs fully connected by xGMI, one 400 Gb/s NIC per GPU.

    Each GPU has an xGMI link to each of its seven peers, 64 GB/s in each direction (AMD Instinct
    MI300X platform data sheet: 896 GB/s a GPU in both directions together). Eight 400 Gb/s =
    50 GB/s NICs a node, as in Azure's ND MI300X v5.

    Parameters
    ----------
    chassis
        Number of nodes of 8 GPUs.
    alpha
        Latency of every link, instead of the module's figures.
    rates
        ``line`` or ``effective``, see `teccl.topology.presets.rates`.
    """
    return xgmi_cluster("mi300x", chassis, _XGMI_MI300, _NDR, alpha=alpha, rates=rates)


def xgmi_cluster(
    preset: str,
    chassis: int,
    link: Fraction,
    nic: Fraction,
    *,
    alpha: Quantity | None,
    rates: str,
) -> Topology:
    """Nodes of eight GPUs fully connected by xGMI, joined by rails from two nodes on."""
    check_count(preset, "chassis", chassis, low=1)
    check_size(preset, nodes=8 * chassis + 9, links=72 * chassis + 16, lower="chassis")
    effective = check_rates(preset, rates)
    wiring, figures = Wiring(preset, alpha=alpha), xgmi(link, _XGMI_ALPHA, effective=effective)
    gpus = [wiring.chassis_gpus(c, 8) for c in range(chassis)]
    for members in gpus:
        for i, gpu in enumerate(members):
            for peer in members[i + 1 :]:
                wiring.wire(gpu, peer, link * figures.part, figures.alpha)
    if chassis > 1:
        _rails(wiring, gpus, nic, num_rails=8, effective=effective)
    return wiring.topology()


def nvlink_cluster(
    preset: str,
    chassis: int,
    gpus_per_chassis: int,
    nvlink: Fraction,
    nic: Fraction,
    *,
    num_rails: int = 8,
    planes: int = 1,
    nvls: bool,
    alpha: Quantity | None,
    rates: str,
) -> Topology:
    """Chassis of GPUs around one NVSwitch, joined by rails from two chassis on.

    With several `planes` every network card is split into as many ports, each on a network of its
    own.
    """
    check_count(preset, "chassis", chassis, low=1)
    check_size(
        preset,
        nodes=(gpus_per_chassis + 1) * chassis + planes * (num_rails + 1),
        links=(2 + 2 * planes) * gpus_per_chassis * chassis + 2 * planes * num_rails,
        lower="chassis",
    )
    effective = check_rates(preset, rates)
    figures = nvlink_figures(nvlink, _NVSWITCH_ALPHA, effective=effective)
    rate = nvlink * figures.part
    wiring = Wiring(preset, alpha=alpha)
    gpus = []
    for c in range(chassis):
        gpus.append(wiring.chassis_gpus(c, gpus_per_chassis))
        nvswitch = wiring.switch(f"c{c}/nvswitch", group=f"c{c}", reduce=nvls)
        for gpu in gpus[c]:
            wiring.link(gpu, nvswitch, rate, figures.alpha, overhead=figures.overhead)
            wiring.link(nvswitch, gpu, rate, figures.alpha)
    for plane in range(planes) if chassis > 1 else ():
        prefix = f"p{plane}/" if planes > 1 else ""
        _rails(wiring, gpus, nic / planes, num_rails=num_rails, effective=effective, prefix=prefix)
    return wiring.topology()


def _rails(
    wiring: Wiring,
    gpus: Sequence[Sequence[int]],
    nic: Fraction,
    *,
    num_rails: int,
    effective: bool = False,
    prefix: str = "",
) -> None:
    """Give each GPU a NIC on the leaf of its rail, and join the leaves by a spine."""
    figures = nic_figures(_NIC_ALPHA, effective=effective)
    rate = nic * figures.part
    nics_per_leaf = sum(len(members) for members in gpus) // num_rails
    leaves = _leaves_and_spine(wiring, num_rails, nics_per_leaf * rate, prefix)
    for members in gpus:
        for i, gpu in enumerate(members):
            leaf = leaves[i % num_rails]
            wiring.link(gpu, leaf, rate, figures.alpha, overhead=figures.overhead)
            wiring.link(leaf, gpu, rate, figures.alpha)


def _leaves_and_spine(
    wiring: Wiring, num_rails: int, uplink: Fraction, prefix: str = ""
) -> list[int]:
    leaves = [wiring.switch(f"{prefix}leaf{rail}") for rail in range(num_rails)]
    spine = wiring.switch(f"{prefix}spine")
    for leaf in leaves:
        wiring.wire(leaf, spine, uplink, _SPINE_ALPHA)
    return leaves
