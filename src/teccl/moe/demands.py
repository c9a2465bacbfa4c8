"""Demands: what a layer's tokens send to their experts and get back, plain or deduplicated."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.demand import Collective, Demand, Tenant
from teccl.demand.tenants import ExplicitChunk
from teccl.errors import DemandError
from teccl.moe.token_choices import IntArray, Routing
from teccl.schedule import Schedule
from teccl.topology import Topology

# A node's GPUs are bits of a mask.
MAX_PER_NODE = 62
# Tokens times ranks that fit into memory, a few gigabytes with all that is made of them.
MAX_CELLS = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Tokens on their way: token i of n is of rank i times ranks over n, rounded down.

    Parameters
    ----------
    wanted
        Per token and rank, how many of the token's experts the rank holds.
    home
        Rank of each token.
    node
        Node of each rank, counted from 0.
    """

    wanted: npt.NDArray[np.int16]
    home: IntArray
    node: IntArray

    @staticmethod
    def of(routing: Routing, rank_of_expert: IntArray, node: IntArray) -> "Traffic":
        """Send tokens to the ranks of their experts."""
        num_ranks = len(node)
        if rank_of_expert.max(initial=0) >= num_ranks:
            raise DemandError(
                f"an expert is placed on rank {rank_of_expert.max()}; ranks are 0 to "
                f"{num_ranks - 1}"
            )
        if np.bincount(node).max() > MAX_PER_NODE:
            raise DemandError(f"a node has more than {MAX_PER_NODE} ranks; use smaller nodes")
        tokens = len(routing)
        if tokens * num_ranks > MAX_CELLS:
            raise DemandError(
                f"{tokens} tokens for {num_ranks} ranks are too many; give at most "
                f"{MAX_CELLS // num_ranks} tokens"
            )
        wanted = np.zeros((tokens, num_ranks), dtype=np.int16)
        rows = np.repeat(np.arange(tokens), routing.experts.shape[1])
        np.add.at(wanted, (rows, rank_of_expert[routing.experts.ravel()]), 1)
        return Traffic(wanted=wanted, home=np.arange(tokens) * num_ranks // tokens, node=node)

    @property
    def skew(self) -> float:
        """Choices of the fullest rank over the mean."""
        load = self.wanted.sum(axis=0, dtype=np.int64)
        return float(load.max() / load.mean())

    def matrix(self) -> IntArray:
        """Tokens from each rank to each other, each sent once to every rank that wants it."""
        ranks = len(self.node)
        counts = np.zeros((ranks, ranks), dtype=np.int64)
        np.add.at(counts, self.home, (self.wanted > 0).astype(np.int64))
        np.fill_diagonal(counts, 0)
        return counts

    def crossings(self) -> dict[str, int]:
        """Tokens that cross between nodes: one for each expert, each rank, or each node."""
        away = self.node[None, :] != self.node[self.home][:, None]
        per_rank = (self.wanted > 0) & away
        nodes = np.zeros((len(self.home), int(self.node.max()) + 1), dtype=bool)
        token, rank = np.nonzero(per_rank)
        nodes[token, self.node[rank]] = True
        return {
            "expert": int((self.wanted * away).sum(dtype=np.int64)),
            "rank": int(per_rank.sum()),
            "node": int(nodes.sum()),
        }

    def groups(self) -> list[tuple[int, tuple[int, ...], int]]:
        """Tokens by home and the ranks of one node that want them: home, ranks, how many."""
        found = []
        for number in range(int(self.node.max()) + 1):
            ranks = np.flatnonzero(self.node == number)
            wants = (self.wanted[:, ranks] > 0) & (ranks != self.home[:, None])
            mask = wants.astype(np.int64) @ (1 << np.arange(len(ranks), dtype=np.int64))
            keys, counts = np.unique(
                np.stack([self.home, mask], axis=1)[mask > 0], axis=0, return_counts=True
            )
            for (home, bits), count in zip(keys.tolist(), counts.tolist(), strict=True):
                members = tuple(int(r) for i, r in enumerate(ranks) if bits >> i & 1)
                found.append((home, members, count))
        return sorted(found)

    def dispatch(self, token_bytes: Fraction, *, multicast: bool) -> Demand:
        """Tokens to their experts: an AllToAllv, or chunks that are copied inside each node."""
        if multicast:
            chunks = [
                ExplicitChunk((home,), ranks, size=count * token_bytes)
                for home, ranks, count in self.groups()
            ]
            return _explicit("dispatch", chunks)
        return _alltoallv("dispatch", self.matrix(), token_bytes)

    def combine(self, token_bytes: Fraction, *, multicast: bool) -> Demand:
        """Results back to the tokens: an AllToAllv, or sums of what each node's ranks return."""
        if multicast:
            chunks = [
                ExplicitChunk(ranks, (home,), reduce=True, size=count * token_bytes)
                for home, ranks, count in self.groups()
            ]
            return _explicit("combine", chunks)
        return _alltoallv("combine", self.matrix().T, token_bytes)


def nodes_of(topology: Topology) -> IntArray:
    """Node of each rank: GPUs of one group; those without a group are one each."""
    numbers: dict[str, int] = {}
    found = []
    for gpu in topology.gpus:
        each = topology.nodes[gpu]
        key = each.name if each.group is None else f"group {each.group}"
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, dtype=np.int64)


def crossing_bytes(schedule: Schedule) -> Fraction:
    """Bytes that a schedule moves from GPUs of one node to GPUs of another, each transfer once."""
    problem, topology = schedule.problem, schedule.problem.topology
    node = np.full(topology.num_nodes, -1, dtype=np.int64)
    node[topology.gpus] = nodes_of(topology)
    rows = schedule.sends
    src, dst = node[topology.link_src[rows["link"]]], node[topology.link_dst[rows["link"]]]
    home = np.full(int(rows["transfer"].max(initial=0)) + 1, -1, dtype=np.int64)
    home[rows["transfer"][src >= 0]] = src[src >= 0]
    crosses = (dst >= 0) & (home[rows["transfer"]] != dst)
    counts = np.bincount(
        problem.chunks.size_index[rows["chunk"][crosses]], minlength=len(problem.chunks.sizes)
    )
    pairs = zip(counts.tolist(), problem.chunks.sizes, strict=True)
    return sum((count * size for count, size in pairs), Fraction(0))


def _explicit(name: str, chunks: list[ExplicitChunk]) -> Demand:
    if not chunks:
        raise DemandError(f"{name} moves no data: every token has its experts at home")
    tenant = Tenant(collective=Collective.EXPLICIT, chunks=tuple(chunks), name=name)
    return Demand(tenants=(tenant,))


def _alltoallv(name: str, counts: IntArray, token_bytes: Fraction) -> Demand:
    if not counts.any():
        raise DemandError(f"{name} moves no data: every token has its experts at home")
    matrix = tuple(tuple(count * token_bytes for count in row) for row in counts.tolist())
    tenant = Tenant(collective=Collective.ALLTOALLV, matrix=matrix, name=name)
    return Demand(tenants=(tenant,))
