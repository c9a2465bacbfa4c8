"""Colours: nodes that no symmetry of a topology can take to each other told apart, by refinement.

Every node begins with its kind. In each round it gets a new colour for each new set of links around
it, by way, kind of link and colour of the far end, until no colour is split any more
(Weisfeiler-Leman). Nodes of different colours are in different orbits of every group; nodes of one
colour may be. So a group that acts freely on the GPUs has an order that divides how many there are
of each colour.
"""

import math

import numpy as np
import numpy.typing as npt

from teccl._arrays import IntArray
from teccl.topology import Topology

_Words = npt.NDArray[np.uint64]


def refined(topology: Topology, least: int = 1) -> IntArray:
    """Colour of each node, counted from zero, when no round splits any more.

    Rounds end early where groups that act freely on the GPUs have fewer than the `least` members
    of use: a long line would take half as many rounds as it has nodes.

    Sets of links are compared by a sum of 64-bit words. Two that happen to agree leave a colour too
    coarse, which costs time later on; nothing is concluded from equal colours.

    Examples
    --------
    >>> refined(Topology.parse("line:gpus=5")).tolist()
    [0, 1, 2, 1, 0]
    """
    src, dst, kind = topology.link_src, topology.link_dst, topology.link_kind
    near, far = np.append(src, dst), np.append(dst, src)
    order = np.argsort(near, kind="stable")
    label = np.append(kind, kind + len(topology.each_kind(id)))[order]
    near, far = near[order], far[order]
    first = np.flatnonzero(np.diff(near, prepend=-1))
    told = [(node.is_switch, node.reduce) for node in topology.nodes]
    colour = _numbered(np.array([2 * a + b for a, b in told], dtype=np.int64))
    while True:
        words = _mixed(_mixed(label.astype(np.uint64)) + colour[far].astype(np.uint64))
        total = np.zeros(topology.num_nodes, dtype=np.uint64)
        total[near[first]] = np.add.reduceat(words, first)
        # The colour so far keeps what earlier rounds told apart.
        finer = _numbered(_mixed(total + _mixed(colour.astype(np.uint64))))
        if finer.max() == colour.max() or largest_order(topology, finer) < least:
            return finer
        colour = finer


def largest_order(topology: Topology, colour: IntArray) -> int:
    """Return what the order of every group that acts freely on the GPUs divides."""
    counts = np.bincount(colour[topology.gpus])
    return math.gcd(*counts[counts > 0].tolist())


def is_symmetry(topology: Topology, nodes: IntArray) -> bool:
    """Whether a permutation takes nodes to equal nodes and links to equal links.

    Links have to agree in rate, latency, overhead, profile and shares: capacities stay in place.
    """
    if not np.array_equal(np.sort(nodes), np.arange(topology.num_nodes)):
        return False
    told = [(node.kind, node.reduce) for node in topology.nodes]
    if any(told[image] != told[i] for i, image in enumerate(nodes.tolist())):
        return False
    ends = np.stack([topology.link_src, topology.link_dst, topology.link_kind])
    image = np.stack([nodes[ends[0]], nodes[ends[1]], ends[2]])
    return np.array_equal(ends[:, np.lexsort(ends)], image[:, np.lexsort(image)])


def _numbered(keys: npt.NDArray[np.generic]) -> IntArray:
    """Number equal keys alike, in the order in which they first occur."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[inverse]


def _mixed(words: _Words) -> _Words:
    """Scatter words over all 64 bits (splitmix64), so that sums of them tell sets apart."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
