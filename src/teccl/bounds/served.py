r"""Served: what crosses a cut early carries few contributions, what crosses late serves few.

Where transfers have an overhead, count pairs: of a byte, a contributor in A and a destination in B.
A transfer over gate e that carries k contributors begins no earlier than k of them can have met at
a place before it, and one that serves l destinations must be over while l of them can be reached.
So for all k and l the bytes that do both are at most what `rooms` can move in the time between:

.. math:: \sum_e \sum_{k,l} B_e(T - \eta_{e,k} - \sigma_{e,l}) \ge \sum_m b_m \, |Y_m| \, |Z_m|

with :math:`Y_m` and :math:`Z_m` the contributors and destinations of chunk m, and one contributor
if it is copied. A copy that serves several beyond one cut left the GPUs outside of it early, too:
with a second cut right behind these GPUs,

.. math:: \sum_{e \text{ of the first}} B_e(T - h_e - q_e) + (l - 1)
   \sum_{f \text{ of the second}} B_f(T - h_f - \sigma_{f,2}) \ge l \sum_m b_m .
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teccl.bounds.cuts import Cut, Estimate, cut_estimate, cut_sentence
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.rooms import Room, Share, least_end
from teccl.bounds.sized_cuts import Sizes
from teccl.bounds.windows import FAR, Gate, IntArray

# Cuts to look at, and pairs of levels at all of their gates.
MOST_CUTS = 16
MOST_LEVELS = 20_000


class Levels(NamedTuple):
    """Times at which one, two and more can take part, and how much later the largest piece can."""

    times: IntArray
    waits: IntArray


class _Pairs(NamedTuple):
    """Pairs that must cross: of which classes, between which nodes, and how many bytes of them."""

    estimate: Estimate
    members: IntArray
    contributors: IntArray
    destinations: IntArray
    need: Fraction


def served_bounds(network: Network, estimates: list[Estimate]) -> list[Bound]:
    """Evaluate the best bound of the cuts that floating point finds tightest."""
    sizes = Sizes.of(network)
    known = int(estimates[0].value) if estimates else 0
    if sizes is None or known >= FAR:
        return []
    best: list[Bound] = []
    for estimate in [each for each in estimates if each.gates][:MOST_CUTS]:
        options = [
            (crowd, [_share(sizes, estimate.gates, *_around(network, sizes, crowd))])
            for crowd in _crowds(network, estimate)
        ]
        options += _behind(network, sizes, estimate)
        for crowd, shares in options:
            found = least_end(shares, crowd.need, known)
            if found is not None and found > known:
                known, best = found, [_bound(network, crowd, found)]
    return best


def _bound(network: Network, crowd: _Pairs, value: int) -> Bound:
    text = cut_sentence(network, crowd.estimate)
    if len(crowd.contributors):
        text += f", early for few of {len(crowd.contributors)} contributions"
    if len(crowd.destinations):
        text += f", late for few of {len(crowd.destinations)} destinations"
    return Bound(kind="served", value=value, certificate=f"{text}, whatever the size of pieces")


def _crowds(network: Network, estimate: Estimate) -> Iterator[_Pairs]:
    """Yield what to count at a cut: bytes, contributors, destinations, or both of these."""
    classes, inside = network.classes, estimate.cut.inside
    chosen, none = estimate.load.classes[estimate.chosen], np.empty(0, dtype=np.int64)
    for reduce in (False, True):
        members = chosen[classes.reduce[chosen] == reduce]
        if not len(members):
            continue
        outer = {o: _kept(classes.origins[o].nodes, ~inside) for o in classes.origin[members]}
        inner = {g: _kept(classes.goals[g], inside) for g in classes.goal[members]}
        amounts = [classes.amount[m] for m in members]
        many = [len(outer[classes.origin[m]]) for m in members]
        served = [len(inner[classes.goal[m]]) for m in members]
        contributors, destinations = _union(outer.values()), _union(inner.values())
        width = len(contributors) * len(destinations) * len(estimate.gates)
        sides = [(False, False), (reduce and max(many) > 1, False), (False, max(served) > 1)]
        sides.append((sides[1][0] and width <= MOST_LEVELS, sides[2][1]))
        for early, late in dict.fromkeys(sides):
            rows = zip(many, served, strict=True)
            counts = [(n if early else 1) * (z if late else 1) for n, z in rows]
            need = sum((a * n for a, n in zip(amounts, counts, strict=True)), Fraction(0))
            chosen_ends = contributors if early else none, destinations if late else none
            yield _Pairs(estimate, members, *chosen_ends, need)


def _kept(nodes: IntArray, mask: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> IntArray:
    return nodes[mask[nodes]]


def _union(sets: Iterable[IntArray]) -> IntArray:
    return np.unique(np.concatenate(list(sets)))


def _share(sizes: Sizes, gates: list[Gate], heads: list[Levels], tails: list[Levels]) -> Share:
    """Return what gates can move, level by level."""
    rooms: Counter[Room] = Counter()
    for gate, head, tail in zip(gates, heads, tails, strict=True):
        away = (head.times[:, None] + tail.times).ravel()
        wait = np.maximum(head.waits[:, None], tail.waits).ravel()
        for lost, slow in zip(away.tolist(), wait.tolist(), strict=True):
            if lost < FAR:
                rooms[room_of(sizes, gate, lost, slow)] += 1
    return Share([room._replace(times=count) for room, count in rooms.items()])


def room_of(sizes: Sizes, gate: Gate, away: int, wait: int) -> Room:
    """Return the room of a gate; the largest piece takes `wait` of its time elsewhere."""
    overhead = int(sizes.overhead[gate.links].min())
    return Room(away, overhead, 1 / gate.rate, wait / sizes.largest, sizes.largest)


def _around(network: Network, sizes: Sizes, crowd: _Pairs) -> tuple[list[Levels], list[Levels]]:
    return _heads(network, sizes, crowd), _tails(network, sizes, crowd)


def _rows(crowd: _Pairs) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.isin(crowd.estimate.load.classes, crowd.members)


def _heads(network: Network, sizes: Sizes, crowd: _Pairs) -> list[Levels]:
    """When a piece may enter each gate with one contribution, two and so on."""
    topology, gates = network.problem.topology, crowd.estimate.gates
    if not len(crowd.contributors):
        classes = network.classes
        head = crowd.estimate.load.head[_rows(crowd)].min(axis=0)
        sources = _union(classes.origins[o].nodes for o in classes.origin[crowd.members])
        before = sizes.distance[sources].min(axis=0)[topology.link_src]
        return [
            Levels(np.array([h]), before[gate.links].min(keepdims=True))
            for h, gate in zip(head.tolist(), gates, strict=True)
        ]
    places = np.flatnonzero([not node.is_switch or node.reduce for node in topology.nodes])
    met = _met(network, sizes, crowd, places)
    at = {
        node: Levels(
            (met.times + network.distance[places, node][:, None]).min(axis=0),
            (met.waits + sizes.distance[places, node][:, None]).min(axis=0),
        )
        for node in _ends(gates, topology.link_src)
    }
    return [_soonest([at[int(node)] for node in topology.link_src[gate.links]]) for gate in gates]


def _met(network: Network, sizes: Sizes, crowd: _Pairs, places: IntArray) -> Levels:
    """When contributions can have met, by place and their number."""
    classes, nodes = network.classes, crowd.contributors
    since = np.full(network.problem.topology.num_nodes, FAR)
    for o in np.unique(classes.origin[crowd.members]):
        np.minimum.at(since, classes.origins[o].nodes, classes.origins[o].ready)
    ways = np.ix_(nodes, places)
    return in_order((network.distance[ways] + since[nodes][:, None]).T, sizes.distance[ways].T)


def in_order(times: IntArray, waits: IntArray) -> Levels:
    """Sort each row; the k-th comes no sooner than its time and the least wait of the later ones.

    Of any k one is as late as the k-th or later, and waits as long as some that are as late.
    """
    order = np.argsort(times, axis=-1, kind="stable")
    ordered = np.take_along_axis(times, order, axis=-1)
    least = np.minimum.accumulate(np.take_along_axis(waits, order, axis=-1)[..., ::-1], axis=-1)
    least = least[..., ::-1]
    # Of equal times the first has the least wait of all of them.
    for k in range(1, ordered.shape[-1]):
        same = ordered[..., k] == ordered[..., k - 1]
        least[..., k] = np.where(same, least[..., k - 1], least[..., k])
    return Levels(np.minimum(ordered, FAR), np.minimum(least, FAR))


def _soonest(levels: Sequence[Levels]) -> Levels:
    times = np.min([level.times for level in levels], axis=0)
    return Levels(np.minimum(times, FAR), np.min([level.waits for level in levels], axis=0))


def _ends(gates: list[Gate], nodes: IntArray) -> list[int]:
    found: list[int] = np.unique(nodes[np.concatenate([gate.links for gate in gates])]).tolist()
    return found


def _tails(network: Network, sizes: Sizes, crowd: _Pairs) -> list[Levels]:
    """How long before the end a piece must be off each gate to serve one destination, two, ..."""
    topology, gates = network.problem.topology, crowd.estimate.gates
    own = [int(sizes.overhead[gate.links].max()) for gate in gates]
    if not len(crowd.destinations):
        classes, inside = network.classes, crowd.estimate.cut.inside
        tail = crowd.estimate.load.tail[_rows(crowd)].min(axis=0)
        goals = _kept(_union(classes.goals[g] for g in classes.goal[crowd.members]), inside)
        behind = sizes.distance[:, goals].min(axis=1)[topology.link_dst]
        return [
            Levels(np.array([q - o]), behind[gate.links].min(keepdims=True))
            for q, o, gate in zip(tail.tolist(), own, gates, strict=True)
        ]
    ways = {
        node: np.ix_(np.array([node]), crowd.destinations)
        for node in _ends(gates, topology.link_dst)
    }
    at = {n: in_order(network.distance[way][0], sizes.distance[way][0]) for n, way in ways.items()}
    tails = []
    for gate, overhead in zip(gates, own, strict=True):
        ends = zip(topology.link_dst[gate.links], network.crossing[gate.links], strict=True)
        rows = [(at[int(node)], int(step)) for node, step in ends]
        least = _soonest([level._replace(times=level.times + step) for level, step in rows])
        tails.append(least._replace(times=least.times - overhead))
    return tails


def _behind(
    network: Network, sizes: Sizes, estimate: Estimate
) -> Iterator[tuple[_Pairs, list[Share]]]:
    """Yield copies that serve several behind a cut, counted where they leave GPUs outside of it."""
    topology, classes = network.problem.topology, network.classes
    inside = estimate.cut.inside
    second = cut_estimate(network, Cut(inside | topology.is_switch, estimate.cut.label))
    if second is None or not second.gates or np.array_equal(inside, second.cut.inside):
        return
    members = estimate.load.classes[estimate.chosen]
    members = members[~classes.reduce[members] & np.isin(members, second.load.classes)]
    inner = {g: _kept(classes.goals[g], inside) for g in classes.goal[members]}
    several = min((len(nodes) for nodes in inner.values()), default=0)
    if several < 2:
        return
    goals, none = _union(inner.values()), np.empty(0, dtype=np.int64)
    need = several * sum((classes.amount[m] for m in members), Fraction(0))
    crowd = _Pairs(estimate, members, none, goals, need)
    heads, tails = _around(network, sizes, crowd)
    share = _share(sizes, estimate.gates, heads, [_first(tail) for tail in tails])
    starts = _heads(network, sizes, crowd._replace(estimate=second))
    ends = [*_early(network, sizes, crowd, second, tails)]
    again = _share(sizes, second.gates, starts, ends)
    yield crowd, [share, again._replace(times=several - 1)]


def _first(levels: Levels) -> Levels:
    return Levels(levels.times[:1], levels.waits[:1])


def _early(
    network: Network, sizes: Sizes, crowd: _Pairs, second: Estimate, tails: list[Levels]
) -> Iterator[Levels]:
    """Yield for each gate of the second cut what lies between it and two destinations."""
    topology, estimate, goals = network.problem.topology, crowd.estimate, crowd.destinations
    inside = estimate.cut.inside
    times, waits = np.full((2, topology.num_nodes), FAR)
    for gate, tail in zip(estimate.gates, tails, strict=True):
        paid = int(sizes.overhead[gate.links].min())
        takes = int(sizes.largest / gate.rate)
        for node in topology.link_src[gate.links]:
            way = network.distance[:, node] + int(tail.times[1]) + paid
            times = np.minimum(times, np.minimum(way, FAR))
            waits = np.minimum(waits, sizes.distance[:, node] + takes + int(tail.waits[1]))
    for gate in second.gates:
        ends = topology.link_dst[gate.links]
        after, more = times[ends], waits[ends]
        straight = inside[ends]
        if straight.any():
            # A link straight into the first cut is a gate of both.
            ways = np.ix_(ends, goals)
            served = in_order(network.distance[ways], sizes.distance[ways])
            after = np.where(straight, np.minimum(after, served.times[:, 1]), after)
            more = np.where(straight, np.minimum(more, served.waits[:, 1]), more)
        own = int(sizes.overhead[gate.links].max())
        least = int((after + network.crossing[gate.links]).min()) - own
        yield Levels(np.array([min(least, int(FAR))]), more.min(keepdims=True))
