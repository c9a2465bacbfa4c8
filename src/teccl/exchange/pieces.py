"""Pieces: how finely an exchange is cut, and how much work its plans are worth."""

from itertools import chain

from teccl.demand import Demand, Tenant
from teccl.topology import Topology

# Most chunks of the first schedule, so that 64 ranks take some tens of milliseconds.
FIRST_CHUNKS = 6000
# Chunks for each GPU beyond which finer ones gain nothing: each is 0.2 % of what a port carries.
CHUNKS_PER_GPU = 512
# How often every chunk may choose its way, and passages that may be looked at in each of these
# passes for ways beyond known routes: at first some milliseconds' worth, then so many for each
# transfer that may be placed.
FIRST = {"passes": 5, "patience": 400_000}
PASSES = 16
PATIENCE = 8
# Pieces take at least this part of some link's latency: finer ones gain little, if only on paper.
LATENCY_PART = 4
# Pieces take at least so many times their overhead on some link, where it costs some percent then.
OVERHEADS = 16
# How many times finer the chunks of each further schedule are.
FINER = 3


def first_chunks(topology: Topology) -> int:
    """Chunks of the first schedule, half as many as ever pay at most."""
    return min(FIRST_CHUNKS, most_chunks(topology) // 2)


def most_chunks(topology: Topology) -> int:
    """Chunks beyond which finer ones gain nothing."""
    return CHUNKS_PER_GPU * topology.num_gpus


def num_pieces(demand: Demand, topology: Topology, wanted: int) -> int:
    """Into how many pieces to cut the largest block to have about so many chunks in all.

    No piece is so small that it takes less than a part of the latency on every link, or only a few
    times the overhead on every link that has one.
    """
    sizes = [size for tenant in demand.tenants for size in _block_sizes(tenant, topology)]
    total, largest = sum(sizes), max(sizes, default=0)
    if not total:
        return 1
    # The last piece of a block is half as long as others, in the mean.
    piece = total / max(wanted - len(sizes) / 2, wanted / 2)
    latency = topology.each_kind(lambda link: float(link.alpha * topology.rate(link)))
    overhead = topology.each_kind(lambda link: float(link.overhead * topology.rate(link)))
    paid = min(filter(None, overhead), default=0.0) * OVERHEADS
    return max(1, int(largest / max(piece, max(latency) / LATENCY_PART, paid)))


def _block_sizes(tenant: Tenant, topology: Topology) -> list[float]:
    """Bytes of each block of a tenant."""
    if tenant.matrix is None:
        cells = [block.size for block in tenant.blocks(topology.num_gpus)]
    else:
        cells = list(chain.from_iterable(tenant.matrix))
    return [cell.numerator / cell.denominator for cell in cells if cell.numerator]
