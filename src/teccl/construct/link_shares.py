"""Link shares: what sums on their way in and results on their way out take of each link at best.

An AllReduce may add up each piece at any member. A linear program chooses how much is added up
where and which part of each link is for sums, the rest being for results. In a graph of members
trees of these rates exist if every set of nodes that leaves out a member lets out what is added up
in it, and in its contributions (Edmonds' theorem, once in either direction). Of these conditions,
which are too many to list, those that a solution breaks are added until it breaks none.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import IntArray
from teccl.construct.params import BUDGET, MILLION, NARROW_GAP, STEPS
from teccl.topology import Topology

FloatArray = npt.NDArray[np.float64]


class LinkShares(NamedTuple):
    """A part of the buffer for each node, and what of each link is for results, the rest for sums.

    Parameters
    ----------
    rate
        Bytes of the buffer per second.
    owned
        Per node, the part of the buffer that is added up there.
    outward
        Per link, the part of it that results take of what is taken.
    """

    rate: float
    owned: FloatArray
    outward: FloatArray


def best_shares(topology: Topology, members: list[int]) -> LinkShares | None:
    """Return the shares of the highest rate for members of an AllReduce; None if none are found.

    A network whose solutions break ever other conditions is given up after the work of a quick
    effort: what is still broken then, hundreds of rounds may mend, each slower than the last.
    """
    program = _Program(topology, members)
    while program.steps < STEPS * BUDGET["quick"]:
        found = program.solved()
        if found is None:
            return None
        broken = list(program.broken(*found))
        if not broken:
            return program.shares(*found)
        program.add(broken)
    return None


class _Program:
    """The linear program: per member what it adds up, per link results, per link sums.

    `steps` counts what solving it has taken: the solver's iterations, each over all rows.
    """

    def __init__(self, topology: Topology, members: list[int]) -> None:
        rates = np.array([float(topology.rate(link)) for link in topology.links])
        self.unit = float(rates.max())
        self.rates, self.members = rates / self.unit, members
        self.src, self.dst = topology.link_src, topology.link_dst
        self.num_nodes, self.num_links = topology.num_nodes, len(rates)
        self.rows: list[FloatArray] = []
        self.known: set[tuple[bool, bytes]] = set()
        self.steps = 0
        alone = [np.arange(self.num_nodes) == member for member in members]
        self.add([(is_out, ~each) for each in alone for is_out in (True, False)])

    def add(self, cuts: list[tuple[bool, npt.NDArray[np.bool_]]]) -> None:
        """Add the conditions of sets of nodes, for results or for sums."""
        for is_out, inside in cuts:
            src, dst = (self.src, self.dst) if is_out else (self.dst, self.src)
            crossing = (inside[src] & ~inside[dst]).astype(np.float64)
            none = np.zeros(self.num_links)
            halves = (crossing, none) if is_out else (none, crossing)
            self.rows.append(np.concatenate((inside[self.members], *(-half for half in halves))))
            self.known.add((is_out, inside.tobytes()))

    def solved(self) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Return what nodes add up, and what results and sums take of links, in units."""
        from scipy import sparse
        from scipy.optimize import linprog

        links, count = self.num_links, len(self.members)
        one = sparse.identity(links)
        within = sparse.hstack([sparse.csr_matrix((links, count)), one, one])
        cost = np.zeros(count + 2 * links)
        cost[:count] = -1.0
        balance = self._balance()
        limits: Any = sparse.vstack([within, sparse.csr_matrix(np.array(self.rows))])
        found: Any = linprog(
            cost,
            A_ub=limits.tocsr(),
            b_ub=np.concatenate([self.rates, np.zeros(len(self.rows))]),
            A_eq=balance,
            b_eq=None if balance is None else np.zeros(balance.shape[0]),
            method="highs",
        )
        self.steps += (1 + found.nit) * limits.shape[0]
        if found.status != 0:
            return None
        owned = np.zeros(self.num_nodes)
        owned[self.members] = found.x[:count]
        return owned, found.x[count : count + links], found.x[count + links :]

    def _balance(self) -> FloatArray | None:
        """Rows in which nodes that are no members let out what comes in, of either kind."""
        others = np.setdiff1d(np.arange(self.num_nodes), self.members)
        if not len(others):
            return None
        flow = (self.dst == others[:, None]).astype(np.float64) - (self.src == others[:, None])
        none = np.zeros_like(flow)
        owned = np.zeros((2 * len(others), len(self.members)))
        return np.hstack([owned, np.block([[flow, none], [none, flow]])])

    def broken(
        self, owned: FloatArray, outward: FloatArray, inward: FloatArray
    ) -> Iterator[tuple[bool, npt.NDArray[np.bool_]]]:
        """Yield sets of nodes that let out too little, of results or of sums."""
        for is_out, taken in ((True, outward), (False, inward)):
            ends = (self.src, self.dst) if is_out else (self.dst, self.src)
            arcs = self._scaled(owned, taken, ends)
            for member in self.members:
                for inside in _narrow_cuts(arcs, self.num_nodes, member):
                    if (is_out, inside.tobytes()) not in self.known:
                        yield is_out, inside

    def _scaled(
        self, owned: FloatArray, taken: FloatArray, ends: tuple[IntArray, IntArray]
    ) -> IntArray:
        """Return a graph in whole numbers, with a source that gives each node its own."""
        arcs = np.zeros((self.num_nodes + 1,) * 2, dtype=np.int64)
        np.add.at(arcs, ends, np.rint(taken * MILLION).astype(np.int64))
        arcs[self.num_nodes, :-1] = np.rint(owned * MILLION)
        return arcs

    def shares(self, owned: FloatArray, outward: FloatArray, inward: FloatArray) -> LinkShares:
        """Return the shares of a solution; of what is not taken each kind has half."""
        taken = outward + inward
        half = np.full_like(taken, 1 / 2)
        part = np.divide(outward, taken, out=half, where=taken > 0)
        total = float(owned.sum())
        return LinkShares(total * self.unit, owned / total, part)


def _narrow_cuts(arcs: IntArray, source: int, member: int) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the smallest and the largest set whose cut lets too little out to a member."""
    from teccl.construct.flows import push_flow, reached

    rest, total = arcs.copy(), int(arcs[source].sum())
    if push_flow(rest, source, member, total) < total * (1 - NARROW_GAP / 2):
        yield reached(rest, source)[:source]
        yield ~reached(np.ascontiguousarray(rest.T), member)[:source]
