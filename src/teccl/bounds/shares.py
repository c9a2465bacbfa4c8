"""What data costs that several GPUs want or contribute to, when every link has a length.

A copied chunk must enter each GPU that wants it, over its shortest input at least, and must cover
the way to the farthest of them. A sum for one destination must leave each contributor. A sum that
all of its g contributors want enters each of them, and whatever can add up 2 (g - 1) times in all
(see `allreduce`). Each is a lower limit on the length that one byte takes of the network.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from teccl.bounds.network import Network
from teccl.bounds.windows import FAR, IntArray


class EntryDemand(NamedTuple):
    """Rows for a flow model: bytes that must cross sets of links, in layers of links.

    Parameters
    ----------
    layers
        Copies of the links' columns: what enters GPUs, what leaves them.
    rows, least
        Sparse matrix over the columns of all layers, and how much each row must have.
    """

    layers: int
    rows: Any
    least: Any


class Shares:
    """Classes of chunks that are not from one to one, as far as they have to move."""

    def __init__(self, network: Network, numbers: IntArray) -> None:
        classes, self._network = network.classes, network
        rows = []
        for number in numbers.tolist():
            nodes, ready = classes.origins[classes.origin[number]]
            goals = classes.goals[classes.goal[number]]
            reduce = bool(classes.reduce[number])
            wanted = _wanting(nodes, goals, reduce=reduce)
            if len(wanted):
                rows.append((nodes, ready, wanted, reduce, classes.amount[number]))
        self._rows = rows
        topology = network.problem.topology
        self._adds = np.array([not node.is_switch or node.reduce for node in topology.nodes])

    def __len__(self) -> int:
        return len(self._rows)

    def ends(self) -> tuple[IntArray, IntArray, IntArray]:
        """Sources with the times at which their data is ready, and destinations."""
        none = np.empty(0, dtype=np.int64)
        sources = np.concatenate([none, *(row[0] for row in self._rows)])
        ready = np.concatenate([none, *(row[1] for row in self._rows)])
        return sources, ready, np.concatenate([none, *(row[2] for row in self._rows)])

    def work(self, lengths: IntArray, distance: IntArray) -> Fraction:
        """Return the least sum over links of length times bytes, exactly."""
        if not self._rows:
            return Fraction(0)
        topology = self._network.problem.topology
        into, out = (
            _least_at(topology.num_nodes, ends, lengths)
            for ends in (topology.link_dst, topology.link_src)
        )
        ends = self._adds & (into < FAR)
        least = int(into[ends].min()) if ends.any() else 0
        total = Fraction(0)
        for nodes, _, wanted, reduce, amount in self._rows:
            ways = distance[np.ix_(nodes, wanted)]
            far = int((ways.max(axis=0) if reduce else ways.min(axis=0)).max())
            if reduce and len(wanted) == 1:
                around = int(out[nodes[nodes != wanted[0]]].sum())
            else:
                around = int(into[wanted].sum())
            if reduce and np.array_equal(nodes, wanted):
                around += (len(nodes) - 2) * least
            total += amount * max(far, around)
        return total

    def demand(self) -> EntryDemand | None:
        """Return the same as rows of a flow model, None where there is nothing."""
        if not self._rows:
            return None
        from scipy.sparse import coo_array

        topology = self._network.problem.topology
        nodes, links, e = topology.num_nodes, topology.num_links, np.arange(topology.num_links)
        least = np.zeros(2 * nodes + 1)
        for sources, _, wanted, reduce, amount in self._rows:
            size = float(amount)
            if reduce and len(wanted) == 1:
                least[nodes + sources[sources != wanted[0]]] += size
            else:
                least[wanted] += size
                twice = len(sources) - 2 if reduce and np.array_equal(sources, wanted) else 0
                least[-1] += (len(wanted) + twice) * size
        adding = e[self._adds[topology.link_dst]]
        ends = [topology.link_dst, nodes + topology.link_src, np.full(len(adding), 2 * nodes)]
        columns = np.concatenate([e, links + e, adding])
        rows: Any = coo_array(
            (np.ones(len(columns)), (np.concatenate(ends), columns)),
            shape=(2 * nodes + 1, 2 * links),
        )
        kept = np.flatnonzero(least > 0)
        return EntryDemand(layers=2, rows=rows.tocsr()[kept], least=least[kept])


def _wanting(nodes: IntArray, goals: IntArray, *, reduce: bool) -> IntArray:
    """Destinations that something has to come to."""
    if not reduce:
        return np.setdiff1d(goals, nodes)
    return goals if len(nodes) > 1 else np.setdiff1d(goals, nodes)


def _least_at(count: int, ends: IntArray, lengths: IntArray) -> IntArray:
    """Least length of the links that end at each node."""
    least = np.full(count, FAR)
    np.minimum.at(least, ends, lengths)
    return least
