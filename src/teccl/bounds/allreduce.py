r"""AllReduce's own bound: every part of a partition must receive its share twice over.

Split the nodes into g disjoint parts, each with a member; nodes outside all parts must be switches
that do not reduce. To combine g contributions of S bytes, g - 1 of them must enter a part other
than their own, and to hand the result to all parts it must enter g - 1 of them again: bytes that
enter parts number at least 2 (g - 1) S, whatever trees are used. A node outside that could combine
(a GPU that takes no part, a reducing switch) would save entries, so the capacity into it counts
too. No entry starts before some contribution can have come to it, or so late that what it carries
no longer gets to any member. Hence, with these heads h and tails q of the links into parts,

.. math:: \sum_e C_e \, (T - h_e - q_e)^+ \ge 2 (g - 1) S .
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.partitions import Mask, Partition, candidate_partitions
from teccl.bounds.windows import FAR, IntArray, least_time
from teccl.units import display_time, format_bandwidth, format_size


def partition_bounds(network: Network, narrow: Sequence[Mask] = ()) -> list[Bound]:
    """Bounds from partitions of the nodes; `narrow` are sets behind narrow cuts."""
    classes = network.classes
    goals = [classes.goals[g] for g in classes.goal]
    origins = [classes.origins[o].nodes for o in classes.origin]
    members = origins[0]
    everyone = (*goals, *origins)
    if not network.fluid or not classes.reduce.all():
        return []
    if any(not np.array_equal(nodes, members) for nodes in everyone):
        return []
    partitions = candidate_partitions(network, members, narrow)
    bounds = [partition_bound(network, partition) for partition in partitions]
    return [bound for bound in bounds if bound is not None]


def partition_bound(network: Network, partition: Partition) -> Bound | None:
    """Evaluate the bound of a partition of an AllReduce exactly; None where nothing must enter."""
    topology, part = network.problem.topology, partition.part
    combines = np.array([not node.is_switch or node.reduce for node in topology.nodes])
    counted = (part >= 0) | combines
    # Nodes outside the parts that can combine are parts of their own, without a member.
    own = np.where(part >= 0, part, -1 - np.arange(len(part)))
    into = counted[topology.link_dst] & (own[topology.link_src] != own[topology.link_dst])
    gates = network.gates(np.flatnonzero(into))
    parts = int(part.max()) + 1
    if parts < 2 or not gates:
        return None
    head, tail = _ends(network)
    around = [(int(head[g.links].min()), int(tail[g.links].min())) for g in gates]
    changes = (
        change for gate, ends in zip(gates, around, strict=True) for change in gate.window(*ends)
    )
    amount = sum(network.classes.amount, Fraction(0))
    value = least_time(changes, 2 * (parts - 1) * amount)
    rate = sum(float(gate.rate) for gate in gates)
    least = min(h + q for h, q in around)
    text = (
        f"2 x {parts - 1} x {format_size(round(amount))} must enter {partition.label} at "
        f"{format_bandwidth(round(rate * 1e12))} in all, plus {display_time(least / 1e12)}"
    )
    return Bound(kind="partition", value=value, certificate=text)


def _ends(network: Network) -> tuple[IntArray, IntArray]:
    """Head and tail of each link: from the first contribution, and to the nearest member."""
    topology, classes = network.problem.topology, network.classes
    nodes = classes.origins[0].nodes
    ready = np.min([origin.ready for origin in classes.origins], axis=0)
    before = (network.approach[nodes] + ready[:, None]).min(axis=0)
    after = network.distance[:, nodes].min(axis=1)
    head = before[topology.link_src]
    return np.minimum(head, FAR), np.minimum(network.crossing + after[topology.link_dst], FAR)
