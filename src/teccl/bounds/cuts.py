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

and for whole chunks the number of starts in each link's window is at least the number of chunks.
The least T that satisfies it is a lower bound. J ranges over the chunks whose smallest head and
tail are at least given thresholds, which contains Jackson's bound for one machine.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.model import Bound
from teccl.bounds.network import FAR, IntArray, Network
from teccl.units import display_time, format_bandwidth, format_size

MAX_THRESHOLDS = 12


class Cut(NamedTuple):
    """A set B of nodes by mask, and what to call it."""

    inside: npt.NDArray[np.bool_]
    label: str


class _Gate(NamedTuple):
    """Links of a cut that carry data at one joint rate: one link, or those sharing a capacity."""

    links: IntArray
    rate: Fraction
    hold: int
    slots: int


class _Load(NamedTuple):
    """What must cross: per class its amount and count, and per gate its head and tail."""

    amount: list[Fraction]
    count: IntArray
    head: IntArray
    tail: IntArray


def cut_bound(network: Network, cut: Cut) -> Bound | None:
    """Evaluate the cut bound exactly; None when nothing must cross."""
    gates = _gates(network, cut)
    load = _load(network, cut, gates)
    if not load.amount:
        return None
    if not gates:
        return Bound(kind="cut", value=int(FAR), certificate=f"nothing reaches {cut.label}")
    best: tuple[int, npt.NDArray[np.bool_]] | None = None
    for chosen in _thresholds(load):
        value = _least_time(network, gates, load, chosen)
        if best is None or value > best[0]:
            best = (value, chosen)
    assert best is not None
    return Bound(kind="cut", value=best[0], certificate=_sentence(network, cut, gates, load, *best))


def _gates(network: Network, cut: Cut) -> list[_Gate]:
    topology = network.problem.topology
    crossing = np.flatnonzero(~cut.inside[topology.link_src] & cut.inside[topology.link_dst])
    left = set(crossing.tolist())
    gates = []
    for members, rate, hold, slots in network.pools:
        inside = [int(e) for e in members if int(e) in left]
        if len(inside) > 1 and rate < sum(network.rate[e] for e in inside):
            left -= set(inside)
            gates.append(_Gate(np.array(inside), rate, hold, slots))
    for e in sorted(left):
        gate = _Gate(np.array([e]), network.rate[e], int(network.hold[e]), int(network.slots[e]))
        gates.append(gate)
    return gates


def _load(network: Network, cut: Cut, gates: list[_Gate]) -> _Load:
    """Collect the classes that must cross, with head and tail at each gate."""
    amount, count, heads, tails = [], [], [], []
    for group in network.classes:
        from_outside = ~cut.inside[group.sources]
        wanted = group.destinations[cut.inside[group.destinations]]
        crosses = from_outside.any() if group.reduce else from_outside.all()
        if not crosses or not len(wanted):
            continue
        sources, ready = group.sources[from_outside], group.ready[from_outside]
        head = _gate_values(network, gates, sources, ready, heads=True)
        tail = _gate_values(network, gates, wanted, np.zeros_like(wanted), heads=False)
        # Sources of a copy are alternatives; of a reduction each must arrive: take the worst.
        fixed = head[head.min(axis=1).argmax()] if group.reduce else head.min(axis=0)
        heads.append(fixed)
        tails.append(tail[tail.min(axis=1).argmax()])
        amount.append(group.amount)
        count.append(group.count)
    width = len(gates)
    return _Load(
        amount,
        np.array(count, dtype=np.int64),
        np.array(heads, dtype=np.int64).reshape(-1, width),
        np.array(tails, dtype=np.int64).reshape(-1, width),
    )


def _gate_values(
    network: Network, gates: list[_Gate], nodes: IntArray, extra: IntArray, *, heads: bool
) -> IntArray:
    """Rows are nodes, columns gates: head from the node, or tail to it after the crossing."""
    topology, d = network.problem.topology, network.distance
    values = np.empty((len(nodes), len(gates)), dtype=np.int64)
    for column, gate in enumerate(gates):
        if heads:
            options = d[np.ix_(nodes, topology.link_src[gate.links])] + extra[:, None]
        else:
            after = d[np.ix_(topology.link_dst[gate.links], nodes)].T
            options = after + network.step[gate.links][None, :]
        values[:, column] = options.min(axis=1)
    return np.minimum(values, FAR)


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


def _spread(values: IntArray) -> IntArray:
    if len(values) <= MAX_THRESHOLDS:
        return values
    return values[np.linspace(0, len(values) - 1, MAX_THRESHOLDS).astype(int)]


def _least_time(
    network: Network, gates: list[_Gate], load: _Load, chosen: npt.NDArray[np.bool_]
) -> int:
    away = load.head[chosen].min(axis=0) + load.tail[chosen].min(axis=0)
    if network.fluid:
        total = sum((load.amount[i] for i in np.flatnonzero(chosen)), Fraction(0))
        return _least_fluid_time([gate.rate for gate in gates], away.tolist(), total)
    return _least_whole_time(gates, away.tolist(), int(load.count[chosen].sum()))


def _least_fluid_time(rates: list[Fraction], away: list[int], total: Fraction) -> int:
    """Least T with sum of rate * (T - away)^+ at least the total, rounded down."""
    order = sorted(range(len(rates)), key=lambda i: away[i])
    speed, shift = Fraction(0), Fraction(0)
    best: Fraction | None = None
    for position, i in enumerate(order):
        speed += rates[i]
        shift += rates[i] * away[i]
        time = (total + shift) / speed
        following = away[order[position + 1]] if position + 1 < len(order) else None
        if following is None or time <= following:
            best = time
            break
    assert best is not None
    return int(best)


def _least_whole_time(gates: list[_Gate], away: list[int], total: int) -> int:
    """Least T at which the windows have room to start the total number of whole chunks.

    A tail includes the crossing's own step, so a start is possible at `away` at the earliest and
    every hold later; a link takes `slots` chunks each time. Fluid sharing of a link by circuits
    does not break this: n chunks need n holds of its time.
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


def _sentence(
    network: Network,
    cut: Cut,
    gates: list[_Gate],
    load: _Load,
    value: int,
    chosen: npt.NDArray[np.bool_],
) -> str:
    """Say what binds: how much crosses which links, and the latency around it."""
    topology = network.problem.topology
    rate = format_bandwidth(round(float(sum(gate.rate for gate in gates)) * 1e12))
    if network.fluid:
        what = format_size(round(sum(load.amount[i] for i in np.flatnonzero(chosen))))
    else:
        what = f"{int(load.count[chosen].sum())} chunks"
    links = [int(e) for gate in gates for e in gate.links]
    over = f"link {topology.link_name(links[0])}" if len(links) == 1 else f"{len(links)} links"
    around = load.head[chosen].min(axis=0) + load.tail[chosen].min(axis=0)
    unit = f"{around.min()} epochs" if network.on_grid else display_time(int(around.min()) / 1e12)
    return f"{what} must cross {over} into {cut.label} at {rate}, plus {unit} around it"
