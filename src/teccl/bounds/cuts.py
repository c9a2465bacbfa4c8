r"""The cut bound: what must cross from A to B needs time on the links between them.

Let B be a set of nodes and A the rest. A chunk that is copied must cross from A to B at least
once if all its holders lie in A and some destination lies in B; a reduced one if some source lies
in A and some destination in B, because that source's contribution has to get there. Fix for each
such chunk m one destination t in B (and, for a reduction, one source s in A). Whatever delivers m
to t crosses a link e of the cut no earlier than the head

.. math:: h_{m,e} = \min_{s} (r_s + d(s, u_e))

and no later than T minus the tail :math:`q_{m,e} = \alpha_e + d(v_e, t)`, where d is the least time
in the whole graph. For any set J of such chunks therefore

.. math:: \sum_{m \in J} b_m \le \sum_e C_e \, (T - \min_J h_{m,e} - \min_J q_{m,e})^+ ,

where a rate that changes over time is integrated from the head to T minus the tail; and for whole
chunks the number of starts in each link's window is at least the number of chunks. Where transfers
have an overhead, every block beyond one for each gate takes the room of one more overhead. The
least T that satisfies it is a lower bound. J ranges over the chunks whose smallest head and tail
are at least given thresholds, which contains Jackson's bound for one machine, and over those that
are nearest to a slow gate.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.windows import FAR, Estimates, Gate, IntArray, least_time, room_changes
from teccl.units import display_time, format_bandwidth, format_size

MAX_THRESHOLDS = 12


class Cut(NamedTuple):
    """A set B of nodes by mask, and what to call it."""

    inside: npt.NDArray[np.bool_]
    label: str


class _Load(NamedTuple):
    """The classes that must cross, and head and tail of each at each gate."""

    classes: IntArray
    head: IntArray
    tail: IntArray


class Estimate(NamedTuple):
    """A cut with the classes that seem to bind it, before exact evaluation."""

    value: float
    cut: Cut
    gates: list[Gate]
    load: _Load
    chosen: npt.NDArray[np.bool_]


def cut_estimate(network: Network, cut: Cut) -> Estimate | None:
    """Find the set J that binds a cut, in floating point; None when nothing must cross."""
    gates = _gates(network, cut)
    load = _load(network, cut, gates)
    if not len(load.classes):
        return None
    if not gates:
        return Estimate(float(FAR), cut, gates, load, np.ones(len(load.classes), dtype=bool))
    amount = np.array([float(network.classes.amount[i]) for i in load.classes])
    blocks, toll = network.classes.blocks[load.classes], float(_toll(gates))
    count = network.classes.count[load.classes]
    rooms, every = Estimates(gates), np.arange(len(gates))
    best: Estimate | None = None
    for chosen in [*_thresholds(load), _beside_slowest(load, gates, amount)]:
        head, tail = load.head[chosen].min(axis=0), load.tail[chosen].min(axis=0)
        if network.fluid:
            extra = max(0, int(blocks[chosen].sum()) - len(gates)) * toll
            value = rooms.least_time(head, tail, every, amount[chosen].sum() + extra)
        else:
            away = (head + tail).tolist()
            value = float(_least_whole_time(gates, away, int(count[chosen].sum())))
        if best is None or value > best.value:
            best = Estimate(value, cut, gates, load, chosen)
    return best


def cut_bound(network: Network, estimate: Estimate, *, or_more: bool = False) -> Bound:
    """Evaluate a cut bound exactly.

    With `or_more` it holds for every larger number of whole chunks of the same bytes too, if heads
    and tails do: then one chunk of each gate but one is forgiven.
    """
    if not estimate.gates:
        text = f"nothing reaches {estimate.cut.label}"
        return Bound(kind="cut", value=int(FAR), certificate=text)
    load, chosen = estimate.load, estimate.chosen
    head, tail = load.head[chosen].min(axis=0), load.tail[chosen].min(axis=0)
    members = load.classes[chosen]
    if network.fluid:
        total = sum((network.classes.amount[i] for i in members), Fraction(0))
        total += _further(network, estimate) * _toll(estimate.gates)
        changes = room_changes(estimate.gates, head.tolist(), tail.tolist())
        value = least_time(changes, total)
    else:
        away = (head + tail).tolist()
        total = int(network.classes.count[members].sum())
        total -= len(estimate.gates) - 1 if or_more else 0
        value = _least_whole_time(estimate.gates, away, total)
    return Bound(kind="cut", value=value, certificate=cut_sentence(network, estimate))


def _toll(gates: list[Gate]) -> Fraction:
    """Bytes that could pass some gate in the overhead of one transfer more, at least."""
    return min(gate.toll for gate in gates)


def _further(network: Network, estimate: Estimate) -> int:
    """Transfers across a cut beyond one on each gate, whose overhead its tail has."""
    members = estimate.load.classes[estimate.chosen]
    return max(0, int(network.classes.blocks[members].sum()) - len(estimate.gates))


def _gates(network: Network, cut: Cut) -> list[Gate]:
    topology = network.problem.topology
    crossing = ~cut.inside[topology.link_src] & cut.inside[topology.link_dst]
    return network.gates(np.flatnonzero(crossing))


def _load(network: Network, cut: Cut, gates: list[Gate]) -> _Load:
    """Collect the classes that must cross, with head and tail at each gate."""
    classes, width = network.classes, len(gates)
    lowest = _lowest_rates(gates)
    outside = ~cut.inside
    count = classes.origin_sets.count(outside)
    some, every = count > 0, count == classes.origin_sets.size
    wanted = classes.goal_sets.count(cut.inside) > 0
    crosses = np.where(classes.reduce, some[classes.origin], every[classes.origin])
    chosen = np.flatnonzero(crosses & wanted[classes.goal])
    heads = np.zeros((2, len(classes.origins), width), dtype=np.int64)
    tails = np.zeros((len(classes.goals), width), dtype=np.int64)
    used = _members(classes.origin[chosen], len(classes.origins))
    is_single = classes.origin_sets.size[used] == 1
    single = used[is_single]
    if len(single) and width:
        nodes = np.array([classes.origins[o].nodes[0] for o in single])
        ready = np.array([classes.origins[o].ready[0] for o in single])
        heads[:, single] = _gate_values(network, gates, nodes, ready, heads=True)
    for o in used[~is_single]:
        nodes, ready = classes.origins[o]
        head = _gate_values(
            network, gates, nodes[outside[nodes]], ready[outside[nodes]], heads=True
        )
        # Sources of a copy are alternatives; of a reduction each must arrive: take the worst.
        heads[0, o] = head.min(axis=0) if width else 0
        heads[1, o] = head[_hardest(head, lowest)] if width else 0
    goals = _members(classes.goal[chosen], len(classes.goals))
    is_alone = classes.goal_sets.size[goals] == 1
    alone = goals[is_alone]
    if len(alone) and width:
        nodes = np.array([classes.goals[g][0] for g in alone])
        tails[alone] = _gate_values(network, gates, nodes, np.zeros_like(nodes), heads=False)
    for g in goals[~is_alone]:
        nodes = classes.goals[g][cut.inside[classes.goals[g]]]
        tail = _gate_values(network, gates, nodes, np.zeros_like(nodes), heads=False)
        tails[g] = tail[_hardest(tail, lowest)] if width else 0
    kind = classes.reduce[chosen].astype(np.int64)
    return _Load(chosen, heads[kind, classes.origin[chosen]], tails[classes.goal[chosen]])


def _hardest(options: IntArray, lowest: npt.NDArray[np.float64]) -> int:
    """Return which of some nodes is farthest from its nearest gate, of equal ones the slowest's."""
    return int(np.lexsort((-lowest[options.argmin(axis=1)], options.min(axis=1)))[-1])


def _lowest_rates(gates: list[Gate]) -> npt.NDArray[np.float64]:
    """Return the least that each gate ever carries, in bytes per picosecond."""
    return np.array([float(min(rate for _, rate in gate.steps)) for gate in gates])


def _members(indices: IntArray, length: int) -> IntArray:
    """Return which of the first numbers occur, in order."""
    return np.flatnonzero(np.bincount(indices, minlength=length))


def _gate_values(
    network: Network, gates: list[Gate], nodes: IntArray, extra: IntArray, *, heads: bool
) -> IntArray:
    """Rows are nodes, columns gates: head from the node, or tail to it after the crossing."""
    topology = network.problem.topology
    if not gates:
        return np.empty((len(nodes), 0), dtype=np.int64)
    links = np.concatenate([gate.links for gate in gates])
    if heads:
        options = network.approach[nodes[:, None], topology.link_src[links]] + extra[:, None]
    else:
        after = network.distance[topology.link_dst[links], nodes[:, None]]
        options = after + network.crossing[links]
    if len(links) > len(gates):
        sizes = [len(gate.links) for gate in gates]
        options = np.minimum.reduceat(options, np.cumsum([0, *sizes[:-1]]), axis=1)
    return np.minimum(options, FAR)


def _thresholds(load: _Load) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the sets J: chunks whose least head and least tail reach a pair of thresholds."""
    head, tail = load.head.min(axis=1), load.tail.min(axis=1)
    seen = set()
    for h in _spread(np.unique(head)):
        for q in _spread(np.unique(tail)):
            chosen = (head >= h) & (tail >= q)
            key = chosen.tobytes()
            if chosen.any() and key not in seen:
                seen.add(key)
                yield chosen


def _beside_slowest(
    load: _Load, gates: list[Gate], amount: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return what is nearest to the gate that has most to carry of such for its lowest rate.

    All of it waits for that gate or goes a longer way, whatever others do.
    """
    nearest = (load.head + load.tail).argmin(axis=1)
    carried = np.bincount(nearest, amount, minlength=len(gates))
    chosen: npt.NDArray[np.bool_] = nearest == (carried / _lowest_rates(gates)).argmax()
    return chosen


def _spread(values: IntArray) -> IntArray:
    if len(values) <= MAX_THRESHOLDS:
        return values
    return values[np.linspace(0, len(values) - 1, MAX_THRESHOLDS).astype(int)]


def _least_whole_time(gates: list[Gate], away: list[int], total: int) -> int:
    """Least T at which the windows have room to start the total number of whole chunks.

    A tail includes the link's own hold, so n chunks that follow one another on it end n - 1 holds
    after `away` at the earliest; a link takes `slots` chunks each time. Circuits may share a link
    in parts, but n chunks need n holds of its time all the same.
    """

    def room(time: int) -> int:
        return sum(
            gate.slots * ((time - a) // gate.hold + 1 if gate.hold else total)
            for gate, a in zip(gates, away, strict=True)
            if time >= a
        )

    low = min(away)
    high = low + 1
    while room(high) < total:
        high = low + 2 * (high - low)
    while low < high:
        middle = (low + high) // 2
        if room(middle) >= total:
            high = middle
        else:
            low = middle + 1
    return low


def cut_sentence(network: Network, estimate: Estimate) -> str:
    """Say what binds: how much crosses which links, and the latency around it."""
    topology, classes = network.problem.topology, network.classes
    load, chosen, gates = estimate.load, estimate.chosen, estimate.gates
    members = load.classes[chosen]
    rate = format_bandwidth(round(float(sum(gate.rate for gate in gates)) * 1e12))
    if any(len(gate.steps) > 1 for gate in gates):
        rate = f"at most {rate}, less at times"
    what = f"{int(classes.count[members].sum())} chunks"
    if network.fluid:
        what = format_size(round(sum(classes.amount[i] for i in members)))
    links = [int(e) for gate in gates for e in gate.links]
    over = f"link {topology.link_name(links[0])}" if len(links) == 1 else f"{len(links)} links"
    around = int((load.head[chosen].min(axis=0) + load.tail[chosen].min(axis=0)).min())
    unit = f"{around} epochs" if network.on_grid else display_time(around / 1e12)
    text = f"{what} must cross {over} into {estimate.cut.label} at {rate}"
    text += f", plus {unit} of way around it"
    further = _further(network, estimate) if network.fluid else 0
    if not further or not _toll(gates):
        return text
    lost = display_time(float(further * _toll(gates) / sum(gate.rate for gate in gates)) / 1e12)
    return f"{text} and {lost} of overhead for {further} transfers more"
