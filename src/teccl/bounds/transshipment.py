"""What binds a flow over time from one GPU to many or from many to one, found by narrow cuts.

By a time T no more can have come than a maximum flow over time brings, and where that is less than
is wanted, its narrowest cut parts those who wait in vain from the rest. What these want, as a
race of its own, takes longer than T; the cut by that time may part them otherwise, and so on
(Newton's method). With rounded intervals of time cuts only say which race to judge: the bound is
that of `teccl.bounds.quickest`.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.bounds.candidates import LimitedArcs, residual_reach
from teccl.bounds.cuts import Estimate
from teccl.bounds.lengths import Pairs
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.quickest import Race, has_quickest, race_bound
from teccl.bounds.windows import IntArray, carried

# LimitedArcs of a flow over time, and intervals at most and at least.
MAX_ARCS, INTERVALS, FEWEST = 60_000, 128, 16
# Turns of Newton's method, and ports looked at.
MAX_TURNS, MAX_PORTS = 6, 2
# What capacities are counted in: all data is about so many units.
UNITS = 2.0**26


def transshipment_bounds(network: Network, estimates: list[Estimate], least: int) -> list[Bound]:
    """Return bounds above what is known from the races of the ports that seem to bind most.

    Parameters
    ----------
    estimates
        Cuts, tightest first.
    least
        The best bound that is known.
    """
    if not has_quickest(network) or least <= 0:
        return []
    stars = (_star(network, hub, inward) for hub, inward in _ports(estimates))
    found = (_latest(network, star, least) for star in stars if star is not None)
    return [bound for bound in found if bound is not None]


def _ports(estimates: list[Estimate]) -> list[tuple[int, bool]]:
    """Return the GPUs whose ports alone are the tightest cuts, and whether into them."""
    ports = []
    for estimate in estimates:
        inside = estimate.cut.inside
        for side, inward in ((inside, True), (~inside, False)):
            if side.sum() == 1:
                ports.append((int(np.flatnonzero(side)[0]), inward))
    return ports[:MAX_PORTS]


def _star(network: Network, hub: int, inward: bool) -> Pairs | None:
    """Return what one GPU wants from others, or what others want from it; None for less than two.

    Of a sum every contribution has to come to whoever wants it, of what several want each copy.
    """
    found = list(_inward(network, hub) if inward else _outward(network, hub))
    if len(found) < 2:
        return None
    source, target, amount, ready = zip(*found, strict=True)
    return Pairs(np.array(source), np.array(target), list(amount), np.array(ready))


# Source, target, bytes, and when they are ready.
Move = tuple[int, int, Fraction, int]


def _inward(network: Network, hub: int) -> Iterator[Move]:
    """Yield what a GPU wants from others; of a sum the contribution that comes from farthest."""
    classes = network.classes
    for member in range(len(classes)):
        nodes, ready = classes.origins[classes.origin[member]]
        if hub not in classes.goals[classes.goal[member]]:
            continue
        if classes.reduce[member]:
            away = np.where(nodes == hub, -1, network.distance[nodes, hub] + ready)
            chosen = int(away.argmax())
        elif len(nodes) == 1:
            chosen = 0
        else:
            continue
        if nodes[chosen] != hub:
            yield int(nodes[chosen]), hub, classes.amount[member], int(ready[chosen])


def _outward(network: Network, hub: int) -> Iterator[Move]:
    """Yield what others want from a GPU; of those who want the same the farthest."""
    classes = network.classes
    for member in range(len(classes)):
        nodes, ready = classes.origins[classes.origin[member]]
        goal = classes.goals[classes.goal[member]]
        goal = goal[goal != hub]
        if len(goal) and (classes.reduce[member] or len(nodes) == 1) and hub in nodes:
            target = int(goal[network.distance[hub, goal].argmax()])
            since = int(ready[np.flatnonzero(nodes == hub)[0]])
            yield hub, target, classes.amount[member], since


def _latest(network: Network, star: Pairs, least: int) -> Bound | None:
    """Return the best bound of the races that cuts part off, one after another."""
    best: Bound | None = None
    for _ in range(MAX_TURNS):
        until = least if best is None else best.value
        chosen = _late(network, star, until)
        if not chosen.any():
            return best
        found = race_bound(network, _race(star, chosen), until)
        if found is None or found.value <= until:
            return best
        best = found
    return best


def _race(star: Pairs, chosen: npt.NDArray[np.bool_]) -> Race:
    """Return some of a star's pairs as a race."""
    ready: dict[int, int] = {}
    members = np.flatnonzero(chosen).tolist()
    for node, since in zip(star.source[chosen].tolist(), star.ready[chosen].tolist(), strict=True):
        ready[node] = min(since, ready.get(node, since))
    return Race(
        amount=sum((star.amount[i] for i in members), Fraction(0)),
        ready=ready,
        ends=np.unique(star.target[chosen]).tolist(),
    )


def _late(network: Network, star: Pairs, until: int) -> npt.NDArray[np.bool_]:
    """Return which pairs a narrowest cut of the flow until a time leaves behind."""
    topology = network.problem.topology
    nodes = topology.num_nodes
    count = min(INTERVALS, MAX_ARCS // (topology.num_links + nodes))
    none = np.zeros(len(star.source), dtype=bool)
    if count < FEWEST:
        return none
    grid = until / count
    amount = np.array([float(each) for each in star.amount])
    unit = UNITS / amount.sum()
    rates = np.array([float(carried(steps, 0, until)) for steps in network.steps]) / count
    place, every = np.arange(count), np.arange(nodes)
    lag = np.rint(network.step / grid).astype(np.int64)
    arcs = [
        *_over_time(topology.link_src, topology.link_dst, lag, rates * unit, place),
        *_over_time(every, every, np.ones_like(every), np.full(nodes, UNITS), place),
    ]
    origin, sink = nodes * count, nodes * count + 1
    begin = star.source * count + np.minimum(star.ready // grid, count - 1).astype(np.int64)
    end = star.target * count + count - 1
    arcs += [
        LimitedArcs(np.full(len(begin), origin), begin, amount * unit),
        LimitedArcs(end, np.full(len(end), sink), amount * unit),
    ]
    whole = LimitedArcs(*(np.concatenate(part) for part in zip(*arcs, strict=True)))
    reached = residual_reach(whole, sink + 1, origin, sink)
    return none if reached[sink] else reached[begin] & ~reached[end]


def _over_time(
    tail: IntArray, head: IntArray, lag: IntArray, room: npt.NDArray[np.float64], place: IntArray
) -> Iterator[LimitedArcs]:
    """Yield the arcs of links, or of waiting, from every interval to the one they lead to."""
    count = len(place)
    for number in place.tolist():
        used = np.flatnonzero(number + lag < count)
        yield LimitedArcs(
            tail[used] * count + number, head[used] * count + number + lag[used], room[used]
        )
