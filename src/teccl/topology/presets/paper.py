"""The topologies of the TE-CCL paper.

Figures come from the paper's appendix "Details of each topology" (the drawings of NDv2 and DGX2),
its table of topologies, and, where the drawing gives no GPU numbers, from the TACCL sketches it
refers to. The proprietary internal topologies are stand-ins with the latencies the table states.
"""

from teccl.topology.graph import Topology
from teccl.topology.presets._wiring import (
    Wiring,
    check_count,
    check_size,
    read_bandwidth,
)
from teccl.units import Quantity, parse_bandwidth, parse_duration

# The solid and the dashed pairs of the NDv2 drawing: two NVLinks and one NVLink of a V100.
NVLINK_DOUBLE = ((0, 1), (2, 3), (1, 3), (4, 5), (6, 7), (5, 7), (0, 4), (2, 6))
NVLINK_SINGLE = ((0, 2), (0, 3), (1, 2), (4, 6), (4, 7), (5, 6), (1, 5), (3, 7))
_DOUBLE_RATE = parse_bandwidth("50GB/s")
_SINGLE_RATE = parse_bandwidth("25GB/s")
_NVLINK_ALPHA = parse_duration("0.7us")

_NVSWITCH_RATE = parse_bandwidth("125GB/s")
_NVSWITCH_ALPHA = parse_duration("0.35us")

_NIC_RATE = parse_bandwidth("12.5GB/s")
_NIC_ALPHA = parse_duration("1.3us")

_PAIR_ALPHA = parse_duration("0.6us")
_UPLINK_ALPHA = parse_duration("0.75us")


def dgx1(*, alpha: Quantity = "0.7us") -> Topology:
    """DGX-1: 8 V100 GPUs in a hybrid cube mesh of NVLinks.

    The paper: "DGX1 has 8 GPUs and is similar to a single chassis NDv2"; so 8 pairs at 50 GB/s
    (two NVLinks) and 8 pairs at 25 GB/s (one NVLink), each in both directions, 150 GB/s a GPU.

    Parameters
    ----------
    alpha
        Latency of every link.
    """
    wiring = Wiring("dgx1", alpha=alpha)
    _cube_mesh(wiring, wiring.gpus(8))
    return wiring.topology()


def ndv2(*, chassis: int = 1, alpha: Quantity | None = None) -> Topology:
    """Azure NDv2: chassis like a DGX-1 with one 100 Gb/s NIC each.

    Inside a chassis 50 and 25 GB/s at 0.7 us (the paper's drawing). Between two chassis GPU 0 of
    each has a direct link to GPU 1 of the other, 12.5 GB/s and 1.3 us, as TACCL and the paper's
    table of results have it. With three and more, as drawn, GPU 0 of each chassis sends to one
    switch and the switch to GPU 1 of each chassis, 12.5 GB/s and 1.3 us per link.

    Parameters
    ----------
    chassis
        Number of chassis of 8 GPUs.
    alpha
        Latency of every link, instead of the figures above.
    """
    check_count("ndv2", "chassis", chassis, low=1)
    check_size("ndv2", nodes=8 * chassis + 1, links=34 * chassis, lower="chassis")
    wiring = Wiring("ndv2", alpha=alpha)
    gpus = [wiring.chassis_gpus(c, 8) for c in range(chassis)]
    for members in gpus:
        _cube_mesh(wiring, members)
    if chassis == 2:
        wiring.link(gpus[0][0], gpus[1][1], _NIC_RATE, _NIC_ALPHA)
        wiring.link(gpus[1][0], gpus[0][1], _NIC_RATE, _NIC_ALPHA)
    elif chassis > 2:
        switch = wiring.switch("switch")
        for members in gpus:
            wiring.link(members[0], switch, _NIC_RATE, _NIC_ALPHA)
            wiring.link(switch, members[1], _NIC_RATE, _NIC_ALPHA)
    return wiring.topology()


def dgx2(*, chassis: int = 1, alpha: Quantity | None = None) -> Topology:
    """DGX-2: chassis of 16 GPUs around an NVSwitch, 8 of them sending out and 8 receiving.

    GPU to NVSwitch and back 125 GB/s and 0.35 us; between two chassis each of the 8 sending GPUs
    has one link to one receiving GPU of the other, 12.5 GB/s and 2.6 us (the paper's drawing).
    The drawing has no numbers: as in TACCL's sketch, GPU 1, 3, 5... sends to GPU 0, 2, 4... of
    the other chassis, so that each pair of neighbours shares its NIC as sender and receiver.

    With three and more chassis, which the paper does not draw, every sending GPU has a link to
    one common switch and the switch one to every receiving GPU, 12.5 GB/s and 1.3 us each: a way
    between chassis costs the 2.6 us of the direct link.

    Parameters
    ----------
    chassis
        Number of chassis of 16 GPUs.
    alpha
        Latency of every link, instead of the figures above.
    """
    check_count("dgx2", "chassis", chassis, low=1)
    check_size("dgx2", nodes=17 * chassis + 1, links=48 * chassis, lower="chassis")
    wiring = Wiring("dgx2", alpha=alpha)
    gpus = []
    for c in range(chassis):
        gpus.append(wiring.chassis_gpus(c, 16))
        nvswitch = wiring.switch(f"c{c}/nvswitch", group=f"c{c}")
        for gpu in gpus[c]:
            wiring.wire(gpu, nvswitch, _NVSWITCH_RATE, _NVSWITCH_ALPHA)
    if chassis == 2:
        for here, there in ((0, 1), (1, 0)):
            for sender, receiver in zip(gpus[here][1::2], gpus[there][::2], strict=True):
                wiring.link(sender, receiver, _NIC_RATE, 2 * _NIC_ALPHA)
    elif chassis > 2:
        switch = wiring.switch("switch")
        for members in gpus:
            for sender, receiver in zip(members[1::2], members[::2], strict=True):
                wiring.link(sender, switch, _NIC_RATE, _NIC_ALPHA)
                wiring.link(switch, receiver, _NIC_RATE, _NIC_ALPHA)
    return wiring.topology()


def internal1(
    *, chassis: int = 1, bandwidth: Quantity = "50GB/s", alpha: Quantity | None = None
) -> Topology:
    """Stand-in for the paper's Internal 1: rings of 4 GPUs, every GPU on one switch.

    The paper states 4 GPUs a chassis, 8 links among them, 0.6 us from GPU to GPU and 0.75 us from
    GPU to switch, and keeps the rest for itself. Taken here: a ring in both directions, and every
    GPU with a link to and from one common switch, all at 50 GB/s.

    Parameters
    ----------
    chassis
        Number of chassis of 4 GPUs.
    bandwidth
        Of every link.
    alpha
        Latency of every link, instead of the figures above.
    """
    check_count("internal1", "chassis", chassis, low=1)
    check_size("internal1", nodes=4 * chassis + 1, links=16 * chassis, lower="chassis")
    rate = read_bandwidth("internal1", bandwidth)
    wiring = Wiring("internal1", alpha=alpha)
    gpus = [wiring.chassis_gpus(c, 4) for c in range(chassis)]
    switch = wiring.switch("switch")
    for members in gpus:
        for i, gpu in enumerate(members):
            wiring.wire(gpu, members[(i + 1) % 4], rate, _PAIR_ALPHA)
        for gpu in members:
            wiring.wire(gpu, switch, rate, _UPLINK_ALPHA)
    return wiring.topology()


def internal2(*, chassis: int = 1, alpha: Quantity | None = None) -> Topology:
    """Stand-in for the paper's Internal 2: pairs of GPUs, every GPU on one switch.

    The paper states 2 GPUs a chassis, 2 links between them, 0.6 us from GPU to GPU and 0.75 us
    from GPU to switch, and keeps the rest for itself. Taken here: 50 GB/s between the two, and
    12.5 GB/s from every GPU to one common switch and back.

    Parameters
    ----------
    chassis
        Number of chassis of 2 GPUs.
    alpha
        Latency of every link, instead of the figures above.
    """
    check_count("internal2", "chassis", chassis, low=1)
    check_size("internal2", nodes=2 * chassis + 1, links=6 * chassis, lower="chassis")
    wiring = Wiring("internal2", alpha=alpha)
    gpus = [wiring.chassis_gpus(c, 2) for c in range(chassis)]
    switch = wiring.switch("switch")
    for first, second in gpus:
        wiring.wire(first, second, _DOUBLE_RATE, _PAIR_ALPHA)
        wiring.wire(first, switch, _NIC_RATE, _UPLINK_ALPHA)
        wiring.wire(second, switch, _NIC_RATE, _UPLINK_ALPHA)
    return wiring.topology()


def _cube_mesh(wiring: Wiring, gpus: list[int]) -> None:
    """Wire the NVLinks of the NDv2 drawing among 8 GPUs."""
    for pairs, rate in ((NVLINK_DOUBLE, _DOUBLE_RATE), (NVLINK_SINGLE, _SINGLE_RATE)):
        for a, b in pairs:
            wiring.wire(gpus[a], gpus[b], rate, _NVLINK_ALPHA)
