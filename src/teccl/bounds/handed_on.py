r"""The bound of data that is handed on inside parts: what comes late serves few there.

Split nodes into disjoint parts, and count pairs of a byte of a copied chunk and a destination in a
part without a holder. The byte enters that part for a last time; from there it goes on inside. What
enters at some time serves only destinations that it then still reaches. With heads h of the links
into parts and the l-th least time \sigma_l from the start on a link to a destination,

.. math:: \sum_e \sum_l C_e \, (T - h_e - \sigma_{e,l})^+ \ge \sum_m b_m \, |V_m| .

Sums are the mirror image: contributors whose part has no destination leave it for a first time, and
what leaves early carries few of them. Where switches neither copy nor add, a passage through them
may be counted at its other end just as well.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from teccl.bounds.allreduce import MOST_CLASSES, member_sets, passes_on_once
from teccl.bounds.model import Bound
from teccl.bounds.network import Network, all_distances
from teccl.bounds.partitions import Mask, Partition, candidate_partitions
from teccl.bounds.windows import FAR, IntArray, least_time, room_changes
from teccl.units import display_time, format_bandwidth, format_size

# Nodes beyond which distances inside many parts take too long.
MAX_NODES = 512


def handed_on_bounds(network: Network, narrow: Sequence[Mask] = ()) -> list[Bound]:
    """Bounds from partitions of the nodes; `narrow` are sets behind narrow cuts."""
    problem, classes = network.problem, network.classes
    is_alike = classes.reduce.all() or not classes.reduce.any()
    is_large = len(classes) > MOST_CLASSES or problem.topology.num_nodes > MAX_NODES
    if not network.fluid or network.has_circuits or not is_alike or is_large:
        return []
    bounds = []
    for members in member_sets(network):
        for partition in candidate_partitions(network, members, narrow):
            # A part of one GPU hands nothing on.
            if np.unique(partition.part, return_counts=True)[1].max() > 1:
                bounds += handed_on_bound(network, partition)
    return bounds


def handed_on_bound(network: Network, partition: Partition) -> list[Bound]:
    """Evaluate the bound of a partition exactly, at each end of passages that it holds at."""
    classes, part = network.classes, partition.part
    sums = bool(classes.reduce.all())
    far = [origin.nodes for origin in classes.origins] if sums else list(classes.goals)
    near = list(classes.goals) if sums else [origin.nodes for origin in classes.origins]
    pair = zip(*((classes.origin, classes.goal)[:: -1 if sums else 1]), strict=True)
    need, counted = Fraction(0), np.zeros(len(part), dtype=bool)
    for (one, other), amount in zip(pair, classes.amount, strict=True):
        nodes = far[other]
        # A copy is in its part if one holder is, a sum's contribution if all that want it are.
        theirs = part[near[one]]
        stays = np.all if sums else np.any
        served = nodes[(part[nodes] >= 0) & ~stays(part[nodes, None] == theirs, axis=1)]
        need += amount * len(served)
        counted[served] = True
    if not need:
        return []
    side = _Side(network, part, counted, sums=sums)
    return [
        Bound(
            kind="handed-on",
            value=least_time(side.changes(levels), need),
            certificate=(
                f"{format_size(round(need))} in all must come {'out of' if sums else 'to'} the "
                f"GPUs of {partition.label} {side.described(levels)}"
            ),
        )
        for levels in side.levels()
    ]


class _Side:
    """Links across the borders of parts: where all data comes from, or goes to in sums.

    Parameters
    ----------
    network, part
        Of which the nodes are parted.
    counted
        Destinations of copies, or contributors to sums, that are counted.
    sums
        Whether time runs backwards: what is said of copies holds with ends exchanged.
    """

    def __init__(self, network: Network, part: IntArray, counted: Mask, *, sums: bool) -> None:
        topology = network.problem.topology
        self.network, self.part, self.sums = network, part, sums
        ends = topology.link_src, topology.link_dst
        self.outer, self.inner = ends[::-1] if sums else ends
        self.served = np.flatnonzero(counted)
        self.ready = np.zeros(topology.num_nodes, dtype=np.int64)
        inside = part[topology.link_src] == part[topology.link_dst]
        within = all_distances(network.problem, network.step, only=inside & (part[ends[0]] >= 0))
        self.within = within.T if sums else within
        if sums:
            self.ready[:] = _ready(network)

    def levels(self) -> Iterator[dict[int, IntArray]]:
        """Yield by link the times beyond it within which one, two, ... are reached.

        At the borders of parts first and, where each passage serves one GPU, at its other end.
        """
        is_border = (self.part[self.inner] >= 0) & (self.part[self.outer] != self.part[self.inner])
        own = {int(e): self._beyond(int(e)) for e in np.flatnonzero(is_border)}
        own = {e: times for e, times in own.items() if len(times)}
        if own:
            yield own
            if self._is_plain():
                yield self._at_places(own)

    def _beyond(self, link: int) -> IntArray:
        """Times from the near end of a border link to all that it reaches inside, least first."""
        node = self.inner[link]
        mates = self.served[self.part[self.served] == self.part[node]]
        times = self.within[node, mates] + self.ready[mates]
        # In sums a link's own time lies on the way to where they are wanted.
        own = 0 if self.sums else int(self.network.crossing[link])
        return np.sort(times[times < FAR]) + own

    def _is_plain(self) -> bool:
        """Whether what a switch takes in it passes on once, and by itself."""
        nodes = self.network.problem.topology.nodes
        if self.sums:
            return not any(node.is_switch and node.reduce for node in nodes)
        return passes_on_once(self.network)

    def _at_places(self, own: dict[int, IntArray]) -> dict[int, IntArray]:
        """Return the same at the links of GPUs outside that switches join to the border."""
        topology, step = self.network.problem.topology, self.network.step
        is_switch = topology.is_switch
        joined = is_switch[self.outer] & is_switch[self.inner]
        through = all_distances(self.network.problem, step, only=joined)
        through = through.T if self.sums else through
        found = {e: times for e, times in own.items() if not is_switch[self.outer[e]]}
        passing = [e for e in own if is_switch[self.outer[e]]]
        for link in np.flatnonzero(~is_switch[self.outer] & is_switch[self.inner]).tolist():
            ways = [
                # The first link of a passage in time is paid for, the last lies in the other end.
                own[e] + through[self.inner[link], self.outer[e]] + step[e if self.sums else link]
                for e in passing
                if through[self.inner[link], self.outer[e]] < FAR
            ]
            if ways:
                least = np.full((len(ways), max(map(len, ways))), FAR)
                for row, times in zip(least, ways, strict=True):
                    row[: len(times)] = times
                known = found.get(link)
                times = least.min(axis=0)
                found[link] = times if known is None else _lesser(times, known)
        return found

    def changes(self, levels: dict[int, IntArray]) -> Iterator[tuple[Fraction, Fraction]]:
        """Yield how the room of all windows grows."""
        ends = _goal_times(self.network) if self.sums else _start_times(self.network)
        for gate in self.network.gates(np.array(sorted(levels))):
            links = gate.links.tolist()
            count = max(len(levels[e]) for e in links)
            other = min(int(ends[e]) for e in links)
            for level in range(count):
                times = min(int(levels[e][level]) for e in links if level < len(levels[e]))
                window = (times, other) if self.sums else (other, times)
                yield from room_changes([gate], [window[0]], [window[1]])

    def described(self, levels: dict[int, IntArray]) -> str:
        """Say at what rate, and how the numbers of those that are served grow with time."""
        gates = self.network.gates(np.array(sorted(levels)))
        rate = format_bandwidth(round(sum(float(gate.rate) for gate in gates) * 1e12))
        longest = max(levels.values(), key=len)
        steps = ", ".join(display_time(time / 1e12) for time in longest[:4].tolist())
        word = "carry one, two, ... of them after" if self.sums else "serve one, two, ... within"
        return f"over {len(levels)} links at {rate}, whose bytes {word} {steps}"


def _lesser(one: IntArray, other: IntArray) -> IntArray:
    """The lesser of two rows of times, of which the shorter has none for the rest."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    least = longer.copy()
    least[: len(shorter)] = np.minimum(longer[: len(shorter)], shorter)
    return least


def _ready(network: Network) -> IntArray:
    """When each node's own data is there at the earliest."""
    before = np.full(network.problem.topology.num_nodes, FAR)
    for nodes, ready in network.classes.origins:
        np.minimum.at(before, nodes, ready)
    return before


def _start_times(network: Network) -> IntArray:
    """Least time at which some data may start to cross each link."""
    before = _ready(network)
    starts = np.flatnonzero(before < FAR)
    first = (network.approach[starts] + before[starts, None]).min(axis=0)
    return np.minimum(first[network.problem.topology.link_src], FAR)


def _goal_times(network: Network) -> IntArray:
    """Least time from the start on each link until something is where it is wanted."""
    goals = [network.classes.goals[goal] for goal in np.unique(network.classes.goal)]
    after = network.distance[:, np.unique(np.concatenate(goals))].min(axis=1)
    return np.minimum(network.crossing + after[network.problem.topology.link_dst], FAR)
