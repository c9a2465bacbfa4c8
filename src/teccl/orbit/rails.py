"""The preset `rail-tree` as a fabric: a few orbits of nodes and links at any size.

With oversubscribed leaves a leaf has fewer links up than chassis, so that the group is smaller by
that factor and chassis with GPUs of different orbits alternate.
"""

from fractions import Fraction

import numpy as np

from teccl.orbit.fabric import Fabric, LinkOrbit, NodeOrbit
from teccl.topology import NodeKind
from teccl.topology.presets._wiring import read_alpha, read_bandwidth
from teccl.topology.presets.clusters import NIC_ALPHA, NVSWITCH_ALPHA, SPINE_ALPHA
from teccl.topology.presets.tiers import RAIL_TREE, links_up
from teccl.units import Quantity


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
    overhead: Fraction = Fraction(0),
) -> Fabric:
    """Build the fabric; the parameters are those of the preset.

    Raises
    ------
    TopologyError
        If a count is out of range.

    Examples
    --------
    >>> rail_tree(pods=8, units=16, chassis=32)
    Fabric('rail-tree', Z8xZ16xZ32xZ8, 32768 gpus, 11264 switches, 262144 links)
    """
    group = (pods, units, links_up(pods, units, chassis, gpus, oversubscription), gpus)
    rate, slower = read_bandwidth(RAIL_TREE, nvlink), read_bandwidth(RAIL_TREE, network)
    latency = None if alpha is None else read_alpha(RAIL_TREE, alpha)
    nodes, links = _nodes(group, oversubscription), []
    places = {node.name: i for i, node in enumerate(nodes)}
    leaf, spine, core = (places[node.name] for node in nodes[-3:])

    def wire(a: int, b: int, bandwidth: Fraction, usual: Fraction) -> None:
        for src, dst in ((a, b), (b, a)):
            links.append(
                LinkOrbit(
                    src=src,
                    dst=dst,
                    offset=(0,) * 4,
                    bandwidth=bandwidth,
                    alpha=usual if latency is None else latency,
                    overhead=overhead,
                )
            )

    for copy in range(oversubscription):
        wire(copy, oversubscription + copy, rate, NVSWITCH_ALPHA)
        wire(copy, leaf, slower, NIC_ALPHA)
    wire(leaf, spine, slower, SPINE_ALPHA)
    wire(spine, core, slower, SPINE_ALPHA)
    return Fabric(
        name=RAIL_TREE,
        moduli=group,
        nodes=tuple(nodes),
        links=tuple(links),
        ranks=_ranks(group, oversubscription),
    )


def _ranks(group: tuple[int, int, int, int], copies: int) -> tuple[int, ...]:
    """Ranks by pod, unit, chassis and place; a fabric has the orbits of GPUs last."""
    if copies == 1:
        return ()
    pods, units, chassis, gpus = group
    ranks = np.arange(pods * units * chassis * copies * gpus)
    by_orbit = ranks.reshape(-1, copies, gpus).swapaxes(1, 2)
    return tuple(by_orbit.ravel().tolist())


def _nodes(group: tuple[int, int, int, int], copies: int) -> list[NodeOrbit]:
    """GPUs and NVSwitches, so many orbits of each, then leaves, spines and cores."""
    pods, units, chassis, gpus = group
    places = [f"{{2*{copies}+{copy}}}" if copies > 1 else "{2}" for copy in range(copies)]
    names = [f"p{{0}}/u{{1}}/c{place}" for place in places]
    switch = NodeKind.SWITCH
    return [
        *(NodeOrbit(name=f"{name}/gpu{{3}}", moduli=group, group=name) for name in names),
        *(
            NodeOrbit(
                name=f"{name}/nvswitch", kind=switch, moduli=(pods, units, chassis, 1), group=name
            )
            for name in names
        ),
        NodeOrbit(name="p{0}/u{1}/leaf{3}", kind=switch, moduli=(pods, units, 1, gpus)),
        NodeOrbit(name="p{0}/rail{3}/spine{2}", kind=switch, moduli=(pods, 1, chassis, gpus)),
        NodeOrbit(name="rail{3}/core{1}-{2}", kind=switch, moduli=(1, units, chassis, gpus)),
    ]
