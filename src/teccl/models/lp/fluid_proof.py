r"""Proof that a horizon is too short for the linear program, in exact arithmetic.

**Theorem.** Give every place p and epoch k a length :math:`y_{p,k} \ge 0`. If all demand can be
met within K epochs, then :math:`\sum_{p,k} T_{p,k}\, y_{p,k} \ge \sum_{s,d} D_{s,d}\, dist_y(s,d)`,
where :math:`dist_y` is the least sum of lengths on a way through time from a holder of s, from
when its data is ready, to d at the horizon; waiting is free at GPUs and impossible at switches.

*Proof.* Split the flow into paths through time. Weigh every chunk on every place by its length:
the sum is at most the left side, because no place carries more than its capacity, and at least the
right side, because no path is shorter than the distance.

The lengths come from a solver's prices, rounded to whole numbers; whatever they are, the theorem
holds, so that no solver's tolerance enters the proof.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.models.lp.fluid_network import FluidNetwork

IntArray = npt.NDArray[np.int64]

# Prices of one chunk become lengths of this order; sums over a path stay far below 2**62.
SCALE = 2**26
FAR = 2**60


def refutes(network: FluidNetwork, prices: npt.NDArray[np.float64]) -> bool:
    """Whether lengths prove that the demand cannot be met within their horizon.

    Parameters
    ----------
    prices
        By place and epoch, as many epochs as the horizon has.
    """
    lengths = np.round(np.clip(prices, 0.0, 1e6) * SCALE).astype(np.int64)
    if any(weight.denominator != 1 for weight in network.exact_weight):
        # Hyper-edges between ports of different rates weigh fractions: make the lengths divide.
        lengths *= int(np.lcm.reduce([w.denominator for w in network.exact_weight]))
    total = capacity_of(network, lengths)
    distance = shortest(network, lengths)
    needed = Fraction(0)
    for (commodity, node), amount in network.exact_demand.items():
        way = int(distance[commodity, node])
        if way >= FAR:
            return True
        needed += amount * way
    return needed > total


def capacity_of(network: FluidNetwork, lengths: IntArray) -> Fraction:
    """Sum of capacity times length over all places and epochs."""
    total = Fraction(0)
    horizon = lengths.shape[1]
    for place, steps in enumerate(network.limits):
        ends = [start for start, _ in steps[1:]] + [horizon]
        for (start, limit), end in zip(steps, ends, strict=True):
            total += limit * int(lengths[place, min(start, horizon) : min(end, horizon)].sum())
    return total


def shortest(network: FluidNetwork, lengths: IntArray) -> IntArray:
    """By commodity and node, the least length of a way through time that ends by the horizon."""
    horizon = lengths.shape[1]
    cost = np.zeros((len(network), horizon), dtype=np.int64)
    for arc, place, weight in zip(
        network.use_arc.tolist(), network.use_place.tolist(), network.exact_weight, strict=True
    ):
        cost[arc] += lengths[place] * weight.numerator // weight.denominator
    count, nodes = network.holds.shape
    reached = np.full((horizon + 1, count, nodes), FAR)
    for s, n in zip(*np.nonzero(network.holds), strict=True):
        if network.ready[s, n] <= horizon:
            reached[network.ready[s, n], s, n] = 0
    waits = ~network.is_switch
    # Arcs that take no epoch lead into switches: as many passes as there may be in a row.
    instant = network.delay == 0
    passes = 1 + int(network.is_switch[network.dst[instant]].any()) * int(network.is_switch.sum())
    stages = [_by_delay(network, np.flatnonzero(instant))] * (passes - 1)
    stages.append(_by_delay(network, np.flatnonzero(~instant)))
    for k in range(horizon):
        for groups in stages:
            for delay, arcs in groups:
                if k + delay <= horizon:
                    _relax(network, arcs, reached[k], reached[k + delay], cost[arcs, k])
        kept = np.minimum(reached[k + 1], reached[k])
        reached[k + 1][:, waits] = kept[:, waits]
    return reached[horizon]


def _by_delay(network: FluidNetwork, arcs: IntArray) -> list[tuple[int, IntArray]]:
    """Arcs that take equally many epochs together."""
    delay = network.delay[arcs]
    return [(value, arcs[delay == value]) for value in np.unique(delay).tolist()]


def _relax(
    network: FluidNetwork, arcs: IntArray, now: IntArray, then: IntArray, cost: IntArray
) -> None:
    """Let everything that is somewhere in an epoch start on some arcs."""
    value = np.minimum(now[:, network.src[arcs]] + cost, FAR)
    np.minimum.at(then.T, network.dst[arcs], value.T)
