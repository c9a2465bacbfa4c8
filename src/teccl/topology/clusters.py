"""Clusters: parts of a topology that belong together, by name, below spines, or by fast links."""

import numpy as np
import numpy.typing as npt

from teccl.topology.graph import IntArray, Topology


def partings(topology: Topology) -> list[IntArray]:
    """Return ways to part a topology: numbers of the clusters of all nodes, -1 in none of them.

    The groups that nodes name; what is left without switches of a height or more, which are pods
    and leaves of a fabric, or GPUs with links of their own; what only links of a rate or more
    connect. Each way has two clusters with GPUs or more, and one of several GPUs.

    Examples
    --------
    >>> partings(Topology.parse("ring:gpus=4"))
    []
    """
    if not topology.links:
        return []
    ways = [_named(topology), *_below(topology), *_by_rate(topology)]
    found: dict[bytes, IntArray] = {}
    for label in ways:
        inside = label[topology.gpus]
        count = np.unique(inside[inside >= 0], return_counts=True)[1]
        if len(count) > 1 and count.max() > 1:
            found.setdefault(label.tobytes(), label)
    return list(found.values())


def _named(topology: Topology) -> IntArray:
    names = [node.group for node in topology.nodes]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([-1 if name is None else number[name] for name in names], dtype=np.int64)


def _below(topology: Topology) -> list[IntArray]:
    """Part nodes by the switches below each height, where GPUs have height zero."""
    height = np.where(topology.is_switch, topology.num_nodes, 0)
    src, dst = topology.link_src, topology.link_dst
    while True:
        lower = height.copy()
        np.minimum.at(lower, dst, height[src] + 1)
        np.minimum.at(lower, src, height[dst] + 1)
        if np.array_equal(lower, height):
            break
        height = lower
    limits = np.unique(height)[:-1]
    return [_connected(topology, np.maximum(height[src], height[dst]) <= h) for h in limits]


def _by_rate(topology: Topology) -> list[IntArray]:
    rate = np.array(topology.each_link(lambda link: float(topology.rate(link))))
    return [_connected(topology, rate >= least) for least in np.unique(rate)[:0:-1]]


def _connected(topology: Topology, kept: npt.NDArray[np.bool_]) -> IntArray:
    """Number nodes by what some links connect, either way round; -1 for what they do not touch."""
    src, dst = topology.link_src[kept], topology.link_dst[kept]
    label = np.arange(topology.num_nodes)
    while True:
        least = label.copy()
        np.minimum.at(least, dst, label[src])
        np.minimum.at(least, src, label[dst])
        least = least[least]
        if np.array_equal(least, label):
            break
        label = least
    touched = np.isin(label, np.concatenate([src, dst])) | ~topology.is_switch
    return np.where(touched, label, -1)
