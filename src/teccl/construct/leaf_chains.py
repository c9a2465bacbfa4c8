"""Leaf chains: pieces of one root stream from leaf to leaf, and no port of a GPU is ever idle.

Where all ports of GPUs are full, transfers have to follow each other without a gap, but a passage
through several switches reaches its last port later than one behind a single switch, and by no
whole number of transfers. So time has slots of one length, which begin at moments of each leaf's
own, and one piece a slot comes from the leaf before. The GPUs of a leaf take turns in being its
gateway: a gateway sends a piece on to the next leaf and then to all other GPUs of its own, one a
slot, and is through when its next piece comes. `_receivers` says whom it sends to: in every slot
all gateways send to different GPUs, and who gets nothing from them gets a piece from outside.

A leaf adds its latency and a few slots, and a Broadcast takes hardly longer than its root needs to
send everything once. A Reduce is the same backwards.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import MANY_GPUS
from teccl.construct.plan import Plan, single_rows
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.topology.clusters import partings

FloatArray = npt.NDArray[np.float64]
Way = tuple[int, ...]


class Leaf(NamedTuple):
    """GPUs behind one switch: the switch, and the links out of and into each GPU as pieces run."""

    switch: int
    out: Way
    into: Way


class LeafChain(NamedTuple):
    """Leaves in the order in which pieces reach them.

    Parameters
    ----------
    reduce
        Whether pieces are sums, for which everything runs backwards.
    leaves
        First the root alone, then what else is in its leaf, if there is anything, then the others.
    middles
        For each two of them, the links between their switches; passages take these in turns.
    """

    reduce: bool
    leaves: list[Leaf]
    middles: list[list[Way]]

    def finishes(self, problem: Problem, counts: Sequence[int]) -> FloatArray:
        """Return about when all is over with each number of chunks."""
        most = max(2, *counts)
        few, many = (self._rhythm(replace(problem, num_chunks=count)) for count in (1, most))
        # Of every time a part is latency, and the rest is the shorter the more chunks there are.
        rest = (few - many) * most / (most - 1)
        ends = (self._end(few - rest + rest / count, count) for count in counts)
        return np.fromiter(ends, dtype=np.float64)

    def plan(self, problem: Problem) -> tuple[Instance, Plan]:
        """Return the plan of all pieces, and the instance whose routes it takes."""
        ways, rows = self._passages(len(problem.chunks))
        instance = Instance.build(problem, ways=[self._as_sent(way) for way in ways])
        rhythm = self._rhythm(problem)
        begins = np.array([0, *self._begins(rhythm)])
        piece, way, leaf, turn = rows.T
        length = instance.routes.length[way]
        start = begins[leaf] + (piece + turn) * rhythm[0, 0] - self._ports(instance)[0][way]
        start = -start - length if self.reduce else start
        start -= start.min()
        return instance, Plan(
            rows=single_rows(piece, way, start),
            reduce=np.full(len(rows), self.reduce),
            finish=int((start + length).max()),
        )

    def _passages(self, count: int) -> tuple[list[Way], IntArray]:
        """Return ways and, for each transfer, its piece, way, sending leaf and turn."""
        numbers, found, piece = dict[Way, int](), list[IntArray](), np.arange(count)
        for place in range(len(self.leaves)):
            for turn, ways in self._turns(place, count):
                known = np.array([numbers.setdefault(way, len(numbers)) for way in ways])
                columns = piece, known[piece % len(ways)], piece * 0 + place, piece * 0 + turn
                found.append(np.stack(columns, axis=1))
        return list(numbers), np.concatenate(found)

    def _turns(self, place: int, count: int) -> Iterator[tuple[int, list[Way]]]:
        """Yield turns of a leaf's gateways, and the ways of pieces in them, which recur."""
        leaf = self.leaves[place]
        size = len(leaf.out)
        for turn, to in enumerate(_receivers(size), start=1):
            yield turn, [(leaf.out[n], leaf.into[(n + to) % size]) for n in range(size)]
        if place < len(self.middles):
            middles, into = self.middles[place], self.leaves[place + 1].into
            period = min(count, lcm(size, len(middles), len(into)))
            ways = [
                (leaf.out[n % size], *middles[n % len(middles)], into[n % len(into)])
                for n in range(period)
            ]
            yield 0, ways

    def _end(self, rhythm: npt.NDArray[np.generic], count: int) -> float:
        """Return when the last piece has arrived everywhere."""
        begins, sizes = self._begins(rhythm), [len(leaf.out) for leaf in self.leaves[1:]]
        return max(
            begin + (count - 1) * slot + ((size - 1) * slot + arrival if size > 1 else 0)
            for begin, size, (slot, _, arrival, *_) in zip(
                begins, sizes, rhythm.tolist(), strict=True
            )
        )

    def _begins(self, rhythm: npt.NDArray[np.generic]) -> list[int]:
        """Return when each leaf but the root's may hand on its first piece.

        What comes from outside finds the port free for which no gateway has a turn.
        """
        begins, before = list[int](), 0
        for leaf, times in zip(self.leaves[1:], rhythm.tolist(), strict=True):
            slot, own_port, _, port, arrival = times
            size = len(leaf.out)
            if size > 1:
                # From the last leaf nothing is handed on.
                wait = arrival - port + own_port - slot * (leaf is self.leaves[-1])
                slots = -(-wait // slot)
                arrival = port - own_port + (slots + (_free_turn(size) - slots) % size) * slot
            before += arrival
            begins.append(before)
        return begins

    def _rhythm(self, problem: Problem) -> npt.NDArray[np.int64]:
        """Return a row for each leaf but the root's.

        The slot, when a passage inside it holds its last port, and when who gets it may hold its
        own, and the same of one from the leaf before, counted from when the first port is held.
        """
        inside = [(leaf.out[0], leaf.into[-1]) for leaf in self.leaves[1:]]
        between = [
            (near.out[0], *middles[0], far.into[0])
            for (near, far), middles in zip(pairwise(self.leaves), self.middles, strict=True)
        ]
        ways = [self._as_sent(way) for way in (*inside, *between)]
        instance = Instance.build(problem, ways=ways)
        first, last, length = self._ports(instance)
        holds = np.split(instance.routes.res_hold, instance.routes.res_start[1:-1])
        slot = max(int(hold.max()) for hold in holds[: len(inside)])
        for hold, middles in zip(holds[len(inside) :], self.middles, strict=True):
            inner = hold[::-1][1:-1] if self.reduce else hold[1:-1]
            turns = zip(inner.tolist(), _apart(middles), strict=True)
            slot = max(slot, hold[0], hold[-1], *(-(-h // apart) for h, apart in turns))
        # Who gets a piece sends it on once it is there, which holds its own port at once or later.
        until = length - first + np.tile(first[: len(inside)], 2)
        both = np.split(np.stack([last - first, until], axis=1), 2)
        return np.column_stack([np.full(len(inside), slot), *both])

    def _ports(self, instance: Instance) -> tuple[IntArray, IntArray, IntArray]:
        """Return when each passage holds its first port and its last, and when it arrives."""
        routes = instance.routes
        first, last = routes.res_start[:-1], routes.res_start[1:] - 1
        if not self.reduce:
            return routes.res_offset[first], routes.res_offset[last], routes.length
        begins = routes.res_offset + routes.res_hold
        return routes.length - begins[last], routes.length - begins[first], routes.length

    def _as_sent(self, way: Way) -> Way:
        return way[::-1] if self.reduce else way


def leaf_chain(problem: Problem) -> LeafChain | None:
    """Return the chain of leaves for one root's pieces; None where GPUs are not alike.

    Each has one link out and one in, at one switch, and those of one leaf have the same links.
    """
    table, network = problem.chunks, _Network.of(problem)
    ends = table.destinations(0), table.sources(0)
    (root,), others = (each.tolist() for each in (ends if network.sums else ends[::-1]))
    nodes = _near_first(problem.topology, root, [node for node in others if node != root])
    if not nodes or not all(node in network.ports for node in (root, *nodes)):
        return None
    own = network.ports[root][0]
    groups = {-1: [root], own: list[int]()}
    for node in nodes:
        groups.setdefault(network.ports[node][0], []).append(node)
    leaves = [network.leaf(group) for group in groups.values() if group]
    middles = list[list[Way]]()
    for near, far in pairwise(leaves):
        taken = {link for ways in middles for way in ways for link in way}
        middles.append(network.middles(near.switch, far.switch, taken))
    are_alike = all(network.are_alike(links) for leaf in leaves for links in leaf[1:])
    return LeafChain(network.sums, leaves, middles) if all(middles) and are_alike else None


class _Network(NamedTuple):
    """Links as pieces run: their ends, holding times and latencies, and GPUs with one port each.

    Of those GPUs the switch is known, and the links out and in.
    """

    sums: bool
    near: list[int]
    far: list[int]
    costs: IntArray
    ports: dict[int, tuple[int, int, int]]
    after: dict[int, list[tuple[int, int]]]

    @staticmethod
    def of(problem: Problem) -> "_Network":
        """Look at the links of a problem, of sums the other way round."""
        topology, sums = problem.topology, bool(problem.chunks.reduce[0])
        sides = topology.link_src.tolist(), topology.link_dst.tolist()
        near, far = sides[::-1] if sums else sides
        out, into = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        after = defaultdict[int, list[tuple[int, int]]](list)
        for link, (a, b) in enumerate(zip(near, far, strict=True)):
            out[a].append(link)
            into[b].append(link)
            if topology.is_switch[a] and topology.is_switch[b]:
                after[a].append((link, b))
        ports = {
            gpu: (far[out[gpu][0]], out[gpu][0], into[gpu][0])
            for gpu in topology.gpus.tolist()
            if len(out[gpu]) == len(into[gpu]) == 1 and far[out[gpu][0]] == near[into[gpu][0]]
        }
        costs = np.stack([problem.hold_ps[:, 0], topology.alpha_ps])
        return _Network(sums, near, far, costs, ports, after)

    def leaf(self, gpus: Sequence[int]) -> Leaf:
        """Return GPUs of one switch with their links."""
        switch = self.ports[gpus[0]][0]
        return Leaf(switch, *zip(*(self.ports[gpu][1:] for gpu in gpus), strict=True))

    def are_alike(self, links: Sequence[int]) -> bool:
        """Whether links take equally long."""
        return bool((self.costs[:, links] == self.costs[:, links[:1]]).all())

    def middles(self, near: int, far: int, taken: Container[int]) -> list[Way]:
        """Return shortest ways between two switches that are alike, of those that pass on most.

        None of them uses a link that is taken.
        """
        kinds = defaultdict[bytes, list[Way]](list)
        for way in islice(self._shortest(near, far, taken), MANY_GPUS):
            kinds[self.costs[:, way].tobytes()].append(way)

        def slot(ways: list[Way]) -> float:
            holds = self.costs[0, ways[0]].tolist()
            return max((h / n for h, n in zip(holds, _apart(ways), strict=True)), default=0.0)

        turns = (kind[:n] for kind in map(_spread, kinds.values()) for n in range(1, len(kind) + 1))
        return min(turns, key=slot, default=[])

    def _shortest(self, near: int, far: int, taken: Container[int]) -> Iterator[Way]:
        """Yield the links of all ways from one switch to another over the fewest others."""
        ways: list[tuple[int, Way]] = [(near, ())]
        seen = {near}
        while ways and far not in seen:
            ways = [
                (b, (*way, link))
                for a, way in ways
                for link, b in self.after[a]
                if b not in seen and link not in taken
            ]
            seen |= {node for node, _ in ways}
        yield from (way for node, way in ways if node == far)


def _near_first(topology: Topology, root: int, nodes: Sequence[int]) -> list[int]:
    """Return nodes in order of their clusters, those of the root first at every level."""
    labels = sorted(partings(topology), key=lambda label: len(np.unique(label)))

    def place(node: int) -> list[tuple[bool, int]]:
        return [(bool(label[node] != label[root]), int(label[node])) for label in labels]

    return sorted(nodes, key=place)


def _spread(ways: list[Way]) -> list[Way]:
    """Put ways in an order in which those that share links are as far apart as can be."""
    left, used, found = list(ways), dict[int, int](), list[Way]()
    while left:
        way = min(left, key=lambda each: max((used.get(e, -1) for e in each), default=-1))
        left.remove(way)
        used.update(dict.fromkeys(way, len(found)))
        found.append(way)
    return found


def _apart(ways: list[Way]) -> list[int]:
    """Return for each place along the ways after how many turns, at least, a link has another."""
    least = list[int]()
    for links in zip(*ways, strict=True):
        turns = defaultdict[int, list[int]](list)
        for turn, link in enumerate((*links, *links)):
            turns[link].append(turn)
        least.append(min(b - a for each in turns.values() for a, b in pairwise(each)))
    return least


def _receivers(size: int) -> list[int]:
    """Return how far along its leaf the GPU is to which a gateway sends in each turn but the first.

    Gateways that are a turn apart are neighbours. In every slot all of them send to different GPUs,
    since these distances less the numbers of their turns are all different.
    """
    return [2 * turn - (2 * turn >= size) * (size - 1 + size % 2) for turn in range(1, size)]


def _free_turn(size: int) -> int:
    """Return the distance less the number of its turn that does not occur."""
    return 0 if size % 2 else size // 2
