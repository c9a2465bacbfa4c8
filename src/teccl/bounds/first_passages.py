r"""The bound of first passages: every contribution takes room of its own on its way out of a part.

Each contributor u in a part sends a contribution of its own for each byte of a sum that is wanted
outside. Before it is added to another's inside the part, or else it crosses the border by itself.
With m the least time in which it gets out by way of another GPU of the part, whatever starts later
than T - m goes straight, so that the early ones fill links of GPUs and the late ones the border:

.. math:: \sum_f C_f \, (T - r_u - m_u)^+ + \sum_e C_e \min(\mu_e - t_e, T - h_e - t_e)^+ \ge need

where border links have heads h, tails t and late crossings begin within \mu before T. Copies are
the mirror image where switches pass on what they take in once: last passages into destinations.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np

from teccl.bounds.allreduce import MOST_CLASSES, member_sets, passes_on_once
from teccl.bounds.handed_on import MAX_NODES
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.partitions import Mask, candidate_partitions
from teccl.bounds.windows import FAR, Change, IntArray, least_time
from teccl.units import display_time, format_bandwidth, format_size


def first_passage_bounds(network: Network, narrow: Sequence[Mask] = ()) -> list[Bound]:
    """Bounds from the parts of partitions; `narrow` are sets behind narrow cuts."""
    is_large = len(network.classes) > MOST_CLASSES
    is_large |= network.problem.topology.num_nodes > MAX_NODES
    if is_large or not is_served(network):
        return []
    parts: dict[bytes, tuple[Mask, str]] = {}
    for members in member_sets(network):
        for partition in candidate_partitions(network, members, narrow):
            for number in range(partition.part.max() + 1):
                inside = partition.part == number
                if inside[network.problem.topology.gpus].sum() > 1:
                    parts.setdefault(inside.tobytes(), (inside, partition.label))
    found = [first_passage_bound(network, *part) for part in parts.values()]
    # Parts are often alike.
    best = max((bound for bound in found if bound), key=lambda b: b.value, default=None)
    return [] if best is None else [best]


def is_served(network: Network) -> bool:
    """Whether chunks are all copies or all sums, and each passage through switches is one's own."""
    topology, reduce = network.problem.topology, network.classes.reduce
    if not network.fluid or network.has_circuits or topology.has_profiles:
        return False
    if reduce.all():
        return True
    is_once = passes_on_once(network) or topology.num_switches == 0
    return is_once and not reduce.any()


def first_passage_bound(network: Network, inside: Mask, label: str) -> Bound | None:
    """Evaluate the bound of a part exactly; None where nothing has to cross its border."""
    sums = bool(network.classes.reduce.all())
    nodes = network.problem.topology.nodes
    if sums and any(nodes[v].is_switch and nodes[v].reduce for v in np.flatnonzero(inside)):
        return None
    side = (_Sums if sums else _Copies)(network, inside)
    if not side.need:
        return None
    need = sum(side.need.values(), Fraction(0))
    rate = sum(float(gate.rate) for gate in network.gates(side.border)) * 1e12
    across = f"the border of one of {label} at {format_bandwidth(round(rate))}"
    detour, text = min(side.detour.values()), f"{format_size(round(need))} must cross {across}"
    if detour < FAR:
        text += f" or go by another GPU inside, which takes {display_time(detour / 1e12)}"
    return Bound(kind="first-passages", value=least_time(side.changes(), need), certificate=text)


class _Part:
    """A part of the nodes, whose border some data has to cross.

    Parameters
    ----------
    network, inside
        The nodes, and which of them are in the part.

    Attributes
    ----------
    need
        Bytes of each contributor, or for each destination, in the part.
    border
        Links across the border that this data may take.
    detour
        For each link of one of these GPUs, the least time beyond its start, or before it, of all
        ways by another GPU of the part.
    """

    sums: ClassVar[bool]
    need: dict[int, Fraction]
    border: IntArray
    detour: dict[int, int]

    def __init__(self, network: Network, inside: Mask) -> None:
        self.network, self.inside = network, inside
        topology = network.problem.topology
        self.src, self.dst = topology.link_src, topology.link_dst
        self.relays = topology.gpus[inside[topology.gpus]]

    def port_window(self, link: int) -> tuple[int, int]:
        """Head and tail of what takes another GPU's way over a link of one of the GPUs."""
        raise NotImplementedError

    def border_window(self, link: int) -> tuple[int, int, int]:
        """Head and tail of what goes straight across, and from or until when it has to.

        Sums cross within so long before T, copies until a moment.
        """
        raise NotImplementedError

    def changes(self) -> Iterator[Change]:
        """Yield how the room of all windows grows; links that share a capacity have one window."""
        for gate in self.network.gates(np.array(sorted(self.detour))):
            windows = [self.port_window(e) for e in gate.links.tolist()]
            head, tail = (min(column) for column in zip(*windows, strict=True))
            yield Fraction(head + tail), gate.rate
        for gate in self.network.gates(self.border):
            crossing = [self.border_window(e) for e in gate.links.tolist()]
            head, tail = min(row[0] for row in crossing), min(row[1] for row in crossing)
            straight = max(row[2] for row in crossing)
            length = straight - (tail if self.sums else head)
            if length > 0 and head + tail < FAR:
                yield Fraction(head + tail), gate.rate
                yield Fraction(head + tail + length), -gate.rate


class _Sums(_Part):
    """Contributions on their way out, each from its own GPU."""

    sums = True

    def __init__(self, network: Network, inside: Mask) -> None:
        super().__init__(network, inside)
        classes, distance = network.classes, network.distance
        self.need, self.ready = {}, dict[int, int]()
        outside = np.zeros(len(inside), dtype=bool)
        for origin, goal, amount in zip(classes.origin, classes.goal, classes.amount, strict=True):
            wanted = classes.goals[goal][~inside[classes.goals[goal]]]
            if not len(wanted):
                continue
            nodes, ready = classes.origins[origin]
            for node, when in zip(nodes.tolist(), ready.tolist(), strict=True):
                if inside[node]:
                    self.need[node] = self.need.get(node, Fraction(0)) + amount
                    self.ready[node] = min(self.ready.get(node, when), when)
                    outside[wanted] = True
        if not self.need:
            return
        self.beyond = distance[:, outside].min(axis=1)
        self.border = np.flatnonzero(inside[self.src] & ~inside[self.dst])
        self.least = {}
        for node in self.need:
            others = self.relays[self.relays != node]
            ways = distance[node, others] + self.beyond[others]
            self.least[node] = int(min(ways.min(initial=FAR), FAR))
        self.detour = {
            link: self.least[node]
            for node in self.need
            for link in np.flatnonzero(self.src == node).tolist()
        }

    def port_window(self, link: int) -> tuple[int, int]:
        return self.ready[int(self.src[link])], self.detour[link]

    def border_window(self, link: int) -> tuple[int, int, int]:
        near = int(self.src[link])
        tail = int(self.network.step[link] + self.beyond[self.dst[link]])
        is_gpu = not self.network.problem.topology.is_switch[near]
        # What leaves through switches comes from any, what leaves a GPU goes straight from there.
        users = [u for u in self.need if u == near or not is_gpu]
        way = {u: int(self.network.distance[u, near]) for u in users}
        users = [u for u in users if way[u] < FAR]
        head = min((self.ready[u] + way[u] for u in users), default=int(FAR))
        latest = max((self.least[u] - way[u] for u in users), default=0)
        return head, tail, latest


class _Copies(_Part):
    """Copies on their way in, each to its own GPU, over links that lead to it at last."""

    sums = False

    def __init__(self, network: Network, inside: Mask) -> None:
        super().__init__(network, inside)
        classes, distance = network.classes, network.distance
        self.need = {}
        ready = np.full(len(inside), FAR)
        for origin, goal, amount in zip(classes.origin, classes.goal, classes.amount, strict=True):
            nodes, times = classes.origins[origin]
            if inside[nodes].any():
                continue
            for node in classes.goals[goal][inside[classes.goals[goal]]].tolist():
                self.need[node] = self.need.get(node, Fraction(0)) + amount
                ready[nodes] = np.minimum(ready[nodes], times)
        if not self.need:
            return
        self.before = np.minimum((ready[:, None] + distance).min(axis=0), FAR)
        self.border = np.flatnonzero(inside[self.dst] & ~inside[self.src])
        self.detour = {}
        for node in self.need:
            others = self.relays[self.relays != node]
            for link in np.flatnonzero(self.dst == node).tolist():
                ways = self.before[others] + distance[others, self.src[link]]
                self.detour[link] = int(min(ways.min(initial=FAR), FAR))

    def port_window(self, link: int) -> tuple[int, int]:
        return self.detour[link], int(self.network.step[link])

    def border_window(self, link: int) -> tuple[int, int, int]:
        near, step, distance = int(self.dst[link]), self.network.step, self.network.distance
        head = int(self.before[self.src[link]])
        if not self.network.problem.topology.is_switch[near]:
            # It leads to this GPU at once.
            return head, int(step[link]), self.detour.get(link, 0)
        reached = [u for u in self.need if distance[near, u] < FAR]
        tail = int(step[link]) + min((int(distance[near, u]) for u in reached), default=int(FAR))
        latest = max(
            (
                when - int(distance[near, self.src[last]]) - int(step[link])
                for last, when in self.detour.items()
                if distance[near, self.src[last]] < FAR
            ),
            default=0,
        )
        return head, tail, latest
