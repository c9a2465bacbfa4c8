"""NCCL's published tuning constants: latencies in microseconds, bandwidths in GB/s.

Source: NVIDIA/nccl, v2.30.7, commit 5067397c, src/graph/tuning.cc (tables of defaults, which NCCL
hands to tuner plug-ins as ncclTunerConstants) and src/graph/topo.h (rates of an NVLink).
Protocols stand in the order LL, LL128, Simple; numbers of nodes in the order one, two, more.
"""

from enum import StrEnum

Three = tuple[float, float, float]


class Generation(StrEnum):
    """GPU generations that the tables tell apart."""

    VOLTA = "volta"
    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


class Algorithm(StrEnum):
    """NCCL's algorithms."""

    TREE = "tree"
    RING = "ring"
    COLLNET_DIRECT = "collnet_direct"
    COLLNET_CHAIN = "collnet_chain"
    NVLS = "nvls"
    NVLS_TREE = "nvls_tree"
    PAT = "pat"


class Protocol(StrEnum):
    """NCCL's protocols."""

    LL = "ll"
    LL128 = "ll128"
    SIMPLE = "simple"


class Medium(StrEnum):
    """What data passes from GPU to GPU."""

    NVLINK = "nvlink"
    PCI = "pci"
    NET = "net"


_NONE: Three = (0.0, 0.0, 0.0)

# Paid once for a collective.
BASE_LATENCY: dict[Algorithm, Three] = {
    Algorithm.TREE: (6.8, 14.0, 8.4),
    Algorithm.RING: (6.6, 14.0, 8.4),
    Algorithm.COLLNET_DIRECT: _NONE,
    Algorithm.COLLNET_CHAIN: _NONE,
    Algorithm.NVLS: _NONE,
    Algorithm.NVLS_TREE: _NONE,
    Algorithm.PAT: (8.0, 8.0, 8.0),
}

# Paid for each step.
STEP_LATENCY: dict[Medium, dict[Algorithm, Three]] = {
    Medium.NVLINK: {
        Algorithm.TREE: (0.6, 1.25, 4.0),
        Algorithm.RING: (0.6, 1.9, 3.4),
        Algorithm.COLLNET_DIRECT: (0.0, 0.0, 3.7),
        Algorithm.COLLNET_CHAIN: (0.0, 0.0, 2.8),
        Algorithm.NVLS: (0.0, 0.0, 25.0),
        Algorithm.NVLS_TREE: (0.0, 0.0, 25.0),
        Algorithm.PAT: (0.0, 0.0, 4.0),
    },
    Medium.PCI: {
        Algorithm.TREE: (1.0, 1.9, 4.0),
        Algorithm.RING: (1.0, 2.5, 5.7),
        Algorithm.COLLNET_DIRECT: (0.0, 0.0, 3.7),
        Algorithm.COLLNET_CHAIN: (0.0, 0.0, 2.8),
        Algorithm.NVLS: _NONE,
        Algorithm.NVLS_TREE: _NONE,
        Algorithm.PAT: (0.0, 0.0, 4.0),
    },
    Medium.NET: {
        Algorithm.TREE: (5.0, 8.5, 14.0),
        Algorithm.RING: (2.7, 4.0, 14.0),
        Algorithm.COLLNET_DIRECT: (0.0, 0.0, 31.0),
        Algorithm.COLLNET_CHAIN: (0.0, 0.0, 30.0),
        Algorithm.NVLS: (0.0, 0.0, 18.0),
        Algorithm.NVLS_TREE: (0.0, 0.0, 20.9),
        Algorithm.PAT: (0.0, 0.0, 14.0),
    },
}


def _by_generation(*rows: Three) -> dict[Generation, Three]:
    """A table with a row for each generation, in their order."""
    return dict(zip(Generation, rows, strict=True))


# The most that the LL protocol moves: on one node by GPU, on several by the CPU's vendor.
LL_MOST = _by_generation(
    (39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)
)
# The most of one channel, by algorithm and protocol.
RING_LL128_MOST = _by_generation((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (40.0,) * 3)
TREE_LL128_MOST = _by_generation((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
TREE_MOST = _by_generation(
    (26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)
)
NVLS_TREE_MOST = _by_generation(
    (26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)
)
NVLS_EFFICIENCY = dict(zip(Generation, (0.0, 0.0, 0.85, 0.74), strict=True))
# What NCCL takes an NVLink to move, of what its data sheet says, in GB/s.
NVLINK_RATE = dict(zip(Generation, (20.0, 20.0, 20.6, 40.1), strict=True))
NVLINK_LINE_RATE = dict(zip(Generation, (25.0, 25.0, 25.0, 50.0), strict=True))
# Posting to the network, by the vendor of the CPU.
NET_OVERHEAD = {"intel": 1.0, "amd": 2.0}

# Part of its bandwidth that a tree reaches at sizes from 64 bytes up, doubling.
TREE_CORRECTION: dict[Protocol, tuple[float, ...]] = {
    Protocol.LL: (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    Protocol.LL128: (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    Protocol.SIMPLE: (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
