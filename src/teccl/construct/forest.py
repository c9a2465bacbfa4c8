"""Forests: for one collective the trees that carry it at the highest rate there is, as a plan."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import MILLION, STEPS
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


def best_forest(problem: Problem, most: int) -> Forest | None:
    """Return the forest of the highest rate with at most so many pieces of each block.

    None where trees do not all span the same nodes, do not fit without copies in switches, or need
    more pieces.
    """
    optima = _optima(problem)
    pieces = lcm(*(optimum.pieces for optimum in optima))
    if not optima or pieces > most:
        return None
    halves = []
    for optimum, aim in zip(optima, aims_of(problem), strict=True):
        trees = _Graph(problem.topology, aim).trees(optimum.scaled(pieces), pieces)
        if trees is None:
            return None
        halves.append(trees)
    joined = [[hop for hops in parts for hop in hops] for parts in zip(*halves, strict=True)]
    return Forest(pieces, _joint_rate(optima), len(optima) == 1, joined)


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
        rates = [self.topology.rate(link) for link in self.topology.links]
        unit = Fraction(1, lcm(*(rate.denominator for rate in rates)))
        unit *= gcd(*(int(rate / unit) for rate in rates))
        found = optimal_rate(self.spreading([int(rate / unit) for rate in rates]))
        if not found:
            return None
        capacity = [int(rate / unit) * found.denominator for rate in rates]
        return Optimum(found * unit, found.numerator, capacity)

    def trees(self, capacity: Sequence[int], pieces: int) -> list[list[Branch]] | None:
        """Return trees for so many pieces of each block within capacities; None if none fit."""
        from teccl.construct.packing import pack_trees
        from teccl.construct.shortening import shorten

        cables: dict[tuple[int, int], Cable] = {}
        for link, pair in enumerate(zip(self.tails, self.heads, strict=True)):
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
