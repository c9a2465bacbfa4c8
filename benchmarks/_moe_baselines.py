"""Rival plans of an exchange between servers, timed as if every stage streamed without a gap.

Both are flattered: blocks are taken to flow through switches without waiting to be whole, stages
to begin the moment the one before has ended, and servers to share nothing. What is left is what
the plans themselves cost: barriers, and links that idle in a stage.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from teccl.exchange.passage_network import PassageNetwork


class Paces(NamedTuple):
    """Seconds of latency and seconds for a byte between ranks, by the quickest route."""

    alpha: np.ndarray
    per_byte: np.ndarray

    @staticmethod
    def of(network: PassageNetwork) -> "Paces":
        """Look at the route of least latency of each pair."""
        topology, choices, fabric = network.topology, network.choices, network.fabric
        gpus = topology.num_gpus
        alpha, per_byte = np.zeros((gpus, gpus)), np.zeros((gpus, gpus))
        for pair in np.flatnonzero(np.diff(choices.pair_start)):
            route = choices.pair_start[pair]
            ways = choices.ways[choices.route_start[route] : choices.route_start[route + 1]]
            links = np.concatenate(
                [fabric.links[fabric.way_start[w] : fabric.way_start[w + 1]] for w in ways]
            )
            alpha.flat[pair] = topology.alpha_ps[links].sum() / 1e12
            per_byte.flat[pair] = max(float(1 / topology.rates[link]) for link in links)
        return Paces(alpha, per_byte)


def shifts(matrix: np.ndarray, paces: Paces) -> float:
    """Step k round the ring of ranks: everyone sends to the k-th after it, then all wait."""
    count = len(matrix)
    ranks, total = np.arange(count), 0.0
    for k in range(1, count):
        to = (ranks + k) % count
        took = paces.alpha[ranks, to] + matrix[ranks, to] * paces.per_byte[ranks, to]
        total += float(took[matrix[ranks, to] > 0].max(initial=0.0))
    return total


def staged(matrix: np.ndarray, node: np.ndarray, paces: Paces) -> float:
    """Balance inside servers, exchange in matchings between them, each a stage with a barrier.

    Every server first spreads what it has for each other one evenly over its GPUs. Servers then
    exchange in matchings (Birkhoff), GPU by GPU over all rails; what arrives goes on to its owner
    inside the server while the next matching runs.
    """
    servers = np.eye(int(node.max()) + 1)[node]
    inside = paces.per_byte[node[:, None] == node[None, :]].max()
    rail = paces.per_byte[node[:, None] != node[None, :]].min()
    near, far = (paces.alpha[mask].max() for mask in (_same(node), ~_same(node)))
    away = matrix * ~_same(node)
    to_server = away @ servers
    each = servers @ (servers.T @ to_server) / servers.sum(axis=0)[node][:, None]
    moved = np.maximum(to_server - each, 0).sum(axis=1)
    taken = np.maximum(each - to_server, 0).sum(axis=1)
    own = matrix * _same(node)
    balance = near + inside * max((moved + own.sum(axis=1)).max(), (taken + own.sum(axis=0)).max())
    per_gpu = servers.T @ away @ servers / servers.sum(axis=0)[:, None]
    parts = matchings(per_gpu)
    # What a stage brought goes to its owners while the next one runs.
    arrives = away.sum(axis=0).max() / max(per_gpu.sum(axis=0).max(), 1.0)
    stages = [max(far + size * rail, near + size * arrives * inside) for size in parts]
    return balance + sum(stages) + near + parts[-1] * arrives * inside


def _same(node: np.ndarray) -> np.ndarray:
    """Which pairs of ranks are of one server."""
    return np.asarray(node[:, None] == node[None, :])


def matchings(matrix: np.ndarray) -> list[float]:
    """Sizes of the matchings into which a matrix is taken apart; they sum to its largest line."""
    left = _filled(matrix)
    whole, found = float(left.sum(axis=0).max()), []
    while left.max() > 1e-9 * whole:
        # The matching whose smallest entry is largest would need fewer stages; any perfect one of
        # positive entries will do.
        rows, columns = linear_sum_assignment(left <= 1e-9 * whole)
        size = float(left[rows, columns].min())
        left[rows, columns] -= size
        found.append(size)
    return found


def _filled(matrix: np.ndarray) -> np.ndarray:
    """Add to entries until all lines have the largest sum, as Birkhoff's theorem asks."""
    filled = matrix.astype(float).copy()
    goal = max(filled.sum(axis=0).max(), filled.sum(axis=1).max())
    for i in range(len(filled)):
        for j in range(len(filled)):
            filled[i, j] += max(0.0, min(goal - filled[i].sum(), goal - filled[:, j].sum()))
    return filled
