r"""The cut bound where transfers have an overhead: no size of pieces is good for all of a cut.

Pieces of more than b bytes are on the links before and behind a gate for at least b over their
rates, and pieces of at most b' bytes move no faster than 1 / (1 / C + o / b') through it. So those
between b and b' use a gate in a window that shrinks with b, at a rate that grows with b', and

.. math:: \sum_e \sum_i (r_{e,i} - r_{e,i-1}) \, (T - h_e - q_e - b_{i-1} \tau_e)^+ \ge
   \sum_{m \in J} b_m

for sizes b_0 = 0 < b_1 < ... up to the largest block, where tau is the least time that a byte is
on links before and behind the gate, and the tail q has no overhead of the gate: the rates have it.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teccl.bounds.cuts import Estimate, cut_sentence
from teccl.bounds.model import Bound
from teccl.bounds.network import Network, all_distances
from teccl.bounds.pieces import WHOLE, bytes_take, overheads, sizes_of
from teccl.bounds.windows import FAR, FloatArray, IntArray, least_estimate, least_time


class Sizes(NamedTuple):
    """Ranges of sizes and how long the largest piece is on the way between any two nodes.

    Parameters
    ----------
    largest, most
        Bytes of the largest piece, and the upper end of each range in parts of it.
    overhead
        Of each link.
    distance
        Least time that the largest piece is on links, from node to node.
    """

    largest: Fraction
    most: IntArray
    overhead: IntArray
    distance: IntArray

    @staticmethod
    def of(network: Network) -> "Sizes | None":
        """None where no transfer has an overhead, or circuits pass switches."""
        overhead = overheads(network)
        if not network.fluid or not overhead.any() or network.has_circuits:
            return None
        largest = max(network.classes.amount)
        distance = all_distances(network.problem, bytes_take(network, largest))
        return Sizes(largest, sizes_of(), overhead, distance)


def sized_cut_bounds(network: Network, estimates: list[Estimate], most: int | None) -> list[Bound]:
    """Evaluate the bounds of the cuts that floating point finds tightest."""
    sizes = Sizes.of(network)
    if sizes is None:
        return []
    cuts = [estimate for estimate in estimates if estimate.gates]
    rooms = [_room(network, sizes, estimate) for estimate in cuts]
    needs = [float(_need(network, estimate)) for estimate in cuts]
    values = [least_estimate(*room, need) for room, need in zip(rooms, needs, strict=True)]
    order = sorted(range(len(cuts)), key=lambda i: -values[i])[:most]
    return [_bound(network, cuts[i], *rooms[i]) for i in order]


def _bound(network: Network, estimate: Estimate, moments: IntArray, changes: FloatArray) -> Bound:
    rows = zip(moments.tolist(), changes.tolist(), strict=True)
    exact = ((Fraction(moment), Fraction(change)) for moment, change in rows)
    value = least_time(exact, _need(network, estimate))
    text = f"{cut_sentence(network, estimate)}, whatever the size of pieces"
    return Bound(kind="cut", value=value, certificate=text)


def _need(network: Network, estimate: Estimate) -> Fraction:
    members = estimate.load.classes[estimate.chosen]
    return sum((network.classes.amount[i] for i in members), Fraction(0))


def _room(network: Network, sizes: Sizes, estimate: Estimate) -> tuple[IntArray, FloatArray]:
    """Moments at which the room of a cut grows faster, and by how much."""
    load, chosen = estimate.load, estimate.chosen
    away = load.head[chosen].min(axis=0) + load.tail[chosen].min(axis=0)
    wait = _waits(network, sizes, estimate)
    rows = [
        (
            int(away[i]) - int(sizes.overhead[gate.links].max()),
            int(wait[i]),
            float(gate.rate),
            float(sizes.overhead[gate.links].min()),
        )
        for i, gate in enumerate(estimate.gates)
    ]
    below = np.append(0, sizes.most[:-1])
    bytes_each = sizes.most * (float(sizes.largest) / WHOLE)
    kinds, counts = np.unique(np.array(rows), axis=0, return_counts=True)
    moments, changes = [], []
    for (least, on_links, rate, overhead), count in zip(
        kinds.tolist(), counts.tolist(), strict=True
    ):
        moments.append(int(least) + below * int(on_links) // WHOLE)
        # Rounded up, as what a gate moves must be.
        rates = (1 + 1e-12) * count / (1 / rate + overhead / bytes_each)
        changes.append(np.diff(rates, prepend=0.0))
    return np.minimum(np.concatenate(moments), FAR), np.concatenate(changes)


def _waits(network: Network, sizes: Sizes, estimate: Estimate) -> IntArray:
    """How long the largest piece is on links before and behind each gate, at least."""
    topology, classes = network.problem.topology, network.classes
    members = estimate.load.classes[estimate.chosen]
    inside = estimate.cut.inside
    sources = np.unique(np.concatenate([classes.origins[o].nodes for o in classes.origin[members]]))
    goals = np.unique(np.concatenate([classes.goals[g] for g in classes.goal[members]]))
    before = sizes.distance[sources].min(axis=0)
    behind = sizes.distance[:, goals[inside[goals]]].min(axis=1)
    whole = before[topology.link_src] + behind[topology.link_dst]
    return np.array([whole[gate.links].min() for gate in estimate.gates])
