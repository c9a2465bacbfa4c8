r"""AllReduce's own bound: every part of a partition must receive its share twice over.

Split the nodes into g disjoint parts, each with a member; nodes outside all parts must be switches
that do not reduce. To combine g contributions of S bytes, g - 1 of them must enter a part other
than their own, and to hand the result to all parts it must enter g - 1 of them again: bytes that
enter parts number at least 2 (g - 1) S, whatever trees are used. A node outside that could combine
(a GPU that takes no part, a reducing switch) would save entries, so the capacity into it counts
too. Hence

.. math:: T \ge \min_e \alpha_e + \frac{2 (g - 1) S}{\sum_{\text{parts}} C(\text{into the part})}
"""

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.topology import Topology
from teccl.units import display_time, format_bandwidth, format_size

# Kinds of groups that are split at most, those that gain most.
MOST_SPLITS = 8


def partition_bounds(network: Network) -> list[Bound]:
    """Bounds from partitions into single GPUs, groups, and both."""
    classes = network.classes
    goals = [network.classes.goals[g] for g in classes.goal]
    origins = [classes.origins[o].nodes for o in classes.origin]
    members = origins[0]
    everyone = (*goals, *origins)
    if not network.fluid or not classes.reduce.all():
        return []
    if any(not np.array_equal(nodes, members) for nodes in everyone):
        return []
    amount = sum(classes.amount, Fraction(0))
    bounds = []
    for label, part in _partitions(network, members):
        bound = _partition_bound(network, part, amount, label)
        if bound is not None:
            bounds.append(bound)
    return bounds


def _partitions(
    network: Network, members: npt.NDArray[np.int64]
) -> list[tuple[str, npt.NDArray[np.int64]]]:
    """Part number of every node, -1 outside: single members, groups, and some groups split.

    Splitting a group adds parts and, as capacity into them, that between its own nodes. The most
    parts for the capacity come first; of groups that are alike all are split or none.
    """
    topology = network.problem.topology
    partitions = [("each gpu", _numbered(topology.num_nodes, [[m] for m in members]))]
    groups, inside = (_by_group(topology, nodes) for nodes in (range(topology.num_nodes), members))
    if None in inside or not 1 < len(inside) < len(members):
        return partitions
    gain = {name: _gain_by_splitting(network, groups[name], inside[name]) for name in inside}
    for least in (math.inf, *sorted(set(gain.values()), reverse=True)[:MOST_SPLITS]):
        split = [name for name in inside if gain[name] >= least]
        whole = [groups[name] for name in inside if gain[name] < least]
        single = [[m] for name in split for m in inside[name]]
        if whole:
            parts = _numbered(topology.num_nodes, [*single, *whole])
            partitions.append((_describe(split), parts))
    return partitions


def _by_group(topology: Topology, nodes: Iterable[int]) -> dict[str | None, list[int]]:
    """Return nodes by the group they are in."""
    groups: dict[str | None, list[int]] = {}
    for node in nodes:
        groups.setdefault(topology.nodes[node].group, []).append(node)
    return groups


def _numbered(count: int, parts: list[list[int]]) -> npt.NDArray[np.int64]:
    """Part number of each of so many nodes, -1 outside all parts."""
    part = np.full(count, -1)
    for number, nodes in enumerate(parts):
        part[nodes] = number
    return part


def _gain_by_splitting(network: Network, group: list[int], members: list[int]) -> float:
    """Parts that splitting a group adds, for the capacity between its nodes that then counts."""
    topology = network.problem.topology
    is_inside = np.isin(topology.link_src, group) & np.isin(topology.link_dst, members)
    links = np.flatnonzero(is_inside)
    capacity = sum(float(network.rate[link]) for link in links)
    if len(members) == 1:
        return 0.0
    return (len(members) - 1) / capacity if capacity else math.inf


def _describe(split: list[str | None]) -> str:
    if not split:
        return "each group"
    which = str(split[0]) if len(split) == 1 else f"{len(split)} groups"
    return f"each gpu of {which} and each other group"


def _partition_bound(
    network: Network, part: npt.NDArray[np.int64], amount: Fraction, label: str
) -> Bound | None:
    topology = network.problem.topology
    combines = np.array([not node.is_switch or node.reduce for node in topology.nodes])
    counted = (part >= 0) | combines
    # Nodes outside the parts that can combine are parts of their own, without a member.
    own = np.where(part >= 0, part, -1 - np.arange(len(part)))
    into = counted[topology.link_dst] & (own[topology.link_src] != own[topology.link_dst])
    links = np.flatnonzero(into)
    parts = int(part.max()) + 1
    if parts < 2 or not len(links):
        return None
    rate = _joint_rate(network, links)
    alpha = int(network.step[links].min())
    value = alpha + int(2 * (parts - 1) * amount / rate)
    text = (
        f"2 x {parts - 1} x {format_size(round(amount))} must enter {label} at "
        f"{format_bandwidth(round(float(rate) * 1e12))} in all, plus {display_time(alpha / 1e12)}"
    )
    return Bound(kind="partition", value=value, certificate=text)


def _joint_rate(network: Network, links: npt.NDArray[np.int64]) -> Fraction:
    """Bytes per picosecond that some links carry together, shared capacities respected."""
    return sum((gate.rate for gate in network.gates(links)), Fraction(0))
