"""Prices of links from rounds of shortest ways, for flows that are too large to compute exactly.

All data takes the ways with the least price; then links become dearer the more they carry for
their rate, and so on. The prices under which data costs most, for what all links could carry, say
where a network is narrow. They need not be best: a length bound holds for any lengths.
"""

import numpy as np
import numpy.typing as npt

from teccl.topology import Topology

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Rounds, and how much dearer the link that carries most becomes in each.
ROUNDS = 48
GROWTH = 1.5
# Nodes times sources beyond which rounds take too long.
MAX_WAYS = 40_000


def balanced_prices(
    topology: Topology, rates: FloatArray, source: IntArray, target: IntArray, amount: FloatArray
) -> FloatArray | None:
    """Return a price for each link; None where the network is too large.

    Parameters
    ----------
    topology, rates
        The network and what its links carry.
    source, target, amount
        What has to move.
    """
    sources, row = np.unique(source, return_inverse=True)
    if len(sources) * topology.num_nodes > MAX_WAYS:
        return None
    wanted = np.zeros((len(sources), topology.num_nodes))
    np.add.at(wanted, (row, target), amount)
    price = rates.max() / rates
    best, kept = 0.0, None
    for _ in range(ROUNDS):
        cost, flow = _along_shortest_ways(topology, price, sources, wanted)
        value = cost / float((rates * price).sum())
        if value > best:
            best, kept = value, price
        busy = flow / rates
        price = price * GROWTH ** (busy / busy.max())
        price = price / price.max()
    return kept


def _along_shortest_ways(
    topology: Topology, price: FloatArray, sources: IntArray, wanted: FloatArray
) -> tuple[float, FloatArray]:
    """Return what all that is wanted costs, and what each link carries of it."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    num = topology.num_nodes
    # Of links side by side the cheapest counts.
    order = np.lexsort((price, topology.link_dst, topology.link_src))
    pair = (topology.link_src * num + topology.link_dst)[order]
    first = order[np.flatnonzero(np.diff(pair, prepend=-1))]
    ends = (topology.link_src[first], topology.link_dst[first])
    graph = csr_array((price[first], ends), shape=(num, num))
    link = np.full((num, num), -1)
    link[ends] = first
    distance, before = dijkstra(graph, indices=sources, return_predecessors=True)
    flow = np.zeros(len(price))
    cost = 0.0
    for far, via, share in zip(distance, before, wanted.copy(), strict=True):
        inside = np.isfinite(far)
        cost += float(far[inside] @ share[inside])
        for node in np.argsort(-np.where(inside, far, -1.0), kind="stable").tolist():
            parent = via[node]
            if parent >= 0 and share[node]:
                flow[link[parent, node]] += share[node]
                share[parent] += share[node]
    return cost, flow
