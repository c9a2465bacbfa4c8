"""NCCL's cost model: latency and bandwidth of a collective, an algorithm and a protocol.

The formulas are those of the source that `constants` names. What NCCL finds out by searching a
machine for rings and trees is taken as found: all channels together move the NVLink bandwidth of a
GPU on one node, and over several nodes no more than the network cards of a node.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from teccl.demand import Collective
from teccl.nccl import constants
from teccl.nccl.constants import Algorithm, Medium, Protocol
from teccl.nccl.shape import Shape

_PROTOCOLS = tuple(Protocol)
_GATHERS = (Collective.ALLGATHER, Collective.REDUCESCATTER)
_ROOTED = (Collective.BROADCAST, Collective.REDUCE)
# Network latency counts this part of itself in each of PAT's steps, and each rank adds some.
_PAT_PART, _PAT_RANK_US = 3.5, 2.8
# What each further GPU of a node costs CollNetDirect.
_ARITY_US = 0.4
# From so many bytes for each channel and rank on, rings over several nodes are slower.
_PLATEAU_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the model says of one way to carry out a collective.

    Parameters
    ----------
    latency_us, bandwidth_gbps
        Time of nothing, and bytes of the collective's size per time; a bandwidth of 0 means that
        NCCL does not do it.
    """

    collective: Collective
    algorithm: Algorithm
    protocol: Protocol
    latency_us: float
    bandwidth_gbps: float

    @property
    def name(self) -> str:
        """Algorithm and protocol."""
        return f"{self.algorithm} {self.protocol}"

    def seconds(self, size: float, shape: Shape) -> float:
        """Time of a size in bytes, with the corrections that depend on it."""
        latency, bandwidth = self.latency_us, self.bandwidth_gbps
        step = int(size) >> 6
        place = step.bit_length() - 1
        is_sum = self.collective is Collective.ALLREDUCE
        if self.algorithm is Algorithm.TREE and is_sum and 0 <= place < 23:
            bandwidth *= constants.TREE_CORRECTION[self.protocol][place]
        is_ring = self.algorithm is Algorithm.RING and self.protocol is Protocol.SIMPLE
        share = size / (shape.channels * shape.ranks)
        if is_ring and is_sum and shape.nodes > 1 and share >= _PLATEAU_BYTES:
            latency *= 1.9 if shape.generation is constants.Generation.VOLTA else 1.4
        return (latency + size / (1000 * bandwidth)) * 1e-6


def cost(
    collective: Collective, algorithm: Algorithm, protocol: Protocol, shape: Shape
) -> Cost | None:
    """Return what the model says, None for what NCCL does not do.

    Examples
    --------
    >>> from teccl.nccl.shape import Generation
    >>> h100 = Shape(ranks=8, nodes=1, generation=Generation.HOPPER, intra_gbps=370.8)
    >>> found = cost(Collective.ALLREDUCE, Algorithm.RING, Protocol.SIMPLE, h100)
    >>> round(found.latency_us, 2), round(found.bandwidth_gbps, 2)
    (56.0, 211.89)
    """
    if not _is_done(collective, algorithm, protocol, shape):
        return None
    bandwidth = _bus_bandwidth(collective, algorithm, protocol, shape)
    steps = _steps(collective, shape)
    if algorithm in (Algorithm.RING, Algorithm.NVLS, Algorithm.NVLS_TREE):
        is_bus = algorithm is Algorithm.RING or collective not in _GATHERS
        bandwidth *= shape.ranks / steps if is_bus else 1.0
    elif collective not in _GATHERS:
        bandwidth *= 0.5
    latency = _latency(collective, algorithm, protocol, shape)
    if bandwidth <= 0:
        return None
    return Cost(
        collective=collective,
        algorithm=algorithm,
        protocol=protocol,
        latency_us=latency,
        bandwidth_gbps=bandwidth,
    )


def costs(collective: Collective, shape: Shape) -> Iterator[Cost]:
    """Yield what the model says of every way to carry out a collective."""
    for algorithm in Algorithm:
        for protocol in Protocol:
            found = cost(collective, algorithm, protocol, shape)
            if found is not None:
                yield found


def best(collective: Collective, size: float, shape: Shape) -> Cost | None:
    """Return the cheapest way for a size; None for collectives that the model does not know."""
    return min(costs(collective, shape), key=lambda each: each.seconds(size, shape), default=None)


def _is_done(
    collective: Collective, algorithm: Algorithm, protocol: Protocol, shape: Shape
) -> bool:
    """Whether NCCL carries out a collective so on such a machine."""
    if collective not in (Collective.ALLREDUCE, *_GATHERS, *_ROOTED):
        return False
    if algorithm is Algorithm.RING:
        return True
    if algorithm is Algorithm.TREE:
        return collective is Collective.ALLREDUCE
    if protocol is not Protocol.SIMPLE or collective in _ROOTED:
        return False
    if algorithm is Algorithm.PAT:
        return collective in _GATHERS and shape.nodes == shape.ranks > 1
    if algorithm is Algorithm.NVLS:
        return shape.nvls and shape.nodes == 1 and shape.channels > 1
    if algorithm is Algorithm.NVLS_TREE:
        is_sum = collective is Collective.ALLREDUCE
        return shape.nvls and shape.nodes > 1 and is_sum and shape.channels > 1
    # Gathers over CollNet need a plug-in that a shape does not tell.
    return shape.collnet and shape.nodes > 1 and collective is Collective.ALLREDUCE


def _steps(collective: Collective, shape: Shape) -> int:
    if collective is Collective.ALLREDUCE:
        return 2 * (shape.ranks - 1)
    return shape.ranks - 1 if collective in _GATHERS else shape.ranks


def _bus_bandwidth(
    collective: Collective, algorithm: Algorithm, protocol: Protocol, shape: Shape
) -> float:
    total = shape.intra_gbps if shape.nodes == 1 else min(shape.intra_gbps, shape.inter_gbps)
    if algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE):
        return _nvls_bandwidth(collective, algorithm, shape)
    if algorithm is Algorithm.RING:
        return _ring_bandwidth(protocol, shape, total)
    if algorithm is Algorithm.TREE:
        return _tree_bandwidth(protocol, shape, total)
    if algorithm is Algorithm.PAT:
        return 0.75 * total
    if algorithm is Algorithm.COLLNET_CHAIN:
        return total
    # GPUs for each channel, as far as there are more than one.
    ratio = (shape.per_node / shape.channels + 1) / 2
    late = shape.generation in (constants.Generation.HOPPER, constants.Generation.BLACKWELL)
    return total / ratio * (0.85 if late else 1.0)


def _ring_bandwidth(protocol: Protocol, shape: Shape, total: float) -> float:
    if protocol is Protocol.LL:
        return min(_ll_most(shape), total * 0.5)
    if protocol is Protocol.LL128:
        most = constants.RING_LL128_MOST[shape.generation][shape.place]
        return min(total * 0.92, shape.channels * most)
    return total


def _tree_bandwidth(protocol: Protocol, shape: Shape, total: float) -> float:
    kind, place = shape.generation, shape.place
    tree = min(total * 0.92, shape.channels * constants.TREE_MOST[kind][place])
    if protocol is Protocol.LL:
        tree = min(tree / 3.8, _ll_most(shape))
    elif protocol is Protocol.LL128:
        part = 7 / 9 if shape.nodes == 1 else 120 / 128
        tree = min(tree * part, shape.channels * constants.TREE_LL128_MOST[kind][place])
    return tree * (0.85 if shape.plain_trees else 1.0)


def _ll_most(shape: Shape) -> float:
    """The most that LL moves: by GPU on one node, by the vendor of the CPU on several."""
    if shape.nodes == 1:
        return constants.LL_MOST[shape.generation][0]
    row = constants.Generation.AMPERE if shape.cpu == "amd" else constants.Generation.VOLTA
    return constants.LL_MOST[row][shape.place]


def _nvls_bandwidth(collective: Collective, algorithm: Algorithm, shape: Shape) -> float:
    channels, kind = shape.channels, shape.generation
    inside = shape.intra_gbps / channels * constants.NVLS_EFFICIENCY[kind]
    inside *= (channels - 1) / channels
    # An AllReduce pipelines its two halves.
    is_sum = collective is Collective.ALLREDUCE
    inside *= 2 if is_sum else (shape.per_node - 1) / shape.per_node
    if algorithm is Algorithm.NVLS:
        return channels * inside
    outside = shape.inter_gbps / channels * (2 if shape.nodes <= 2 else 1)
    return channels * min(inside, outside, constants.NVLS_TREE_MOST[kind][shape.place])


def _latency(
    collective: Collective, algorithm: Algorithm, protocol: Protocol, shape: Shape
) -> float:
    p = _PROTOCOLS.index(protocol)
    base = constants.BASE_LATENCY[algorithm][p]
    inside = constants.STEP_LATENCY[shape.medium][algorithm][p]
    # With one GPU a node latencies are fully exposed, for which NCCL takes the tree's.
    outer = Algorithm.TREE if shape.per_node == 1 else algorithm
    outside = constants.STEP_LATENCY[Medium.NET][outer][p]
    levels = math.floor(math.log2(shape.nodes))
    if algorithm is Algorithm.RING:
        return base + _ring_latency(collective, protocol, shape, inside, outside)
    if algorithm is Algorithm.TREE:
        return base + 2 * ((shape.per_node - 1) * inside + levels * outside)
    if algorithm is Algorithm.NVLS:
        return inside + (outside if shape.nodes > 1 else 0.0)
    if algorithm is Algorithm.NVLS_TREE:
        return base + inside + 2 * levels * outside
    if algorithm is Algorithm.PAT:
        return base + levels * outside / _PAT_PART + shape.ranks * _PAT_RANK_US
    if algorithm is Algorithm.COLLNET_CHAIN:
        return base + 2 * (shape.per_node - 1) * inside + outside
    others = shape.per_node - 1
    return base + 2 * (min(1, others) * inside + others * _ARITY_US) + outside


def _ring_latency(
    collective: Collective, protocol: Protocol, shape: Shape, inside: float, outside: float
) -> float:
    steps = _steps(collective, shape)
    if collective in _ROOTED:
        # The last of a pipeline of chunks; one step where all channels are alike, as on NVLink.
        medium = shape.medium if shape.nodes == 1 else Medium.NET
        p = _PROTOCOLS.index(protocol)
        return constants.STEP_LATENCY[medium][Algorithm.RING][p]
    if shape.nodes > 1:
        overhead = constants.NET_OVERHEAD[shape.cpu] * (3 if protocol is Protocol.SIMPLE else 1)
        inside = max(inside, overhead)
    crossings = (shape.nodes - 1) * (2 if collective is Collective.ALLREDUCE else 1)
    return (steps - crossings) * inside + crossings * outside
