"""Textbook networks of equal links.

Every link has `bandwidth` and `alpha`, 50 GB/s and 0.5 us unless said otherwise, and comes with
its reverse. GPUs are gpu0, gpu1 and so on; mesh and torus ranks are row-major, the last dimension
running fastest.
"""

import math
from collections.abc import Sequence
from itertools import combinations, pairwise, product

from teccl.errors import TopologyError
from teccl.topology.graph import Topology
from teccl.topology.presets._random import random_pairs
from teccl.topology.presets._wiring import (
    Wiring,
    check_count,
    check_size,
    read_alpha,
    read_bandwidth,
    read_dims,
)
from teccl.units import Quantity

_BANDWIDTH = "50GB/s"
_ALPHA = "0.5us"


def ring(*, gpus: int = 8, bandwidth: Quantity = _BANDWIDTH, alpha: Quantity = _ALPHA) -> Topology:
    """GPUs in a circle, each linked to the next and the one before.

    Two GPUs have one link each way, not two.

    Parameters
    ----------
    gpus
        Number of GPUs, at least 2.
    bandwidth, alpha
        Of every link.
    """
    check_count("ring", "gpus", gpus, low=2)
    return _of_pairs("ring", gpus, _cycle(gpus), bandwidth, alpha)


def line(*, gpus: int = 8, bandwidth: Quantity = _BANDWIDTH, alpha: Quantity = _ALPHA) -> Topology:
    """GPUs in a row, each linked to its neighbours.

    Parameters
    ----------
    gpus
        Number of GPUs, at least 2.
    bandwidth, alpha
        Of every link.
    """
    check_count("line", "gpus", gpus, low=2)
    return _of_pairs("line", gpus, list(pairwise(range(gpus))), bandwidth, alpha)


def fully_connected(
    *, gpus: int = 8, bandwidth: Quantity = _BANDWIDTH, alpha: Quantity = _ALPHA
) -> Topology:
    """Every GPU linked to every other.

    Parameters
    ----------
    gpus
        Number of GPUs, at least 2.
    bandwidth, alpha
        Of every link.
    """
    check_count("fully-connected", "gpus", gpus, low=2)
    check_size("fully-connected", nodes=gpus, links=gpus * (gpus - 1), lower="gpus")
    pairs = list(combinations(range(gpus), 2))
    return _of_pairs("fully-connected", gpus, pairs, bandwidth, alpha)


def star(*, gpus: int = 8, bandwidth: Quantity = _BANDWIDTH, alpha: Quantity = _ALPHA) -> Topology:
    """GPUs around one switch.

    Parameters
    ----------
    gpus
        Number of GPUs, at least 2.
    bandwidth, alpha
        Of every link.
    """
    check_count("star", "gpus", gpus, low=2)
    check_size("star", nodes=gpus + 1, links=2 * gpus, lower="gpus")
    rate, latency = read_bandwidth("star", bandwidth), read_alpha("star", alpha)
    wiring = Wiring("star")
    members = wiring.gpus(gpus)
    switch = wiring.switch("switch")
    for gpu in members:
        wiring.wire(gpu, switch, rate, latency)
    return wiring.topology()


def random(
    *,
    gpus: int = 8,
    degree: int = 3,
    seed: int = 0,
    bandwidth: Quantity = _BANDWIDTH,
    alpha: Quantity = _ALPHA,
) -> Topology:
    """A connected random network in which every GPU has the same number of neighbours.

    A ring through all GPUs in random order keeps it connected; the other links are mixed by
    swaps that keep every degree. Links come with their reverse, so it is strongly connected. The
    same parameters give the same network on every platform and Python version.

    Parameters
    ----------
    gpus
        Number of GPUs, at least 2.
    degree
        Neighbours of each GPU, below `gpus`, at least 2 (1 for two GPUs); gpus times degree must
        be even.
    seed
        Another number gives another network.
    bandwidth, alpha
        Of every link.
    """
    check_count("random", "gpus", gpus, low=2)
    check_count("random", "degree", degree, low=min(2, gpus - 1), high=gpus - 1)
    check_count("random", "seed", seed, low=0, high=2**32 - 1)
    check_size("random", nodes=gpus, links=gpus * degree, lower="gpus or degree")
    if gpus * degree % 2:
        raise TopologyError(
            f"preset random: {gpus} gpus cannot each have {degree} neighbours; "
            "make gpus or degree even"
        )
    return _of_pairs("random", gpus, random_pairs(gpus, degree, seed), bandwidth, alpha)


def mesh(
    *,
    dims: str | Sequence[int] = "4x4",
    bandwidth: Quantity = _BANDWIDTH,
    alpha: Quantity = _ALPHA,
) -> Topology:
    """GPUs on a grid, linked along each dimension.

    Parameters
    ----------
    dims
        Sizes such as ``4x4x2``; a size of 1 adds nothing.
    bandwidth, alpha
        Of every link.
    """
    return _grid("mesh", dims, bandwidth, alpha, wraps=False)


def torus(
    *,
    dims: str | Sequence[int] = "4x4",
    bandwidth: Quantity = _BANDWIDTH,
    alpha: Quantity = _ALPHA,
) -> Topology:
    """GPUs on a grid whose dimensions close to rings.

    Parameters
    ----------
    dims
        Sizes such as ``4x4x2``; a size of 2 gives one link each way and not two, a size of 1 adds
        nothing.
    bandwidth, alpha
        Of every link.
    """
    return _grid("torus", dims, bandwidth, alpha, wraps=True)


def hypercube(
    *, dimension: int = 3, bandwidth: Quantity = _BANDWIDTH, alpha: Quantity = _ALPHA
) -> Topology:
    """GPUs linked where their binary numbers differ in one digit.

    Parameters
    ----------
    dimension
        Number of binary digits; there are 2 to the power of it GPUs.
    bandwidth, alpha
        Of every link.
    """
    check_count("hypercube", "dimension", dimension, low=1, high=16)
    count = 2**dimension
    pairs = [
        (gpu, gpu | 1 << bit)
        for gpu in range(count)
        for bit in range(dimension)
        if not gpu >> bit & 1
    ]
    return _of_pairs("hypercube", count, pairs, bandwidth, alpha)


def fat_tree(*, k: int = 4, bandwidth: Quantity = _BANDWIDTH, alpha: Quantity = _ALPHA) -> Topology:
    """Three layers of switches with k ports, no layer oversubscribed.

    k pods of k/2 edge and k/2 aggregation switches; each edge switch has k/2 GPUs below and every
    aggregation switch of its pod above; aggregation switch j of every pod joins core switches
    j k/2 to (j+1) k/2 - 1 (Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center
    network architecture", SIGCOMM 2008).

    Parameters
    ----------
    k
        Ports per switch, even; there are k^3/4 GPUs.
    bandwidth, alpha
        Of every link.
    """
    check_count("fat-tree", "k", k, low=2)
    if k % 2:
        raise TopologyError(f"preset fat-tree: k is {k}; give an even number, for example {k + 1}")
    half = k // 2
    nodes, links = k * half**2 + 5 * half**2, 6 * k * half**2
    check_size("fat-tree", nodes=nodes, links=links, lower="k")
    rate, latency = read_bandwidth("fat-tree", bandwidth), read_alpha("fat-tree", alpha)
    wiring = Wiring("fat-tree")
    core = [wiring.switch(f"core{i}") for i in range(half**2)]
    for pod in range(k):
        group = f"pod{pod}"
        upper = [wiring.switch(f"{group}/aggregation{j}", group=group) for j in range(half)]
        for j, aggregation in enumerate(upper):
            for top in core[j * half : (j + 1) * half]:
                wiring.wire(aggregation, top, rate, latency)
        for i in range(half):
            edge = wiring.switch(f"{group}/edge{i}", group=group)
            for aggregation in upper:
                wiring.wire(edge, aggregation, rate, latency)
            for h in range(half):
                rank = (pod * half + i) * half + h
                wiring.wire(wiring.gpu(f"gpu{rank}", group=group), edge, rate, latency)
    return wiring.topology()


def dragonfly(
    *,
    groups: int = 4,
    routers: int = 3,
    gpus: int = 2,
    bandwidth: Quantity = _BANDWIDTH,
    alpha: Quantity = _ALPHA,
) -> Topology:
    """Groups of fully connected routers, one link between each pair of groups.

    Routers are switches. A group's links to the other groups, in their order, go to its routers
    in turn (Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology",
    ISCA 2008).

    Parameters
    ----------
    groups
        Number of groups.
    routers
        Routers per group.
    gpus
        GPUs per router.
    bandwidth, alpha
        Of every link.
    """
    for key, value in (("groups", groups), ("routers", routers), ("gpus", gpus)):
        check_count("dragonfly", key, value, low=1)
    num_routers = groups * routers
    links = num_routers * (2 * gpus + routers - 1) + groups * (groups - 1)
    check_size(
        "dragonfly",
        nodes=num_routers * (gpus + 1),
        links=links,
        lower="groups, routers or gpus",
    )
    if num_routers * gpus == 1:
        raise TopologyError("preset dragonfly: this is a single gpu; raise groups, routers or gpus")
    rate, latency = read_bandwidth("dragonfly", bandwidth), read_alpha("dragonfly", alpha)
    wiring = Wiring("dragonfly")
    members = []
    for g in range(groups):
        members.append([wiring.switch(f"g{g}/router{r}", group=f"g{g}") for r in range(routers)])
        for i in range(routers * gpus):
            gpu = wiring.gpu(f"gpu{g * routers * gpus + i}", group=f"g{g}")
            wiring.wire(gpu, members[g][i // gpus], rate, latency)
        for a, b in combinations(members[g], 2):
            wiring.wire(a, b, rate, latency)
    for g, h in combinations(range(groups), 2):
        # Seen from g, which leaves itself out, group h is number h - 1; seen from h, g is g.
        wiring.wire(members[g][(h - 1) % routers], members[h][g % routers], rate, latency)
    return wiring.topology()


def _cycle(count: int) -> list[tuple[int, int]]:
    """Pairs of neighbours on a ring; a ring of two is one pair, a ring of one none."""
    pairs = list(pairwise(range(count)))
    return [*pairs, (count - 1, 0)] if count > 2 else pairs


def _grid(
    preset: str, dims: str | Sequence[int], bandwidth: Quantity, alpha: Quantity, *, wraps: bool
) -> Topology:
    sizes = read_dims(preset, dims)
    count = math.prod(sizes)
    check_size(preset, nodes=count, links=2 * count * len(sizes), lower="dims")
    pairs = []
    for axis, size in enumerate(sizes):
        stride = math.prod(sizes[axis + 1 :])
        steps = _cycle(size) if wraps else list(pairwise(range(size)))
        for block, offset, (a, b) in product(range(0, count, size * stride), range(stride), steps):
            pairs.append((block + offset + a * stride, block + offset + b * stride))
    return _of_pairs(preset, count, pairs, bandwidth, alpha)


def _of_pairs(
    preset: str,
    gpus: int,
    pairs: Sequence[tuple[int, int]],
    bandwidth: Quantity,
    alpha: Quantity,
) -> Topology:
    """GPUs and a link each way for every pair."""
    rate, latency = read_bandwidth(preset, bandwidth), read_alpha(preset, alpha)
    wiring = Wiring(preset)
    wiring.gpus(gpus)
    for a, b in pairs:
        wiring.wire(a, b, rate, latency)
    return wiring.topology()
