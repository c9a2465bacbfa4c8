r"""How fast sums grow where transfers have an overhead: the size of pieces against their number.

Data is cut into pieces that move whole. A small piece pays much overhead for its bytes, a large one
takes long on every hop. Let a piece have b bytes. A place (a GPU, or a switch that adds) takes in
one transfer of it after the other on each input, at least h = o + b / C apart, and each of them
left another place at least D before it came. So what is at any place of the piece by time t is of
at most

.. math:: F(t) = 1 + \sum_{\text{inputs}} \; \sum_{j \ge 0,\, j h \le t - D} F(t - D - j h)

contributors. Backwards in time the same counts whom a piece at a place can still serve. A port that
carries pieces of b bytes moves at most 1 / (1 / C + o / b) bytes per time. So at any moment it
moves no more than the largest, over all sizes, of this rate times what such a piece can carry then.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from teccl.bounds.network import Network
from teccl.bounds.windows import FAR, Gate, IntArray
from teccl.units import PICOSECONDS

Mask = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

# Sizes that are told apart: so many to each halving of the largest, and so many halvings. Between
# two of them the rate of one counts with the growth of the other, which loses at most 6 %.
SIZES_PER_HALVING = 12
HALVINGS = 10
# Parts of the largest in which sizes are counted.
WHOLE = 2**20
# Sizes times contributors beyond which growth takes too long to follow.
MOST_GROWTH = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Ranges of sizes, and how fast contributions can come together in each.

    Parameters
    ----------
    largest
        Bytes of the largest piece.
    most
        Upper end of each range, in parts of the largest; its lower end is the one before, or 0.
    known
        For each range, when one contribution, two and so on can be at a place at the soonest.
    lead
        How long the largest piece is on links between a place and each node, at least.
    overhead
        Of each link.
    """

    largest: Fraction
    most: IntArray
    known: IntArray
    lead: IntArray
    overhead: IntArray

    def moves(
        self, gate: Gate, times: IntArray, lead: int, wait: int
    ) -> tuple[IntArray, FloatArray]:
        """Moments from which on a gate may move more, and bytes times contributions it then moves.

        Parameters
        ----------
        times
            When pieces of one, two and more contributions may enter the gate, whatever their size.
        lead, wait
            Least latency between a place and the gate, and how long the largest piece is on links
            in between.
        """
        below = np.append(0, self.most[:-1])
        soonest = np.maximum(times, lead + self.known[:, : len(times)])
        moments = (soonest + (below * wait // WHOLE)[:, None]).ravel()
        bytes_each = self.most * (float(self.largest) / WHOLE)
        overhead = float(self.overhead[gate.links].min())
        # Rounded up, as what a gate moves must be.
        rate = (1 + 1e-12) / (1 / float(gate.rate) + overhead / bytes_each)
        value = (rate[:, None] * np.arange(1, len(times) + 1)).ravel()
        order = np.argsort(moments, kind="stable")
        best = np.maximum.accumulate(value[order])
        rises = np.flatnonzero(np.diff(best, prepend=0.0) > 0)
        return moments[order][rises], best[rises]


def pieces_of(
    network: Network, near: IntArray, far: IntArray, is_place: Mask, count: int
) -> Pieces | None:
    """Follow the growth of sums over links that lead from a far to a near end.

    Parameters
    ----------
    near, far
        Ends of each link; turned round for what goes out.
    is_place
        Nodes that add up, or that pass one piece on to several.
    count
        Contributions to follow.

    Returns
    -------
    Pieces
        None where no transfer has an overhead, switches make circuits, or there is too much to do.
    """
    overhead, most = overheads(network), sizes_of()
    if not overhead.any() or network.has_circuits or count * len(most) > MOST_GROWTH:
        return None
    largest = max(network.classes.amount)
    takes = bytes_take(network, largest)
    hop, _ = least_hops(near, far, network.step, is_place)
    on_links, lead = least_hops(near, far, takes, is_place)
    costs = list(zip(overhead.tolist(), takes.tolist(), strict=True))
    ports = {
        tuple(sorted(costs[e] for e in np.flatnonzero(near == place)))
        for place in np.flatnonzero(is_place)
    }
    known = [
        growth(hop + part * on_links // WHOLE, _holds(ports, part), count)
        for part in (0, *most[:-1].tolist())
    ]
    return Pieces(largest=largest, most=most, known=np.array(known), lead=lead, overhead=overhead)


def overheads(network: Network) -> IntArray:
    """Picoseconds of each link's overhead, rounded down."""
    topology = network.problem.topology
    return np.array(topology.each_link(lambda e: int(e.overhead * PICOSECONDS)), dtype=np.int64)


def bytes_take(network: Network, amount: Fraction) -> IntArray:
    """Picoseconds that some bytes take of each link, rounded down."""
    return np.array([int(amount / rate) for rate in network.rate], dtype=np.int64)


def sizes_of() -> IntArray:
    """Upper ends of the ranges of sizes, the largest last."""
    steps = np.arange(SIZES_PER_HALVING * HALVINGS, -1, -1) / SIZES_PER_HALVING
    return np.round(WHOLE * 2.0**-steps).astype(np.int64)


def least_hops(
    near: IntArray, far: IntArray, weight: IntArray, is_place: Mask
) -> tuple[int, IntArray]:
    """Least weight of a hop from place to place, and from a place to each node over switches."""
    ways = np.where(is_place, 0, FAR)
    inner = np.flatnonzero(~is_place[near])
    for _ in range(len(ways)):
        longer = ways.copy()
        np.minimum.at(longer, near[inner], np.minimum(ways[far[inner]] + weight[inner], FAR))
        if np.array_equal(longer, ways):
            break
        ways = longer
    ends = is_place[near]
    return int(min((ways[far[ends]] + weight[ends]).min(initial=FAR), FAR)), ways


def _holds(ports: set[tuple[tuple[int, int], ...]], part: int) -> Counter[int]:
    """How far transfers on the links of a place are apart: of all places the least, one by one."""
    holds = [sorted(o + part * take // WHOLE for o, take in port) for port in ports]
    width = max(len(each) for each in holds)
    return Counter(min(each[j] for each in holds if len(each) > j) for j in range(width))


def growth(hop: int, holds: Counter[int], count: int) -> list[int]:
    """When one contribution, two and so on can be at one place.

    Examples
    --------
    >>> growth(3, Counter([2]), 6)
    [0, 3, 5, 6, 7, 8]
    """
    if count <= 1:
        return [0] * count
    times, events = [0], list[tuple[int, int, int]]()
    fresh, now = 1, 0
    while True:
        for hold, copies in holds.items():
            heappush(events, (now + hop, hold, fresh * copies))
        if not events:
            return times + [int(FAR)] * (count - len(times))
        now, hold, fresh = heappop(events)
        if hold == 0:
            fresh = count
        times += [now] * min(fresh, count - len(times))
        if len(times) == count:
            return times
        heappush(events, (now + hold, hold, fresh))
