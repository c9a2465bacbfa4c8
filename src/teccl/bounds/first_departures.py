r"""First departures: whole chunks of a sum that leave late meet few others before they arrive.

Let a GPU v want sums in whole chunks, and fix a moment :math:`\theta`. An output that is held for h
by each chunk has begun no more than :math:`\lceil \theta / h \rceil` transfers before it, so of
the chunks to which y contributes some leave y for the first time later. At time t a place has at
most :math:`F(t - \theta)` such contributions to a chunk, with F the growth of `pieces`. A transfer
into v brings what was at the place that it left, and transfers into v are apart, too. So

.. math:: \sum_y \bigl(n_y - D_y(\theta)\bigr)^+ \le \sum_{e \text{ into } v} \sum_{j \ge 0}
   F(T - \theta - a_e - j h_e)

with :math:`a_e` the least time from a place over e to v.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from teccl.bounds.departures import Sums, name_of_wanted, sums_wanted
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.pieces import growth, least_hops, overheads
from teccl.bounds.windows import FAR, IntArray
from teccl.units import display_time

# Moments at which contributions may come in, of all inputs, beyond which it takes too long.
MOST_MOMENTS = 1_000_000
# Moments to look at of one sum, evenly among all.
MOST_STARTS = 64


def first_departure_bounds(network: Network) -> list[Bound]:
    """Evaluate the best bound of GPUs that want sums in whole chunks, where transfers cost."""
    if network.fluid or network.on_grid or network.has_circuits:
        return []
    if not network.classes.reduce.any() or not overheads(network).any():
        return []
    best: list[Bound] = []
    for sums in sums_wanted(network):
        if not sums.chunks_of:
            # Nobody contributes but the GPU itself.
            continue
        known = _growth(network, len(sums.chunks_of))
        for start, left in _starts(network, sums):
            after = _arrival(network, sums, known, left)
            if after is not None and start + after > max((b.value for b in best), default=0):
                best = [_bound(network, sums, start, left, start + after)]
    return best


def _growth(network: Network, count: int) -> IntArray:
    """When a place can have one contribution, two and so on that left their GPUs from 0 on."""
    topology = network.problem.topology
    is_place = np.array([not node.is_switch or node.reduce for node in topology.nodes])
    hop, _ = least_hops(topology.link_dst, topology.link_src, network.step, is_place)
    ports = [
        sorted(network.hold[topology.link_dst == place].tolist())
        for place in np.flatnonzero(is_place)
    ]
    width = max(len(port) for port in ports)
    # Of all places the most inputs and, one by one, the least times between transfers.
    holds = Counter(min(port[j] for port in ports if len(port) > j) for j in range(width))
    return np.array(growth(hop, holds, count), dtype=np.int64)


def _starts(network: Network, sums: Sums) -> Iterator[tuple[int, int]]:
    """Yield moments, and how many contributions leave their GPU for the first time from then on."""
    topology = network.problem.topology
    kinds: Counter[tuple[int, int, tuple[int, ...]]] = Counter()
    for node, count in sums.chunks_of.items():
        gates = network.gates(np.flatnonzero(topology.link_src == node))
        kinds[sums.ready[node], count, tuple(sorted(gate.hold for gate in gates))] += 1
    moments = {
        ready + number * hold
        for ready, count, holds in kinds
        for hold in set(holds)
        for number in range(count)
    }
    every = np.array(sorted(moments))
    for moment in every[:: -(-len(every) // MOST_STARTS)].tolist():
        left = sum(
            times * max(0, count - sum(_begun(moment - ready, hold, count) for hold in holds))
            for (ready, count, holds), times in kinds.items()
        )
        if left:
            yield moment, left


def _begun(time: int, hold: int, most: int) -> int:
    """Transfers of an output that may begin before a time."""
    if time <= 0:
        return 0
    return -(-time // hold) if hold else most


def _arrival(network: Network, sums: Sums, known: IntArray, left: int) -> int | None:
    """Least time after which so many contributions can have come in; None if that is unknown."""
    topology = network.problem.topology
    is_place = np.array([not node.is_switch or node.reduce for node in topology.nodes])
    ways = least_hops(topology.link_dst, topology.link_src, network.step, is_place)[1]
    gates = network.gates(np.flatnonzero(np.isin(topology.link_dst, sums.wanted)))
    kinds = Counter(
        (int((ways[topology.link_src[gate.links]] + network.step[gate.links]).min()), gate.hold)
        for gate in gates
    )
    if not kinds:
        return None
    number = -(-left // sum(kinds.values()))
    # No input needs more than all; if each takes an equal part, none is later than that.
    latest = max(away + number * hold for away, hold in kinds)
    moments, weights = [], []
    for (away, hold), times in kinds.items():
        many = min(left, 1 + (latest - away) // hold if hold else left)
        if many * len(known) > MOST_MOMENTS:
            return None
        each = away + hold * np.arange(many)[:, None] + known[None, :]
        moments.append(each.ravel())
        weights.append(np.full(each.size, times, dtype=np.int64))
    every, weight = np.concatenate(moments), np.concatenate(weights)
    order = np.argsort(every, kind="stable")
    place = int(np.searchsorted(np.cumsum(weight[order]), left))
    return int(every[order[place]]) if every[order[place]] < FAR else None


def _bound(network: Network, sums: Sums, start: int, left: int, value: int) -> Bound:
    text = (
        f"{left} chunks of {len(sums.chunks_of)} contributors cannot leave them before"
        f" {display_time(start / 1e12)}, and come to {name_of_wanted(network, sums)} one by one"
        " or meet before"
    )
    return Bound(kind="departures", value=value, certificate=text)
