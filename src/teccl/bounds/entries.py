r"""Entries: whole chunks that enter a set of nodes late reach each GPU in it later still.

Let B be a set of nodes and v a GPU in it that wants chunks which only GPUs outside of B have. Links
into B take them one after another, so that the k-th can be at a GPU in B no sooner than some
:math:`a_k`. Those that come to v over a link that only GPUs in B feed were at one of these before
that, and links into v take chunks one after another, too. With :math:`c_j` the time that the j-th
of them takes from then on,

.. math:: T \ge a_k + c_{n-k+1} .

Contributions to sums that are wanted outside of B leave it likewise, backwards in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.bounds.candidates import representatives
from teccl.bounds.cuts import Cut
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.windows import FAR, IntArray
from teccl.units import display_time

Mask = npt.NDArray[np.bool_]

# Cuts to look at, the tightest first, and moments of all links together beyond which it takes long.
MOST_CUTS = 16
MOST_MOMENTS = 1_000_000


def entry_bounds(network: Network, cuts: Sequence[Cut]) -> list[Bound]:
    """Return the best bound over cuts and over GPUs behind them, for whole chunks."""
    if network.fluid or network.on_grid or network.has_circuits:
        return []
    sums = [False, True] if network.classes.reduce.any() else [False]
    sides = [_Side.of(network, cut, sums=each) for cut in cuts[:MOST_CUTS] for each in sums]
    nodes = representatives(network)
    found = (_bound(side, node) for side in sides for node in nodes if side.cut.inside[node])
    best = max((each for each in found if each), key=lambda each: each.value, default=None)
    return [] if best is None else [best]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A cut as seen from inside; for sums time and links are turned round.

    Parameters
    ----------
    outer, inner
        Ends of each link: where chunks come from, and where they go to.
    distance
        Least time from node to node.
    """

    network: Network
    cut: Cut
    sums: bool
    outer: IntArray
    inner: IntArray
    distance: IntArray

    @staticmethod
    def of(network: Network, cut: Cut, *, sums: bool) -> "_Side":
        """Take a cut and a direction of time."""
        topology = network.problem.topology
        ends = topology.link_src, topology.link_dst
        outer, inner = ends[::-1] if sums else ends
        distance = network.distance.T if sums else network.distance
        return _Side(
            network=network, cut=cut, sums=sums, outer=outer, inner=inner, distance=distance
        )

    def through_switches(self, starts: Mask, *, backwards: bool = False) -> IntArray:
        """Least time from some GPUs to each node over switches alone, or from each node to them.

        Backwards it is for links that stay inside.
        """
        is_switch, step = self.network.problem.topology.is_switch, self.network.step
        near, far = (self.inner, self.outer) if backwards else (self.outer, self.inner)
        inside = self.cut.inside[near] & self.cut.inside[far]
        used = np.flatnonzero(is_switch[far] & (inside if backwards else True))
        times = np.where(starts, 0, FAR)
        while True:
            sooner = times.copy()
            np.minimum.at(sooner, far[used], np.minimum(times[near[used]] + step[used], FAR))
            if np.array_equal(sooner, times):
                return times
            times = sooner

    def wanted(self, node: int) -> tuple[int, IntArray]:
        """Return how many chunks a GPU inside wants from outside, and when each node has one."""
        classes, inside = self.network.classes, self.cut.inside
        count, since = 0, np.full(len(inside), FAR)
        for number in np.flatnonzero(classes.reduce) if self.sums else range(len(classes)):
            origin, goal = classes.origins[classes.origin[number]], classes.goals
            others = goal[classes.goal[number]]
            if self.sums:
                is_wanted, nodes, ready = node in origin.nodes, others, np.zeros_like(others)
            else:
                is_wanted, (nodes, ready) = node in others, origin
            outside = ~inside[nodes]
            # What is copied must not be inside; of a sum one contribution, or goal, is enough.
            if is_wanted and (outside.any() if classes.reduce[number] else outside.all()):
                count += int(classes.count[number])
                np.minimum.at(since, nodes[outside], ready[outside])
        starts = np.flatnonzero(since < FAR)
        if not count:
            return 0, since
        return count, np.minimum((since[starts, None] + self.distance[starts]).min(axis=0), FAR)

    def entries(self, node: int) -> tuple[int, IntArray]:
        """Return how many chunks a GPU wants, and when the first, second ... can have entered."""
        network, inside = self.network, self.cut.inside
        count, since = self.wanted(node)
        links = np.flatnonzero(~inside[self.outer] & inside[self.inner])
        if not count or not len(links):
            return 0, links
        gpus = inside & ~network.problem.topology.is_switch
        ahead = network.step + self.through_switches(gpus, backwards=True)[self.inner]
        first = [
            (int(since[self.outer[gate.links]].min()) + int(ahead[gate.links].min()), gate.hold)
            for gate in network.gates(links)
        ]
        return count, _moments(first, count)

    def arrivals(self, node: int, count: int) -> IntArray:
        """When the first, second ... chunk can come to a GPU, counted from their entry on."""
        network, inside = self.network, self.cut.inside
        is_gpu = ~network.problem.topology.is_switch
        others = is_gpu & inside
        others[node] = False
        way = self.through_switches(others)
        # From outside what enters is there at once.
        is_direct = self.through_switches(is_gpu & ~inside) < FAR
        step = network.step
        before = np.where(is_direct[self.outer], -step, way[self.outer])
        first = [
            (int(before[gate.links].min()) + int(step[gate.links].min()), gate.hold)
            for gate in network.gates(np.flatnonzero(self.inner == node))
        ]
        return _moments(first, count)


def _moments(first: Sequence[tuple[int, int]], count: int) -> IntArray:
    """Return so many moments, the soonest of all; each link has its first and the time between two.

    None at all where they are too many.
    """
    usable = [(since, hold) for since, hold in first if since < FAR]
    number = -(-count // max(1, len(usable)))
    # No link needs more than all; if each takes an equal part, none is later than that.
    latest = max((since + number * hold for since, hold in usable), default=0)
    many = [min(count, 1 + (latest - s) // h) if h and latest >= s else count for s, h in usable]
    if not usable or sum(many) > MOST_MOMENTS:
        return np.zeros(0, dtype=np.int64)
    columns = zip(usable, many, strict=True)
    every = np.concatenate([s + h * np.arange(n, dtype=np.int64) for (s, h), n in columns])
    return np.sort(every)[:count]


def _bound(side: _Side, node: int) -> Bound | None:
    count, entered = side.entries(node)
    arrived = side.arrivals(node, count) if len(entered) == count > 0 else entered[:0]
    if not count or len(arrived) < count:
        return None
    ends = entered + arrived[::-1]
    k = int(ends.argmax())
    name = side.network.problem.topology.nodes[node].name
    words = ("leave", "come from", "before the end") if side.sums else ("enter", "come to", "")
    text = (
        f"{count - k} of {count} chunks {words[0]} {side.cut.label}"
        f" {display_time(int(entered[k]) / 1e12)} or more {words[2] or 'after the start'}, and"
        f" {words[1]} {name} one after another, at least"
        f" {display_time(int(arrived[count - k - 1]) / 1e12)} {'sooner' if side.sums else 'later'}"
    )
    return Bound(kind="entries", value=int(ends[k]), certificate=text)
