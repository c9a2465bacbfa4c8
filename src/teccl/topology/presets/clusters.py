"""Clusters: GPUs around NVSwitches or fully connected by xGMI, joined by rails; made from data.

Latencies are those that `vendor` names. A machine is its name, its text and its figures;
`nvlink_machine` and `xgmi_machine` turn them into a preset.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from teccl.topology.graph import Topology
from teccl.topology.presets._wiring import Wiring, check_count, check_size
from teccl.topology.presets.rates import check_rates, xgmi
from teccl.topology.presets.rates import nic as nic_figures
from teccl.topology.presets.rates import nvlink as nvlink_figures
from teccl.units import Quantity, parse_duration

NVSWITCH_ALPHA = parse_duration("0.35us")
XGMI_ALPHA = parse_duration("0.7us")
NIC_ALPHA = parse_duration("0.65us")
SPINE_ALPHA = parse_duration("0.15us")

_CHASSIS = """
    Parameters
    ----------
    chassis
        Number of chassis, nodes or racks.
"""
_NVLS = """    nvls
        Whether the NVSwitches reduce (NVLink SHARP).
"""
_ALPHA_AND_RATES = """    alpha
        Latency of every link, instead of the module's figures.
    rates
        ``line`` or ``effective``, see `teccl.topology.presets.rates`.
"""


def nvlink_machine(
    preset: str, text: str, *, gpus: int, nvlink: Fraction, nic: Fraction, num_rails: int = 8
) -> Callable[..., Topology]:
    """Return the preset of a machine around an NVSwitch.

    Parameters
    ----------
    preset, text
        Its name, and what it is with the sources of its figures.
    gpus, nvlink, nic
        GPUs of a chassis, and the rates of a GPU's NVLinks and of its network card.
    num_rails
        Leaves that several chassis share.
    """

    def build(
        *,
        chassis: int = 1,
        nvls: bool = False,
        alpha: Quantity | None = None,
        rates: str = "line",
    ) -> Topology:
        return nvlink_cluster(
            *(preset, chassis, gpus, nvlink, nic),
            num_rails=num_rails,
            nvls=nvls,
            alpha=alpha,
            rates=rates,
        )

    build.__doc__ = f"{text}\n{_CHASSIS}{_NVLS}{_ALPHA_AND_RATES}    "
    return build


def xgmi_machine(
    preset: str, text: str, *, link: Fraction, nic: Fraction
) -> Callable[..., Topology]:
    """Return the preset of a machine of eight GPUs that xGMI links join, all with all."""

    def build(*, chassis: int = 1, alpha: Quantity | None = None, rates: str = "line") -> Topology:
        return xgmi_cluster(preset, chassis, link, nic, alpha=alpha, rates=rates)

    build.__doc__ = f"{text}\n{_CHASSIS}{_ALPHA_AND_RATES}    "
    return build


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
    wiring, figures = Wiring(preset, alpha=alpha), xgmi(link, XGMI_ALPHA, effective=effective)
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
    figures = nvlink_figures(nvlink, NVSWITCH_ALPHA, effective=effective)
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
    figures = nic_figures(NIC_ALPHA, effective=effective)
    rate = nic * figures.part
    nics_per_leaf = sum(len(members) for members in gpus) // num_rails
    leaves = leaves_and_spine(wiring, num_rails, nics_per_leaf * rate, prefix)
    for members in gpus:
        for i, gpu in enumerate(members):
            leaf = leaves[i % num_rails]
            wiring.link(gpu, leaf, rate, figures.alpha, overhead=figures.overhead)
            wiring.link(leaf, gpu, rate, figures.alpha)


def leaves_and_spine(
    wiring: Wiring, num_rails: int, uplink: Fraction, prefix: str = ""
) -> list[int]:
    """Add a leaf for each rail and a spine that joins them."""
    leaves = [wiring.switch(f"{prefix}leaf{rail}") for rail in range(num_rails)]
    spine = wiring.switch(f"{prefix}spine")
    for leaf in leaves:
        wiring.wire(leaf, spine, uplink, SPINE_ALPHA)
    return leaves
