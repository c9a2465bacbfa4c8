r"""Departures: sums that meet before they come to a GPU left their contributors early.

Where transfers have an overhead, let v want a sum to which others contribute. A transfer into v
brings at most k - 1 contributions that left their GPUs so late that k of them cannot meet, pass on
to v and be there by T. All others left early. So with Y the contributors beside v, for every k,

.. math:: (k - 1) \sum_{e \text{ into } v} B_e(T - a_e) + \sum_{y \in Y} \min\Bigl(b, \;
   \sum_{e \text{ out of } y} B_e(T - a_{e,k})\Bigr) \ge |Y| \, b ,

with B what `rooms` can move. Sums that one GPU each wants, as in a ReduceScatter, leave through
the same outputs and are added up.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np

from teccl.bounds.candidates import representatives
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.pieces import growth, least_hops
from teccl.bounds.rooms import Room, Share, least_end
from teccl.bounds.served import room_of
from teccl.bounds.sized_cuts import Sizes
from teccl.bounds.windows import FAR, Gate, IntArray
from teccl.units import format_size

# Ways by way of a place, of each contributor, beyond which looking at them takes too long.
MOST_WAYS = 20_000_000


class Sums(NamedTuple):
    """Sums, one destination of each, and bytes and chunks of every contributor beside it."""

    wanted: IntArray
    bytes_of: dict[int, Fraction]
    chunks_of: dict[int, int]
    ready: dict[int, int]


class _Delay(NamedTuple):
    """Time between two moments, and how much more of it the largest piece takes."""

    time: int
    wait: int


def departure_bounds(network: Network, known: int) -> list[Bound]:
    """Evaluate the best bound of GPUs that want sums, if it is better than what is known."""
    sizes = Sizes.of(network)
    if sizes is None or not network.classes.reduce.any() or known >= FAR:
        return []
    best: list[Bound] = []
    for sums in sums_wanted(network):
        if len(sums.bytes_of) * network.problem.topology.num_nodes**2 > MOST_WAYS:
            continue
        ways = _ways_on(network, sizes, sums)
        for count in _counts(len(sums.bytes_of)):
            shares = [_arrivals(network, sizes, sums, count)]
            shares += _departures(network, sizes, sums, ways, count)
            found = least_end(shares, sum(sums.bytes_of.values(), Fraction(0)), known)
            if found is not None and found > known:
                known, best = found, [_bound(network, sums, found)]
    return best


def sums_wanted(network: Network) -> Iterator[Sums]:
    """Yield all sums that one GPU each wants, and those that several want, with one of these."""
    classes = network.classes
    summed = np.flatnonzero(classes.reduce)
    alone = np.array([len(classes.goals[g]) == 1 for g in classes.goal[summed]])
    if alone.any():
        yield _sums(network, [(m, int(classes.goals[classes.goal[m]][0])) for m in summed[alone]])
    for node in representatives(network):
        wanted = [m for m in summed[~alone] if node in classes.goals[classes.goal[m]]]
        if wanted:
            yield _sums(network, [(m, node) for m in wanted])


def _sums(network: Network, pairs: list[tuple[int, int]]) -> Sums:
    classes = network.classes
    bytes_of, chunks_of, ready = dict[int, Fraction](), Counter[int](), dict[int, int]()
    for number, goal in pairs:
        origin = classes.origins[classes.origin[number]]
        for node, since in zip(origin.nodes.tolist(), origin.ready.tolist(), strict=True):
            if node != goal:
                bytes_of[node] = bytes_of.get(node, Fraction(0)) + classes.amount[number]
                chunks_of[node] += int(classes.count[number])
                ready[node] = min(ready.get(node, since), since)
    return Sums(np.unique([goal for _, goal in pairs]), bytes_of, chunks_of, ready)


def _counts(contributors: int) -> list[int]:
    """Numbers of contributions that may be late: two, three, five and so on."""
    return [1 + 2**i for i in range(contributors.bit_length()) if 2**i < contributors]


def _arrivals(network: Network, sizes: Sizes, sums: Sums, count: int) -> Share:
    """What inputs of those that want sums take in, each byte worth one less than `count`."""
    topology = network.problem.topology
    sources = np.array(sorted(sums.ready))
    ready = np.array([sums.ready[node] for node in sources.tolist()])
    rooms: Counter[Room] = Counter()
    for gate in network.gates(np.flatnonzero(np.isin(topology.link_dst, sums.wanted))):
        ends = topology.link_src[gate.links]
        head = int((network.distance[np.ix_(sources, ends)] + ready[:, None]).min())
        wait = int(sizes.distance[np.ix_(sources, ends)].min())
        tail = int(network.crossing[gate.links].min() - sizes.overhead[gate.links].max())
        if head < FAR:
            rooms[room_of(sizes, gate, head + tail, wait)] += count - 1
    return Share([room._replace(times=number) for room, number in rooms.items()])


def _ways_on(network: Network, sizes: Sizes, sums: Sums) -> dict[int, tuple[IntArray, IntArray]]:
    """From each node to a place that is not their own, and on to who wants contributions."""
    topology = network.problem.topology
    places = np.flatnonzero([not node.is_switch or node.reduce for node in topology.nodes])
    found = {}
    last = np.array(
        [
            [table[w, sums.wanted[sums.wanted != w]].min(initial=FAR) for w in places]
            for table in (network.distance, sizes.distance)
        ]
    )
    for node in sorted(sums.bytes_of):
        others = places != node
        columns = places[others]
        times = (network.distance[:, columns] + last[0, others]).min(axis=1)
        waits = (sizes.distance[:, columns] + last[1, others]).min(axis=1)
        found[node] = times, waits
    return found


def _departures(
    network: Network,
    sizes: Sizes,
    sums: Sums,
    ways: dict[int, tuple[IntArray, IntArray]],
    count: int,
) -> list[Share]:
    """What contributors can send early, of each no more than it has."""
    topology = network.problem.topology
    meeting = _meeting(network, sizes, count)
    shares: Counter[tuple[tuple[Room, ...], Fraction]] = Counter()
    for node, amount in sums.bytes_of.items():
        rooms = []
        times, waits = ways[node]
        for gate in network.gates(np.flatnonzero(topology.link_src == node)):
            ends = topology.link_dst[gate.links]
            own = int(sizes.overhead[gate.links].max())
            after = network.crossing[gate.links].min() - own
            lost = _Delay(int(times[ends].min() + after), int(waits[ends].min()))
            later = _latest(network, sizes, gate, meeting)
            lost = max(lost, later, key=lambda delay: delay.time + delay.wait) if later else lost
            if lost.time < FAR:
                rooms.append(room_of(sizes, gate, sums.ready[node] + lost.time, lost.wait))
        shares[tuple(rooms), amount] += 1
    return [Share(rooms, limit, times) for (rooms, limit), times in shares.items()]


def _meeting(network: Network, sizes: Sizes, count: int) -> _Delay:
    """Least time from the first departure until `count` contributions that met have come."""
    topology = network.problem.topology
    is_place = np.array([not node.is_switch or node.reduce for node in topology.nodes])
    takes = np.array([int(sizes.largest / rate) for rate in network.rate], dtype=np.int64)
    ends = topology.link_dst, topology.link_src
    hop, _ = least_hops(*ends, network.step, is_place)
    on_links, _ = least_hops(*ends, takes, is_place)
    into = is_place[topology.link_dst]
    inputs = int(np.bincount(topology.link_dst[into]).max())
    hold, long = int(sizes.overhead[into].min()), int(takes[into].min())
    soonest = growth(hop, Counter({hold: inputs}), count)[-1]
    largest = growth(hop + on_links, Counter({hold + long: inputs}), count)[-1]
    if hop >= FAR or soonest >= FAR or largest >= FAR:
        return _Delay(0, 0)
    # The least over all trees of what each takes, which grows evenly with the size of a piece.
    return _Delay(soonest + hop, largest - soonest + on_links)


def _latest(network: Network, sizes: Sizes, gate: Gate, meeting: _Delay) -> _Delay | None:
    """The same from the end of a departure over a gate on; None where its bytes take longer."""
    if network.problem.topology.has_profiles:
        return None
    takes = max(ceil(sizes.largest / network.rate[link]) for link in gate.links.tolist())
    time = meeting.time - int(sizes.overhead[gate.links].max())
    return _Delay(time, meeting.wait - takes) if meeting.wait >= takes and time >= 0 else None


def name_of_wanted(network: Network, sums: Sums) -> str:
    """Return who wants the sums, in words."""
    names = [network.problem.topology.nodes[node].name for node in sums.wanted.tolist()]
    return names[0] if len(names) == 1 else f"{len(names)} GPUs"


def _bound(network: Network, sums: Sums, value: int) -> Bound:
    who = name_of_wanted(network, sums)
    amount = format_size(round(max(sums.bytes_of.values())))
    text = (
        f"{amount} of each of {len(sums.bytes_of)} contributors must come to {who} one by one or"
        " leave early enough to meet before, whatever the size of pieces"
    )
    return Bound(kind="departures", value=value, certificate=text)
