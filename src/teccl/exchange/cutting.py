"""Pieces: how finely an exchange is cut, and how much work its plans are worth."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import chain

from teccl.demand import Demand, Tenant
from teccl.exchange.passage_network import PassageNetwork
from teccl.exchange.tables import Care
from teccl.topology import Topology

# Hops of the first schedule, so that 64 ranks take some tens of milliseconds.
FIRST_HOPS = 14_000
# Chunks for each GPU beyond which finer ones gain nothing: each is 0.2 % of what a port carries.
CHUNKS_PER_GPU = 512
# How long to balance at first, some milliseconds, but so often for every block; and then: so many
# choices and passages to look at for each transfer that may be placed.
FIRST = Care(again=24_000, patience=400_000)
EACH_AGAIN = 4
AGAIN = 1
PATIENCE = 8
# Pieces take at least this part of some link's latency: finer ones gain little, if only on paper.
LATENCY_PART = 4
# Pieces take at least so many times their overhead on some link, where it costs some percent then.
OVERHEADS = 16
# How many times finer the chunks of each further schedule are.
FINER = 3


def quick(sizes: list[float]) -> Care:
    """How long to balance at first; every block of a demand that has many may choose again."""
    return FIRST._replace(again=max(FIRST.again, EACH_AGAIN * len(sizes)))


def thorough(work: int) -> Care:
    """How long to balance where so many transfers may be placed."""
    return Care(again=AGAIN * work, patience=PATIENCE * work)


def first_chunks(network: PassageNetwork) -> int:
    """Chunks of the first schedule, half as many as ever pay at most."""
    return min(int(FIRST_HOPS / network.mean_hops), most_chunks(network.topology) // 2)


def most_chunks(topology: Topology) -> int:
    """Chunks beyond which finer ones gain nothing."""
    return CHUNKS_PER_GPU * topology.num_gpus


def num_pieces(sizes: list[float], topology: Topology, wanted: int) -> int:
    """Into how many pieces to cut the largest block to have about so many chunks in all.

    No piece is so small that it takes less than a part of the latency on every link, or only a few
    times the overhead on every link that has one.
    """
    total, largest = sum(sizes), max(sizes, default=0)
    if not total:
        return 1
    # The last piece of a block is half as long as others, in the mean.
    piece = total / max(wanted - len(sizes) / 2, wanted / 2)
    latency = topology.each_kind(lambda link: float(link.alpha * topology.rate(link)))
    overhead = topology.each_kind(lambda link: float(link.overhead * topology.rate(link)))
    paid = min(filter(None, overhead), default=0.0) * OVERHEADS
    return max(1, int(largest / max(piece, max(latency) / LATENCY_PART, paid)))


def block_sizes(demand: Demand, topology: Topology) -> list[float]:
    """Bytes of each block of a demand."""
    cells = chain.from_iterable(_cells(tenant, topology) for tenant in demand.tenants)
    return [cell.numerator / cell.denominator for cell in cells if cell.numerator]


def _cells(tenant: Tenant, topology: Topology) -> Iterable[Fraction]:
    """Sizes of a tenant's blocks, zeros among them."""
    if tenant.matrix is None:
        return (block.size for block in tenant.blocks(topology.num_gpus))
    return chain.from_iterable(tenant.matrix)


def has_sums(demand: Demand, topology: Topology) -> bool:
    """Whether some block of a demand is a sum."""
    others = [tenant for tenant in demand.tenants if tenant.matrix is None]
    return any(block.reduce for tenant in others for block in tenant.blocks(topology.num_gpus))
