"""Rail-optimised clusters with three tiers of switches: leaves, spines and cores.

The GPUs of a chassis are joined by an NVSwitch. GPUs with the same place in their chassis are a
rail. A rail has a leaf in every unit, spines that join the leaves of a pod, and cores that join the
spines of all pods. A leaf has a link down to each chassis of its unit and so many fewer up as
`oversubscription` says; a spine has one up for each one down.
"""

from itertools import product

from teccl.errors import TopologyError
from teccl.topology.graph import Topology
from teccl.topology.presets._wiring import (
    Wiring,
    check_count,
    check_size,
    read_bandwidth,
)
from teccl.topology.presets.clusters import NIC_ALPHA, NVSWITCH_ALPHA, SPINE_ALPHA
from teccl.units import Quantity

RAIL_TREE = "rail-tree"


def rail_tree(
    *,
    pods: int = 2,
    units: int = 2,
    chassis: int = 4,
    gpus: int = 8,
    oversubscription: int = 1,
    nvlink: Quantity = "450GB/s",
    network: Quantity = "50GB/s",
    alpha: Quantity | None = None,
) -> Topology:
    """Rails with leaves, spines and cores, and an NVSwitch in every chassis.

    Rates and latencies are those of `dgx-h100`. Ranks are numbered by pod, unit, chassis and place.

    Parameters
    ----------
    pods, units, chassis, gpus
        Pods, units of a pod, chassis of a unit and GPUs of a chassis.
    oversubscription
        Links down from a leaf for each one up; divides `chassis`.
    nvlink, network
        Rate of a GPU's link to its NVSwitch, and of every other link.
    alpha
        Latency of every link, instead of the module's figures.
    """
    up = links_up(pods, units, chassis, gpus, oversubscription)
    check_size(
        RAIL_TREE,
        nodes=pods * units * (chassis * (gpus + 1) + gpus) + (pods + units) * up * gpus,
        links=4 * pods * units * gpus * (chassis + up),
        lower="pods, units, chassis or gpus",
    )
    rate, slower = read_bandwidth(RAIL_TREE, nvlink), read_bandwidth(RAIL_TREE, network)
    wiring = Wiring(RAIL_TREE, alpha=alpha)
    ranges = tuple(map(range, (pods, units, chassis, gpus)))
    node = {
        (p, u, c, g): wiring.gpu(f"p{p}/u{u}/c{c}/gpu{g}", group=f"p{p}/u{u}/c{c}")
        for p, u, c, g in product(*ranges)
    }
    for p, u, c in product(*ranges[:3]):
        switch = wiring.switch(f"p{p}/u{u}/c{c}/nvswitch", group=f"p{p}/u{u}/c{c}")
        for g in ranges[3]:
            wiring.wire(node[p, u, c, g], switch, rate, NVSWITCH_ALPHA)
    for rail in ranges[3]:
        spine = {
            (p, i): wiring.switch(f"p{p}/rail{rail}/spine{i}")
            for p, i in product(range(pods), range(up))
        }
        for p, u in product(*ranges[:2]):
            leaf = wiring.switch(f"p{p}/u{u}/leaf{rail}")
            for c in ranges[2]:
                wiring.wire(node[p, u, c, rail], leaf, slower, NIC_ALPHA)
            for i in range(up):
                wiring.wire(leaf, spine[p, i], slower, SPINE_ALPHA)
        for u, i in product(range(units), range(up)):
            core = wiring.switch(f"rail{rail}/core{u}-{i}")
            for p in range(pods):
                wiring.wire(spine[p, i], core, slower, SPINE_ALPHA)
    return wiring.topology()


def links_up(pods: int, units: int, chassis: int, gpus: int, oversubscription: int) -> int:
    """Check what a cluster is made of and return how many links a leaf has upwards.

    Raises
    ------
    TopologyError
        If a count is out of range or does not divide another.
    """
    counts = {"pods": pods, "units": units, "chassis": chassis, "gpus": gpus}
    for key, value in {**counts, "oversubscription": oversubscription}.items():
        check_count(RAIL_TREE, key, value, low=1)
    if chassis % oversubscription:
        raise TopologyError(
            f"preset {RAIL_TREE}: oversubscription={oversubscription} does not divide "
            f"chassis={chassis}; give a divisor"
        )
    if pods * units * chassis * gpus < 2:
        raise TopologyError(f"preset {RAIL_TREE}: a single gpu; give more")
    return chassis // oversubscription
