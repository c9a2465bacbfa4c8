"""Cheapest routes between GPUs, by latency, overhead and transmission of one chunk."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.construct.booking import Route
from teccl.topology import Link, Topology
from teccl.units import PICOSECONDS

FloatArray = npt.NDArray[np.float64]


class Router:
    """Finds cheapest routes, whose inner nodes must be allowed to pass traffic on.

    Parameters
    ----------
    topology
        The network.
    size
        Bytes of the chunk whose transmission counts.
    relays
        Nodes that routes may pass through; None for all.
    links
        Links that routes may use; None for all.
    """

    def __init__(
        self,
        topology: Topology,
        size: Fraction,
        *,
        relays: Iterable[int] | None = None,
        links: Sequence[int] | None = None,
    ) -> None:
        nodes = range(topology.num_nodes)
        may_relay = set(nodes if relays is None else relays)
        # Routes into a node that may not relay end in a second vertex of it, which none leaves.
        self._sinks = [node if node in may_relay else node + len(nodes) for node in nodes]
        self._graph, self._link_of = _graph(
            topology, link_costs(topology, size), self._sinks, links
        )
        # Per source: cost of each vertex and the vertex before it. Lists, because single entries
        # of arrays are slow to read.
        self._trees: dict[int, tuple[list[float], list[int]]] = {}

    def cost(self, src: int, dst: int) -> float:
        """Picoseconds of the cheapest route, infinite without one."""
        return self._tree(src)[0][self._sinks[dst]]

    def costs(self, nodes: Sequence[int]) -> FloatArray:
        """Return the matrix of costs between nodes, infinite where there is no route."""
        self._grow_trees([node for node in nodes if node not in self._trees])
        sinks = [self._sinks[node] for node in nodes]
        return np.array([self._trees[node][0] for node in nodes])[:, sinks]

    def route(self, src: int, dst: int) -> Route | None:
        """Return the links of the cheapest route, None without one."""
        cost, before = self._tree(src)
        node = self._sinks[dst]
        if src == dst or cost[node] == math.inf:
            return None
        links = []
        while node != src:
            previous = before[node]
            links.append(self._link_of[previous, node])
            node = previous
        return tuple(reversed(links))

    def _tree(self, src: int) -> tuple[list[float], list[int]]:
        if src not in self._trees:
            self._grow_trees([src])
        return self._trees[src]

    def _grow_trees(self, sources: list[int]) -> None:
        from scipy.sparse.csgraph import dijkstra

        if not sources:
            return
        distance, before = dijkstra(self._graph, indices=sources, return_predecessors=True)
        for row, source in enumerate(sources):
            self._trees[source] = (distance[row].tolist(), before[row].tolist())


def link_costs(topology: Topology, size: Fraction) -> list[int]:
    """Picoseconds that one chunk takes over each link, latency and overhead included."""

    def cost(link: Link) -> int:
        seconds = link.overhead + size / topology.rate(link) + link.alpha
        return max(1, round(seconds * PICOSECONDS))

    return topology.each_link(cost)


def _graph(
    topology: Topology, costs: Sequence[int], sinks: Sequence[int], links: Sequence[int] | None
) -> tuple[Any, dict[tuple[int, int], int]]:
    """Return the graph in which links lead into their far node's sink, and the link of each edge.

    Of parallel links the cheapest counts.
    """
    from scipy.sparse import csr_array

    ends = list(zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True))
    link_of: dict[tuple[int, int], int] = {}
    for link in range(topology.num_links) if links is None else links:
        edge = (ends[link][0], sinks[ends[link][1]])
        if edge not in link_of or costs[link] < costs[link_of[edge]]:
            link_of[edge] = link
    vertices = np.array(list(link_of), dtype=np.int64).reshape(-1, 2)
    weights = np.array([costs[link] for link in link_of.values()], dtype=np.float64)
    shape = (2 * topology.num_nodes, 2 * topology.num_nodes)
    return csr_array((weights, (vertices[:, 0], vertices[:, 1])), shape=shape), link_of
