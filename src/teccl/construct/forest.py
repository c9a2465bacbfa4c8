"""Forests: for one collective the trees that carry it at the highest rate there is, as a plan."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import gcd, lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import MILLION, NARROW_GAP, STEPS
from teccl.construct.plan import Plan, single_rows
from teccl.construct.splitting import Cable, Splitting, far_apart
from teccl.construct.throughput import Spreading, optimal_rate
from teccl.problem import Problem
from teccl.topology import Topology

Way = tuple[int, ...]


class Branch(NamedTuple):
    """An arc of a tree: from a GPU to a GPU over links, and whether the receiver adds up."""

    src: int
    dst: int
    way: Way
    reduce: bool


class Forest(NamedTuple):
    """Trees of one period, which hold no link for longer than the period lasts.

    Parameters
    ----------
    pieces
        Pieces of each block in a period.
    rate
        Bytes of each block per second, in the steady state.
    is_optimal
        Whether no schedule has a higher rate.
    trees
        Per block and piece the hops of its tree, each after those it waits for.
    """

    pieces: int
    rate: Fraction
    is_optimal: bool
    trees: list[list[Branch]]

    def plan(self, instance: Instance) -> Plan:
        """Return the trees as a plan, repeated for all pieces, on an instance with their ways."""
        number = {way: route for route, way in enumerate(instance.routes.ways())}
        pieces, copies = self.pieces, instance.problem.num_chunks // self.pieces
        counts = [len(hops) for hops in self.trees]
        block, piece = np.divmod(np.repeat(np.arange(len(self.trees)), counts), pieces)
        routes = np.array([number[hop.way] for hops in self.trees for hop in hops], dtype=np.int64)
        reduce = np.array([hop.reduce for hops in self.trees for hop in hops], dtype=bool)
        copy = np.repeat(np.arange(copies), len(routes))
        block, piece = np.tile(block, copies), np.tile(piece, copies)
        rows = single_rows((block * copies + copy) * pieces + piece, np.tile(routes, copies))
        return Plan(rows=rows, reduce=np.tile(reduce, copies))

    def ways(self) -> list[Way]:
        """Return all ways that trees take, each once."""
        return list(dict.fromkeys(hop.way for hops in self.trees for hop in hops))


class Aim(NamedTuple):
    """What trees must do: their roots, one for each block, and the nodes that each spans."""

    roots: list[int]
    members: list[int]
    reduce: bool


def aims_of(problem: Problem) -> list[Aim]:
    """Return what trees a problem asks for, in and out; none where not all span the same nodes."""
    table = problem.chunks
    first = np.flatnonzero(table.piece == 0)
    sources = [table.sets[i].tolist() for i in table.source_set[first].tolist()]
    ends = [table.sets[i].tolist() for i in table.destination_set[first].tolist()]
    if table.reduce.all() and sources == ends and len(sources) % len(sources[0]) == 0:
        # Of those that want a sum each makes as many as the others.
        ends = [[nodes[block % len(nodes)]] for block, nodes in enumerate(sources)]
        both = [_aim(ends, sources, reduce=True), _aim(ends, sources, reduce=False)]
        return [aim for aim in both if aim is not None]
    if table.reduce.all():
        aim = _aim(ends, sources, reduce=True)
    else:
        aim = None if table.reduce.any() else _aim(sources, ends, reduce=False)
    return [] if aim is None else [aim]


def _aim(near: list[list[int]], far: list[list[int]], *, reduce: bool) -> Aim | None:
    spans = {frozenset((*one, *others)) for one, others in zip(near, far, strict=True)}
    if len(spans) > 1 or any(len(one) > 1 for one in near):
        return None
    return Aim([one[0] for one in near], sorted(spans.pop()), reduce)


def best_rate(problem: Problem) -> Fraction | None:
    """Return the bytes of each block that trees carry per second at best, None if that is unknown.

    Trees of an AllReduce lead in and out again, one after the other.
    """
    optima = _optima(problem)
    return _joint_rate(optima) if optima else None


@lru_cache(maxsize=1)
def best_forest(problem: Problem, most: int) -> Forest | None:
    """Return the forest of the highest rate with at most so many pieces of each block.

    Where the highest rate there is needs more pieces, that of so many comes next to it. None where
    trees do not all span the same nodes, or do not fit without copies in switches.
    """
    optima = _optima(problem)
    if not optima:
        return None
    graphs = [_Graph(problem.topology, aim) for aim in aims_of(problem)]
    enough = min(most, max(graph.enough_pieces() for graph in graphs))
    overlapped = _overlapped(problem, graphs, enough) if len(graphs) > 1 else None
    if overlapped is not None and overlapped.rate > (1 + NARROW_GAP) * _joint_rate(optima):
        return overlapped
    pieces = lcm(*(optimum.pieces for optimum in optima))
    is_exact = pieces <= most
    if not is_exact:
        pieces = enough
        pairs = zip(graphs, optima, strict=True)
        optima = [graph.rounded(optimum, pieces) for graph, optimum in pairs]
    pairs = zip(graphs, optima, strict=True)
    halves = [graph.trees(optimum.scaled(pieces), pieces) for graph, optimum in pairs]
    return _joined(pieces, _joint_rate(optima), halves, is_optimal=is_exact and len(halves) == 1)


def _joined(
    pieces: int, rate: Fraction, halves: "list[list[list[Branch]] | None]", *, is_optimal: bool
) -> Forest | None:
    """Return the forest of trees in, out, or in and out again; None where some were not found."""
    found = [half for half in halves if half is not None]
    if len(found) < len(halves):
        return None
    trees = [[hop for hops in parts for hop in hops] for parts in zip(*found, strict=True)]
    return Forest(pieces, rate, is_optimal, trees)


def _overlapped(problem: Problem, halves: "list[_Graph]", pieces: int) -> Forest | None:
    """Return trees of an AllReduce that lead in and out at once, to and from the best owners.

    A linear program says what is added up where and what of each link is for results. Both are
    rounded to so many pieces of each block. None where no such trees are found.
    """
    from teccl.construct.link_shares import best_shares

    aim, blocks = halves[0].aim, len(halves[0].aim.roots)
    shares = best_shares(problem.topology, aim.members)
    if shares is None:
        return None
    roots = in_turns(shares.owned, pieces, blocks)
    graphs = [_Graph(problem.topology, half.aim._replace(roots=roots)) for half in halves]
    unit, rates = _in_units([problem.topology.rate(link) for link in problem.topology.links])

    def split(time: Fraction) -> list[list[int]]:
        carried = np.array([math.floor(rate * time) for rate in rates])
        results = np.rint(carried * shares.outward).astype(np.int64)
        kinds = {True: carried - results, False: results}
        return [kinds[graph.aim.reduce].tolist() for graph in graphs]

    def is_enough(time: Fraction) -> bool:
        pairs = zip(graphs, split(time), strict=True)
        return all(graph.spreading(capacity).is_feasible(1) for graph, capacity in pairs)

    least = len(roots) * unit / Fraction(shares.rate)
    time = _least_time(rates, least, is_enough)
    pairs = zip(graphs, split(time), strict=True)
    trees = [graph.trees(capacity, 1) for graph, capacity in pairs]
    return _joined(pieces, pieces * unit / time, trees, is_optimal=False)


def in_turns(parts: npt.NDArray[np.float64], pieces: int, blocks: int) -> list[int]:
    """Return for each block and piece who has it, all of them by turns in the order of time.

    Whoever is farthest behind its part is next.
    """
    behind = np.zeros_like(parts)
    turns = []
    for _ in range(pieces * blocks):
        behind += parts
        turns.append(int(np.argmax(behind)))
        behind[turns[-1]] -= 1
    return np.array(turns).reshape(pieces, blocks).T.ravel().tolist()


def _in_units(rates: list[Fraction]) -> tuple[Fraction, list[int]]:
    """Return the largest unit of which all rates are whole multiples, and how many they are."""
    unit = Fraction(1, lcm(*(rate.denominator for rate in rates)))
    unit *= gcd(*(int(rate / unit) for rate in rates))
    return unit, [int(rate / unit) for rate in rates]


def _least_time(
    rates: list[int], least: Fraction, is_enough: Callable[[Fraction], bool]
) -> Fraction:
    """Return the first time from `least` on in which links carry enough whole pieces.

    Only moments count at which some link has carried one more; the first that is enough is found by
    halving.
    """
    kinds = sorted(set(rates))

    def last_moment(time: Fraction) -> Fraction:
        return max(Fraction(math.floor(rate * time), rate) for rate in kinds)

    early, late, step = Fraction(0), least, Fraction(1, kinds[-1])
    while not is_enough(late):
        early, late, step = late, last_moment(least + step), 2 * step
    while True:
        following = min(Fraction(math.floor(rate * early) + 1, rate) for rate in kinds)
        if following >= late:
            return late
        middle = max(following, last_moment((early + late) / 2))
        early, late = (early, middle) if is_enough(middle) else (middle, late)


def _optima(problem: Problem) -> "list[Optimum]":
    """Return the optimum of each kind of trees; none where one is not known."""
    found = [_Graph(problem.topology, aim).optimum() for aim in aims_of(problem)]
    known = [optimum for optimum in found if optimum is not None]
    return known if len(known) == len(found) else []


def _joint_rate(optima: "list[Optimum]") -> Fraction:
    """Return the rate of trees that have all links one kind after another."""
    return 1 / sum((1 / optimum.rate for optimum in optima), Fraction(0))


class Optimum(NamedTuple):
    """The highest rate, the least pieces that reach it, and capacities of links for these."""

    rate: Fraction
    pieces: int
    capacity: list[int]

    def scaled(self, pieces: int) -> list[int]:
        """Return the capacities for a multiple of the pieces."""
        return [each * (pieces // self.pieces) for each in self.capacity]


class _Graph:
    """The links of a topology as a graph on which trees lead away from their roots."""

    def __init__(self, topology: Topology, aim: Aim) -> None:
        self.topology, self.aim = topology, aim
        ends = topology.link_src.tolist(), topology.link_dst.tolist()
        self.tails, self.heads = reversed(ends) if aim.reduce else ends
        self.weight = np.bincount(aim.roots, minlength=topology.num_nodes)

    def spreading(self, capacity: Sequence[int]) -> Spreading:
        """Return the graph with capacities of links."""
        count = self.topology.num_nodes
        arcs = np.zeros((count, count), dtype=np.int64)
        np.add.at(arcs, (self.tails, self.heads), capacity)
        return Spreading(arcs, self.weight, np.array(self.aim.members, dtype=np.int64))

    def optimum(self) -> Optimum | None:
        """Return the highest rate at which trees can send; None where numbers grow too large."""
        unit, rates = _in_units([self.topology.rate(link) for link in self.topology.links])
        found = optimal_rate(self.spreading(rates))
        if not found:
            return None
        capacity = [rate * found.denominator for rate in rates]
        return Optimum(found * unit, found.numerator, capacity)

    def enough_pieces(self) -> int:
        """Return with how many pieces what links carry is rounded by next to nothing.

        A node gets all that is not its own over the links into it, each of which may miss a piece.
        """
        inward = np.bincount(self.heads, minlength=len(self.weight))
        others = self.weight.sum() - self.weight
        most = [inward[node] / others[node] for node in self.aim.members if others[node]]
        return math.ceil(max(most) / (2 * NARROW_GAP))

    def rounded(self, optimum: "Optimum", pieces: int) -> "Optimum":
        """Return the highest rate of so many pieces, of which links carry whole ones."""

        def is_enough(time: Fraction) -> bool:
            return self.spreading(carried(time)).is_feasible(pieces)

        def carried(time: Fraction) -> list[int]:
            return [math.floor(each * time) for each in optimum.capacity]

        least = Fraction(pieces, optimum.pieces)
        time = _least_time(optimum.capacity, least, is_enough)
        return Optimum(optimum.rate * least / time, pieces, carried(time))

    def trees(self, capacity: Sequence[int], pieces: int) -> list[list[Branch]] | None:
        """Return trees for so many pieces of each block within capacities; None if none fit."""
        from teccl.construct.packing import pack_trees
        from teccl.construct.shortening import shorten

        cables: dict[tuple[int, int], Cable] = {}
        for link, pair in enumerate(zip(self.tails, self.heads, strict=True)):
            if not capacity[link]:
                continue
            cables.setdefault(pair, Cable([])).strands.append((capacity[link], (link,)))
        spreading = self.spreading(capacity)
        splitting = Splitting(spreading, pieces, cables)
        splitting.split_all()
        left = spreading._replace(capacity=np.ascontiguousarray(splitting.capacity))
        if not left.is_feasible(pieces):
            return None
        is_member = np.zeros(len(self.weight), dtype=bool)
        is_member[self.aim.members] = True
        costs = self._costs(cables)
        packed, number = pack_trees(left.capacity, self.weight * pieces, is_member, costs)
        parents = self._in_turns(np.repeat(packed, number, axis=0))
        free = left.capacity.copy()
        np.subtract.at(free, (parents[parents >= 0], np.nonzero(parents >= 0)[1]), 1)
        shorten(parents, free, costs, max(1, STEPS * MILLION // parents.size))
        trees: dict[int, list[list[Branch]]] = {root: [] for root in self.aim.roots}
        for parent in parents:
            root = self._root(parent)
            trees[root].append(self._tree(root, parent, cables))
        own = {root: iter(each) for root, each in trees.items()}
        return [next(own[root]) for root in self.aim.roots for _ in range(pieces)]

    def _in_turns(self, parents: IntArray) -> IntArray:
        """Put trees in an order in which roots take turns and like ones are far apart."""
        roots = [self._root(parent) for parent in parents]
        places: list[tuple[Fraction, int]] = []
        for root, amount in Counter(roots).items():
            turns = far_apart(amount)
            first = roots.index(root)
            places += [(Fraction(turn, amount), first + tree) for turn, tree in enumerate(turns)]
        return parents[[tree for _, tree in sorted(places)]]

    def _root(self, parent: IntArray) -> int:
        """Return the root of a tree."""
        return next(node for node in self.aim.members if parent[node] < 0)

    def _costs(self, cables: dict[tuple[int, int], Cable]) -> IntArray:
        """Time that a hop takes, in parts of the fastest link's."""
        count = len(self.weight)
        rates = [float(self.topology.rate(link)) for link in self.topology.links]
        fastest = max(rates)
        costs = np.ones((count, count), dtype=np.int64)
        for pair, cable in cables.items():
            if cable.strands:
                way = cable.strands[0][1]
                costs[pair] = round(sum(fastest / rates[link] for link in way))
        return costs

    def _tree(
        self, root: int, parent: IntArray, cables: dict[tuple[int, int], Cable]
    ) -> list[Branch]:
        """Return the hops of one tree, with ways taken from the cables, each node reached once."""
        hops: dict[int, list[Branch]] = {}
        for head in self.aim.members:
            if parent[head] >= 0:
                ((_, way),) = cables[int(parent[head]), head].take(1)
                for hop in self._legs(self._straight(way)):
                    hops.setdefault(hop.src, []).append(hop)
        found, reached = [], [root]
        for node in reached:
            for hop in hops.get(node, []):
                if hop.dst not in reached:
                    reached.append(hop.dst)
                    found.append(hop)
        return self._turned(_without_idle(found, set(self.aim.members)))

    def _straight(self, way: Way) -> Way:
        """Leave out loops."""
        for start, link in enumerate(way):
            back = [i for i in range(start, len(way)) if self.heads[way[i]] == self.tails[link]]
            if back:
                return self._straight(way[:start] + way[back[-1] + 1 :])
        return way

    def _legs(self, way: Way) -> list[Branch]:
        """Cut a way at the GPUs that it passes."""
        is_switch = self.topology.is_switch
        cuts = [0, *(i + 1 for i, link in enumerate(way) if not is_switch[self.heads[link]])]
        return [
            Branch(self.tails[way[a]], self.heads[way[b - 1]], way[a:b], self.aim.reduce)
            for a, b in pairwise(cuts)
        ]

    def _turned(self, hops: list[Branch]) -> list[Branch]:
        """Return hops as links lead, the ends of sums first."""
        if not self.aim.reduce:
            return hops
        return [Branch(dst, src, way[::-1], reduce) for src, dst, way, reduce in reversed(hops)]


def _without_idle(hops: list[Branch], members: set[int]) -> list[Branch]:
    """Leave out hops to nodes that want nothing and pass nothing on."""
    kept: list[Branch] = []
    needed = set(members)
    for hop in reversed(hops):
        if hop.dst in needed:
            kept.append(hop)
            needed.add(hop.src)
    return kept[::-1]
