r"""Coverage: sums take time to be made, and until then every contribution comes by itself.

Let v want b bytes of sums, and let U be contributors. Each byte position needs the contribution of
every u in U to arrive at v for a first time, so far not having passed v. Whatever one byte carries
has met at one place w: a GPU from which switches alone lead to an input of v, or a switch on that
way that adds up. So a byte that enters the input e at time t brings no more of U's contributions
than had come to some w in time, and

.. math:: \sum_e \sum_{k \le |U|} \int_{\rho_{e,k}}^{T - q_e} C_e \, dt \ge |U| \, b , \qquad
   \rho_{e,k} = \min_w \left( \text{k-th least}_{u \in U} (r_u + d(u, w)) + l_e(w) \right) ,

where d is the distance in the network without v, l_e(w) the latency from w to e and q_e that of e.
The mirror image is about what leaves u for destinations V: a byte that leaves over e serves as many
of V as can still be reached from the first place w behind e that can copy. GPUs whose inputs share
a capacity are looked at together: every byte over it arrives at one of them. Where transfers have
an overhead, `pieces` says how much a port moves at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.candidates import representatives
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.pieces import Pieces, pieces_of
from teccl.bounds.windows import (
    FAR,
    Change,
    Estimates,
    FloatArray,
    Gate,
    IntArray,
    least_estimate,
    least_time,
)
from teccl.keywords import SwitchMode
from teccl.units import display_time, format_bandwidth, format_size

Mask = npt.NDArray[np.bool_]

# Times that are sorted in all, which bounds the work on large networks.
MOST_WORK = 4_000_000
# Distances at which the far contributors are told from the near ones, and groups tried apart.
MOST_THRESHOLDS = 12
MOST_GROUPS = 4
# What certificates say where the size of pieces counts.
PIECES = "whatever the size of pieces: small ones pay more overheads, large ones are later on"


class _Port(NamedTuple):
    """GPUs with the gates of their inputs (outputs) and who must get through them.

    Parameters
    ----------
    nodes
        One GPU, or those whose links share a capacity.
    gates
        Their inputs, or their outputs.
    times
        For each gate, over places (rows) and the others (columns): when a contribution may enter
        the gate by way of the place, or how long after leaving the port a destination is served.
    owner
        For each gate, to which of the GPUs each row belongs.
    around
        For each gate the time on the other side: from the entrance to the GPU, or until data is
        ready.
    lead, ends
        For each gate the least time between it and a place, at an output its own step included;
        and its far ends.
    others, amount
        Contributors (destinations), and for each of the GPUs the bytes that they must send (get).
    """

    nodes: list[int]
    gates: list[Gate]
    times: list[IntArray]
    owner: list[IntArray]
    around: list[int]
    lead: list[int]
    ends: list[IntArray]
    others: IntArray
    amount: list[list[Fraction]]

    def least(self, gate: int, chosen: Mask) -> IntArray:
        """When a byte at a gate may count for one, two, ... of the chosen others of one GPU."""
        times = np.where(chosen[self.owner[gate]], self.times[gate], FAR)
        return np.sort(times, axis=1).min(axis=0)[: int(chosen.sum(axis=1).max())]

    def need(self, chosen: Mask) -> Fraction:
        """Bytes that must get through, each as often as it counts."""
        rows, columns = np.nonzero(chosen)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        return sum((self.amount[row][column] for row, column in pairs), Fraction(0))


class _Partner(NamedTuple):
    """Bytes that one of the others must send or get, and when the sender has them."""

    amount: Fraction
    ready: int


class _Windows(NamedTuple):
    """Windows in which one contribution more may share a byte: head, tail and gate of each."""

    heads: IntArray
    tails: IntArray
    gate: IntArray


class _Crowd(NamedTuple):
    """Contributors or destinations of a port that seem to bind it, with an estimate.

    They are chosen for each of the port's GPUs (rows). With `pieces` the port moves what they
    allow, otherwise data is fluid.
    """

    value: float
    port: _Port
    chosen: Mask
    pieces: Pieces | None = None


def coverage_bounds(network: Network) -> list[Bound]:
    """Evaluate the best coverage bound of some GPU's inputs and of some GPU's outputs."""
    if not network.fluid or not network.classes.reduce.any() or not network.rate:
        return []
    bounds = []
    for side in (Side.build(network, inward=True), Side.build(network, inward=False)):
        pieces = side.pieces(network)
        for kind in (None,) if pieces is None else (None, pieces):
            crowds = _crowds(network, side, kind)
            best = max(crowds, key=lambda crowd: crowd.value, default=None)
            if best is not None:
                bounds.append(_evaluate(network, best, inward=side.inward))
    return bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Inputs or outputs of all GPUs; for outputs time and links are turned round.

    Parameters
    ----------
    inward
        Whether ports are inputs.
    near, far
        Ends of each link at the port and away from it.
    distance
        Least time to a node (row) from another (column), or back from the row to the column.
    is_place
        Which nodes can put several contributions into one byte, or one byte to several uses.
    """

    inward: bool
    near: IntArray
    far: IntArray
    distance: IntArray
    is_place: Mask

    @staticmethod
    def build(network: Network, *, inward: bool) -> "Side":
        """Collect the inputs, or the outputs, of a network."""
        problem, topology = network.problem, network.problem.topology
        near, far = topology.link_dst, topology.link_src
        able = np.array([node.reduce for node in topology.nodes])
        if not inward:
            near, far = far, near
            able = np.full(topology.num_nodes, problem.switch is SwitchMode.COPY)
        distance = network.distance
        if inward:
            # Circuits begin to use a later link before the data has come to its switch.
            distance = np.where(topology.is_switch, network.approach, distance).T
        return Side(
            inward=inward,
            near=near,
            far=far,
            distance=distance,
            is_place=~topology.is_switch | able,
        )

    def places(self, node: int, end: int, lead: IntArray) -> IntArray:
        """Places that feed a link of a node's port; its far end alone where that is one."""
        if self.is_place[end]:
            return np.array([end])
        found = np.flatnonzero(self.is_place & (lead < FAR))
        return found[found != node]

    def together(self, network: Network) -> Iterator[list[int]]:
        """Yield GPUs worth a look, one by one, and those whose links share a capacity with them."""
        chosen, is_switch = representatives(network), network.problem.topology.is_switch
        yield from ([node] for node in chosen)
        seen = set()
        for pool in network.pools:
            nodes = tuple(np.unique(self.near[pool.links]).tolist())
            if len(nodes) > 1 and nodes not in seen and not is_switch[[*nodes]].any():
                seen.add(nodes)
                if not set(nodes).isdisjoint(chosen):
                    yield list(nodes)

    def pieces(self, network: Network) -> Pieces | None:
        """How much ports move where transfers have an overhead; None where that is not known."""
        ranks = network.problem.topology.num_gpus
        return pieces_of(network, self.near, self.far, self.is_place, ranks)


def _crowds(network: Network, side: Side, pieces: Pieces | None) -> Iterator[_Crowd]:
    """Estimate the bound of each port worth a look, as far as the work goes."""
    work = MOST_WORK
    for nodes in side.together(network):
        port = _port(network, side, nodes)
        if port is None or (pieces is not None and len(nodes) > 1):
            continue
        rooms, rows = Estimates(port.gates), sum(len(times) for times in port.times)
        for chosen in _choices(network, port):
            count = int(chosen.sum(axis=1).max())
            work -= rows * count if pieces is None else count * pieces.known.size
            if work < 0:
                return
            need = float(port.need(chosen))
            if pieces is not None:
                moved = list(_moves(port, pieces, chosen, inward=side.inward))
                moments = np.concatenate([moment for moment, _ in moved])
                changes = np.concatenate([np.diff(moves, prepend=0.0) for _, moves in moved])
                value = least_estimate(moments, changes, need)
                yield _Crowd(value, port, chosen, pieces)
                continue
            windows = _windows(port, chosen, inward=side.inward)
            if len(windows.gate):
                yield _Crowd(rooms.least_time(*windows, need), port, chosen)


def _port(network: Network, side: Side, nodes: list[int]) -> _Port | None:
    """Collect who must get through the port of some GPUs, and when; None where nobody must."""
    partners = [_partners(network, node, inward=side.inward) for node in nodes]
    links = np.flatnonzero(np.isin(side.near, nodes))
    if not any(partners) or not len(links):
        return None
    others = np.array(sorted(set().union(*partners)))
    ready = np.array([[p[o].ready if o in p else FAR for o in others.tolist()] for p in partners])
    entrances = [_Entrances(network, side, node) for node in nodes]
    number = {node: i for i, node in enumerate(nodes)}
    is_joined = network.problem.switch is SwitchMode.HYPER_EDGE
    port = _Port(nodes, [], [], [], [], [], [], others, [])
    for gate in network.gates(links):
        rows, owner, nears, begins = list[IntArray](), list[int](), list[int](), list[int]()
        for link in gate.links.tolist():
            whose, end = number[int(side.near[link])], int(side.far[link])
            group, lead, ways = entrances[whose].of(end)
            # The ports of a hyper-edge are held together from the start.
            before = 0 if is_joined and side.inward else lead[:, None]
            after = 0 if side.inward else network.step[link]
            wanted = np.where(ready[whose] < FAR, ready[whose] if side.inward else 0, FAR)
            rows.append(np.minimum(ways[:, others] + before + after + wanted, FAR))
            owner += [whose] * len(group)
            nears.append(int(lead.min(initial=FAR) + after))
            begins.append(int(ready[whose].min()))
        if owner:
            port.gates.append(gate)
            port.times.append(np.concatenate(rows))
            port.owner.append(np.array(owner))
            port.around.append(
                int(network.crossing[gate.links].min()) if side.inward else min(begins)
            )
            port.lead.append(min(nears))
            port.ends.append(side.far[gate.links])
    nothing = _Partner(Fraction(0), 0)
    amount = [[p.get(other, nothing).amount for other in others.tolist()] for p in partners]
    return port._replace(amount=amount) if port.gates else None


class _Entrances:
    """Places that feed the links of a GPU's port, with ways that do not touch the GPU."""

    def __init__(self, network: Network, side: Side, node: int) -> None:
        ends = np.unique(side.far[side.near == node])
        # Ways that pass nothing but switches before the far end of an input.
        passing = network.problem.topology.is_switch[side.near]
        leads = least_ways(side, network.onward, ends, passing)
        self._lead = dict(zip(ends.tolist(), leads, strict=True))
        self._places = {end: side.places(node, end, row) for end, row in self._lead.items()}
        self._used = np.unique(np.concatenate([*self._places.values(), np.zeros(0, dtype=int)]))
        self._ways = _without(network, side, node, self._used)

    def of(self, end: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return the places that feed a link, the way from each to it, and the ways to each."""
        places = self._places[end]
        return places, self._lead[end][places], self._ways[np.searchsorted(self._used, places)]


def _partners(network: Network, node: int, *, inward: bool) -> dict[int, _Partner]:
    """Others whose contributions a GPU wants, or that want the GPU's, with bytes and ready time."""
    classes = network.classes
    found: dict[int, _Partner] = {}
    for number in np.flatnonzero(classes.reduce).tolist():
        nodes, ready = classes.origins[classes.origin[number]]
        goals = classes.goals[classes.goal[number]]
        own = ready[nodes == node].tolist()
        pairs: list[tuple[int, int]] = []
        if inward and node in goals:
            pairs = list(zip(nodes.tolist(), ready.tolist(), strict=True))
        elif not inward and own:
            pairs = [(goal, own[0]) for goal in goals.tolist()]
        for other, since in pairs:
            if other != node:
                known = found.get(other, _Partner(Fraction(0), since))
                amount = known.amount + classes.amount[number]
                found[other] = _Partner(amount, min(known.ready, since))
    return found


def _without(network: Network, side: Side, node: int, places: IntArray) -> IntArray:
    """Distances between places (rows) and all nodes on ways that do not touch a node."""
    ways = side.distance[places].copy()
    through = side.distance[node] + side.distance[places, node][:, None]
    passes = (through <= ways) & (ways < FAR)
    passes[:, node] = False
    again = np.flatnonzero(passes.any(axis=1) & ~network.problem.topology.is_switch[places])
    if len(again):
        apart = (side.near != node) & (side.far != node)
        ways[again] = least_ways(side, network.step, places[again], apart)
    return ways


def least_ways(side: Side, step: IntArray, places: IntArray, allowed: Mask) -> IntArray:
    """Bellman and Ford's distances to places, all at once, over the links that are allowed."""
    kept = np.flatnonzero(allowed)
    kept = kept[np.argsort(side.far[kept], kind="stable")]
    ways = np.full((len(places), len(side.distance)), FAR)
    ways[np.arange(len(places)), places] = 0
    if not len(kept):
        return ways
    heads, first = np.unique(side.far[kept], return_index=True)
    for _ in range(len(side.distance)):
        options = ways[:, side.near[kept]] + step[kept]
        better = np.minimum(ways[:, heads], np.minimum.reduceat(options, first, axis=1))
        if np.array_equal(better, ways[:, heads]):
            break
        ways[:, heads] = better
    return np.minimum(ways, FAR)


def _choices(network: Network, port: _Port) -> Iterator[Mask]:
    """Yield sets of the others to try: the far ones, single groups, and one of each group.

    Far are those that come late, and those that come late but for the gate that has most to do.
    """
    each = np.full((len(port.gates), len(port.nodes), len(port.others)), FAR)
    rows = zip(each, port.times, port.owner, port.around, strict=True)
    for when, times, owner, around in rows:
        np.minimum.at(when, owner, np.minimum(times + around, FAR))
    soonest = each.min(axis=0)
    amounts = np.array([[float(amount) for amount in row] for row in port.amount])
    wanted, first = amounts > 0, each.argmin(axis=0)
    rates = np.array([float(gate.rate) for gate in port.gates])
    busiest = int((np.bincount(first.ravel(), amounts.ravel(), len(rates)) / rates).argmax())
    for late in (soonest, np.delete(each, busiest, axis=0).min(axis=0, initial=FAR)):
        moments = np.unique(late[wanted])
        if len(moments) > MOST_THRESHOLDS:
            moments = moments[np.linspace(0, len(moments) - 1, MOST_THRESHOLDS).astype(int)]
        for moment in moments[::-1]:
            yield wanted & (late >= moment)
    groups: dict[str | None, list[int]] = {}
    for i in np.argsort(-soonest.min(axis=0), kind="stable").tolist():
        group = network.problem.topology.nodes[port.others[i]].group
        groups.setdefault(group, []).append(i)
    if len(groups) > 1:
        firsts = [members[0] for members in groups.values()]
        for members in [*list(groups.values())[:MOST_GROUPS], firsts]:
            chosen = wanted & np.isin(np.arange(len(port.others)), members)
            if chosen.any():
                yield chosen


def _windows(port: _Port, chosen: Mask, *, inward: bool) -> _Windows:
    """Return what the k-th of the chosen leaves of each gate's time."""
    least = [port.least(gate, chosen) for gate in range(len(port.gates))]
    gate = np.repeat(np.arange(len(port.gates)), len(least[0]))
    sums, around = np.concatenate(least), np.array(port.around)[gate]
    kept = sums < FAR
    heads, tails = (sums, around) if inward else (around, sums)
    return _Windows(heads[kept], tails[kept], gate[kept])


def _moves(
    port: _Port, pieces: Pieces, chosen: Mask, *, inward: bool
) -> Iterator[tuple[IntArray, FloatArray]]:
    """What each gate moves, from which moments on, where pieces pay an overhead."""
    rows = zip(port.gates, port.around, port.lead, port.ends, strict=True)
    for number, (gate, around, lead, ends) in enumerate(rows):
        wait = int(pieces.lead[ends].min())
        least = port.least(number, chosen)
        # The gate's own overhead lies in what it moves.
        own = int(pieces.overhead[gate.links].max())
        if inward:
            moments, moves = pieces.moves(gate, least, lead, wait)
            yield moments + (around - own), moves
        else:
            moments, moves = pieces.moves(gate, least - own, lead - own, wait)
            yield moments + around, moves


def _evaluate(network: Network, crowd: _Crowd, *, inward: bool) -> Bound:
    """Evaluate a coverage bound exactly."""
    port, chosen = crowd.port, crowd.chosen
    need = port.need(chosen)
    sentence = _sentence(network, crowd, inward=inward)
    if crowd.pieces is not None:
        value = least_time(_piece_changes(crowd, inward=inward), need)
        return Bound(kind="coverage", value=value, certificate=f"{sentence}, {PIECES}")
    windows = _windows(port, chosen, inward=inward)
    rows, counts = np.unique(np.stack(windows), axis=1, return_counts=True)
    changes = (
        (moment, change * count)
        for (head, tail, gate), count in zip(rows.T.tolist(), counts.tolist(), strict=True)
        for moment, change in port.gates[gate].window(head, tail)
    )
    return Bound(kind="coverage", value=least_time(changes, need), certificate=sentence)


def _piece_changes(crowd: _Crowd, *, inward: bool) -> Iterator[Change]:
    """Changes in the growth of what a port has moved, exactly."""
    assert crowd.pieces is not None
    for moments, moves in _moves(crowd.port, crowd.pieces, crowd.chosen, inward=inward):
        last = Fraction(0)
        for moment, move in zip(moments.tolist(), moves.tolist(), strict=True):
            yield Fraction(moment), Fraction(move) - last
            last = Fraction(move)


def _sentence(network: Network, crowd: _Crowd, *, inward: bool) -> str:
    """Say how much must pass the port, and until when how few contributions share a byte."""
    port, chosen = crowd.port, crowd.chosen
    windows = _windows(port, chosen, inward=inward)
    names = [network.problem.topology.nodes[node].name for node in port.nodes]
    name = " and ".join(names)
    rate = format_bandwidth(round(float(sum(gate.rate for gate in port.gates)) * 1e12))
    need = format_size(round(port.need(chosen)))
    count = int(chosen.any(axis=0).sum())
    who = f"{count} GPUs" if count > 1 else "one GPU"
    few, moment = _first_share(windows)
    most = int(chosen.sum(axis=1).max())
    many, then = "one" if few == 1 else str(few), display_time(moment / 1e12)
    if inward:
        text = f"{need} of contributions from {who} must enter {name} at {rate}"
        if few == most:
            return f"{text}, and nothing arrives there before {then}"
        return f"{text}; before {then} nothing that arrives there can be a sum of more than {many}"
    text = f"{need} of contributions for {who} must leave {name} at {rate}"
    if few == most:
        return f"{text}, and nothing that leaves less than {then} before the end is of use"
    return f"{text}; what leaves less than {then} before the end serves no more than {many}"


def _first_share(windows: _Windows) -> tuple[int, int]:
    """How many contributions a byte carries at first, and when there may be more in any gate."""
    earliest: dict[int, int] = {}
    for gate in np.unique(windows.gate):
        moments = np.sort((windows.heads + windows.tails)[windows.gate == gate])
        for k, moment in enumerate(moments.tolist(), start=1):
            earliest[k] = min(moment, earliest.get(k, moment))
    few = max(k for k, moment in earliest.items() if moment == earliest[1])
    return few, earliest.get(few + 1, earliest[1])
