r"""The partition bound: how often data must enter the parts of a partition, all together.

Split the nodes into disjoint parts; a GPU or reducing switch outside is a part of its own, other
switches may stay outside. A copied chunk must enter every part that wants it and holds none of it.
A sum with contributors in A parts and destinations in D parts must enter A - 1 times until some
part knows all of it, and D - 1 times after that, or one time more if no part has both: an AllReduce
2 (g - 1) times among g parts. No entry starts before some data can have come to it, or so late that
it no longer gets to any destination. Hence, with these heads h and tails q of the links into parts,

.. math:: \sum_e C_e \, (T - h_e - q_e)^+ \ge \sum_m b_m \, \mathrm{entries}_m .

Where no switch copies, every entry has a departure from a GPU of its own, and these may be counted.
"""

from collections.abc import Sequence
from fractions import Fraction
from operator import add

import numpy as np

from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.partitions import Mask, Partition, candidate_partitions
from teccl.bounds.windows import FAR, IntArray, least_time, room_changes
from teccl.keywords import SwitchMode
from teccl.units import display_time, format_bandwidth, format_size

# Different sets of GPUs among which data is summed that partitions are made for.
MOST_SETS = 4
# Kinds of chunks beyond which counting the entries of each takes too long.
MOST_CLASSES = 5_000


def partition_bounds(network: Network, narrow: Sequence[Mask] = ()) -> list[Bound]:
    """Bounds from partitions of the nodes; `narrow` are sets behind narrow cuts."""
    classes = network.classes
    is_joint = bool(classes.reduce.any()) or len(network.problem.demand.tenants) > 1
    is_joint = is_joint or passes_on_once(network)
    if not network.fluid or not is_joint or len(classes) > MOST_CLASSES:
        return []
    bounds = []
    for members in member_sets(network):
        for partition in candidate_partitions(network, members, narrow):
            for departing in (False, True)[: 1 + passes_on_once(network)]:
                bound = partition_bound(network, partition, departing=departing)
                if bound is not None:
                    bounds.append(bound)
    return bounds


def passes_on_once(network: Network) -> bool:
    """Whether there are switches, and what each takes in it passes on to one place only."""
    problem = network.problem
    is_once = problem.switch is SwitchMode.NO_COPY or not problem.copy
    return is_once and problem.topology.num_switches > 0


def member_sets(network: Network) -> list[IntArray]:
    """Return the sets of GPUs among which data is summed and wanted, or else all that want data."""
    classes, found = network.classes, dict[bytes, IntArray]()
    for number in np.flatnonzero(classes.reduce).tolist():
        nodes = classes.origins[classes.origin[number]].nodes
        members = np.unique(np.concatenate([nodes, classes.goals[classes.goal[number]]]))
        found.setdefault(members.tobytes(), members)
    everyone = np.unique(np.concatenate([classes.goals[goal] for goal in np.unique(classes.goal)]))
    return list(found.values())[:MOST_SETS] or [everyone]


def partition_bound(
    network: Network, partition: Partition, *, departing: bool = False
) -> Bound | None:
    """Evaluate the bound of a partition exactly; None where nothing must enter a part.

    `departing` counts entries where they leave a GPU, for switches that do not copy.
    """
    topology, part = network.problem.topology, partition.part
    combines = np.array([not node.is_switch or node.reduce for node in topology.nodes])
    counted = (part >= 0) | combines
    # Nodes outside that can combine are parts of their own.
    own = np.where(part >= 0, part, -1 - np.arange(len(part)))
    crosses = own[topology.link_src] != own[topology.link_dst]
    into = counted[topology.link_dst] & crosses
    if departing:
        leads_on = crosses | topology.is_switch[topology.link_dst]
        into = ~topology.is_switch[topology.link_src] & leads_on
    gates, (need, times) = network.gates(np.flatnonzero(into)), _need(network, own)
    if not gates or not need:
        return None
    # Entries beyond one for each gate, whose overhead its tail has, take an overhead more.
    further = max(0, times - len(gates)) * min(gate.toll for gate in gates)
    head, tail = _ends(network)
    heads = [int(head[gate.links].min()) for gate in gates]
    tails = [int(tail[gate.links].min()) for gate in gates]
    changes = room_changes(gates, heads, tails)
    rate = sum(float(gate.rate) for gate in gates)
    least = display_time(min(map(add, heads, tails)) / 1e12)
    text = f"at {format_bandwidth(round(rate * 1e12))} in all, plus {least}"
    what = _described(network, need, int(part.max()) + 1)
    verb = "leave GPUs for" if departing else "enter"
    text = f"{what} must {verb} {partition.label} {text}"
    if further:
        lost = display_time(float(further) / rate / 1e12)
        text += f" and {lost} of overhead for {times - len(gates)} transfers more"
    return Bound(kind="partition", value=least_time(changes, need + further), certificate=text)


def _described(network: Network, need: Fraction, parts: int) -> str:
    """Say what enters: for an AllReduce of all parts how often, else how much."""
    amount = sum(network.classes.amount, Fraction(0))
    if need == 2 * (parts - 1) * amount and network.classes.reduce.all():
        return f"2 x {parts - 1} x {format_size(round(amount))}"
    return format_size(round(need))


def _need(network: Network, own: IntArray) -> tuple[Fraction, int]:
    """Bytes that must enter parts, given the part of each node, and in how many transfers."""
    classes, total, times = network.classes, Fraction(0), 0
    origins = [set(own[origin.nodes].tolist()) for origin in classes.origins]
    goals = [set(own[nodes].tolist()) for nodes in classes.goals]
    rows = zip(classes.origin.tolist(), classes.goal.tolist(), strict=True)
    kinds = zip(classes.reduce, classes.amount, classes.blocks.tolist(), strict=True)
    for (o, g), (reduce, amount, blocks) in zip(rows, kinds, strict=True):
        sources, wanted = origins[o], goals[g]
        entries = len(wanted - sources)
        if reduce:
            entries = len(sources) + len(wanted) - 1 - bool(sources & wanted)
        total += amount * entries
        times += blocks * entries
    return total, times


def _ends(network: Network) -> tuple[IntArray, IntArray]:
    """Head and tail of each link: from the first data there is, and to the nearest destination."""
    topology, classes = network.problem.topology, network.classes
    before = np.full(topology.num_nodes, FAR)
    for nodes, ready in classes.origins:
        np.minimum.at(before, nodes, ready)
    starts = np.flatnonzero(before < FAR)
    wanted = np.unique(np.concatenate([classes.goals[goal] for goal in np.unique(classes.goal)]))
    first = (network.approach[starts] + before[starts, None]).min(axis=0)
    after = network.distance[:, wanted].min(axis=1)
    tail = network.crossing + after[topology.link_dst]
    return np.minimum(first[topology.link_src], FAR), np.minimum(tail, FAR)
