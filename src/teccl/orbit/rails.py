"""Rail-optimised clusters with three tiers of switches as fabrics: leaves, spines and cores.

The GPUs of a chassis are joined by an NVSwitch. GPUs with the same place in their chassis are a
rail. A rail has a leaf in every unit, spines that join the leaves of a pod, and cores that join the
spines of all pods. A leaf has a link down to each chassis of its unit and so many fewer up as
`oversubscription` says; a spine has one up for each one down.
"""

import math
from fractions import Fraction

from teccl.errors import TopologyError
from teccl.orbit.fabric import Fabric, LinkOrbit, NodeOrbit
from teccl.topology import NodeKind
from teccl.topology.presets._wiring import check_count, read_alpha, read_bandwidth
from teccl.units import Quantity

NAME = "rail-tree"


def rail_tree(
    *,
    pods: int = 2,
    units: int = 2,
    chassis: int = 4,
    gpus: int = 8,
    oversubscription: int = 1,
    nvlink: Quantity = "450GB/s",
    nvlink_alpha: Quantity = "0.35us",
    network: Quantity = "50GB/s",
    network_alpha: Quantity = "1.3us",
) -> Fabric:
    """Build the fabric; ranks are numbered by pod, unit, chassis and place.

    Parameters
    ----------
    pods, units, chassis, gpus
        Pods, units of a pod, chassis of a unit and GPUs of a chassis.
    oversubscription
        Links down from a leaf for each one up; divides `chassis`.

    Raises
    ------
    TopologyError
        If a count is out of range.

    Examples
    --------
    >>> rail_tree(pods=8, units=16, chassis=32)
    Fabric('rail-tree', Z8xZ16xZ32xZ8, 32768 gpus, 11264 switches, 262144 links)
    """
    counts = {"pods": pods, "units": units, "chassis": chassis, "gpus": gpus}
    for key, value in {**counts, "oversubscription": oversubscription}.items():
        check_count(NAME, key, value, low=1)
    if chassis % oversubscription:
        raise TopologyError(
            f"preset {NAME}: oversubscription={oversubscription} does not divide "
            f"chassis={chassis}; give a divisor"
        )
    group = (pods, units, chassis // oversubscription, gpus)
    if math.prod(counts.values()) < 2:
        raise TopologyError(f"preset {NAME}: a single gpu; give more")
    rates = [
        (read_bandwidth(NAME, nvlink), read_alpha(NAME, nvlink_alpha)),
        (read_bandwidth(NAME, network), read_alpha(NAME, network_alpha)),
    ]
    nodes, links = _nodes(group, oversubscription), []
    places = {node.name: i for i, node in enumerate(nodes)}
    leaf, spine, core = (places[node.name] for node in nodes[-3:])

    def wire(a: int, b: int, rate: tuple[Fraction, Fraction]) -> None:
        for src, dst in ((a, b), (b, a)):
            links.append(
                LinkOrbit(src=src, dst=dst, offset=(0,) * 4, bandwidth=rate[0], alpha=rate[1])
            )

    for copy in range(oversubscription):
        wire(copy, oversubscription + copy, rates[0])
        wire(copy, leaf, rates[1])
    wire(leaf, spine, rates[1])
    wire(spine, core, rates[1])
    return Fabric(name=NAME, moduli=group, nodes=tuple(nodes), links=tuple(links))


def _nodes(group: tuple[int, int, int, int], copies: int) -> list[NodeOrbit]:
    """GPUs and NVSwitches, so many orbits of each, then leaves, spines and cores."""
    pods, units, chassis, gpus = group
    places = [f"{{2*{copies}+{copy}}}" if copies > 1 else "{2}" for copy in range(copies)]
    names = [f"p{{0}}/u{{1}}/c{place}" for place in places]
    switch = NodeKind.SWITCH
    return [
        *(NodeOrbit(name=f"{name}/gpu{{3}}", moduli=group) for name in names),
        *(
            NodeOrbit(name=f"{name}/nvswitch", kind=switch, moduli=(pods, units, chassis, 1))
            for name in names
        ),
        NodeOrbit(name="p{0}/u{1}/leaf{3}", kind=switch, moduli=(pods, units, 1, gpus)),
        NodeOrbit(name="p{0}/rail{3}/spine{2}", kind=switch, moduli=(pods, 1, chassis, gpus)),
        NodeOrbit(name="rail{3}/core{1}-{2}", kind=switch, moduli=(1, units, chassis, gpus)),
    ]
