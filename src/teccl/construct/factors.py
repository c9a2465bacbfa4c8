"""Factors: a network of direct links as a product of smaller ones, such as the rings of a torus.

In a product the edges of one factor are opposite each other in squares, and edges of different
factors that meet span exactly one square without a chord. Closing that relation gives the factors,
which are then checked: every combination of their coordinates must be one node.
"""

from collections import defaultdict
from itertools import combinations

import numpy as np

from teccl.construct.params import MILLION

Graph = dict[int, set[int]]
Edge = tuple[int, int]


class _Union:
    """Sets of edges that grow together."""

    def __init__(self) -> None:
        self._parent: dict[Edge, Edge] = {}

    def find(self, edge: Edge) -> Edge:
        """Return the edge that stands for a set."""
        self._parent.setdefault(edge, edge)
        while self._parent[edge] != edge:
            self._parent[edge] = self._parent[self._parent[edge]]
            edge = self._parent[edge]
        return edge

    def join(self, one: Edge, other: Edge) -> None:
        """Make two sets one."""
        first, second = sorted((self.find(one), self.find(other)))
        self._parent[second] = first


def product_coordinates(graph: Graph) -> list[list[int]]:
    """Return each node's coordinate in every factor of a graph of nodes 0, 1, ...

    A graph that is no product, or too large to tell, is its only factor.
    """
    whole = [list(range(len(graph)))]
    if sum(len(near) ** 2 for near in graph.values()) > MILLION:
        return whole
    union = _factor_relation(graph)
    names = sorted({union.find(edge) for edge in _edges(graph)})
    found = []
    for name in names:
        others: Graph = {node: set() for node in graph}
        for a, b in _edges(graph):
            if union.find((a, b)) != name:
                others[a].add(b)
                others[b].add(a)
        found.append(components(others))
    places = set(zip(*found, strict=True))
    size = int(np.prod([max(column) + 1 for column in found], dtype=object)) if found else 0
    is_product = len(found) > 1 and len(places) == len(graph) == size
    return found if is_product else whole


def _edges(graph: Graph) -> list[Edge]:
    return [(a, b) for a, near in sorted(graph.items()) for b in sorted(near) if a < b]


def _factor_relation(graph: Graph) -> _Union:
    """Join edges that belong to one factor."""
    union = _Union()
    for node, near in sorted(graph.items()):
        for a, b in combinations(sorted(near), 2):
            corners = [c for c in graph[a] & graph[b] if c != node and c not in near]
            if b in graph[a] or len(corners) != 1:
                union.join(_edge(node, a), _edge(node, b))
            else:
                union.join(_edge(node, a), _edge(b, corners[0]))
                union.join(_edge(node, b), _edge(a, corners[0]))
    return union


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)


def components(graph: Graph) -> list[int]:
    """Number the connected parts of a graph, in the order of their first nodes."""
    part = [-1] * len(graph)
    count = 0
    for root in range(len(graph)):
        if part[root] >= 0:
            continue
        part[root], stack = count, [root]
        while stack:
            for near in graph[stack.pop()]:
                if part[near] < 0:
                    part[near] = count
                    stack.append(near)
        count += 1
    return part


def quotient(graph: Graph, part: list[int]) -> Graph:
    """Return the graph of the parts of a graph, which are near where their nodes are."""
    found: Graph = {number: set() for number in set(part)}
    for node, near in graph.items():
        for other in near:
            if part[node] != part[other]:
                found[part[node]].add(part[other])
    return found


def paired(graph: Graph, turn: int) -> list[int]:
    """Pair neighbours off, those with the fewest left first; return each node's pair.

    Another turn pairs the first node with another neighbour. Nodes may stay alone.
    """
    left = {node: set(near) for node, near in graph.items()}
    pair: dict[int, int] = {}
    count = 0
    node = 0
    while left:
        near = sorted(left[node], key=lambda other: (len(left[other]), other))
        mates = [node, *([near[turn % len(near)]] if near else [])]
        turn = 0
        for mate in mates:
            pair[mate] = count
            for other in left.pop(mate):
                left[other].discard(mate)
        count += 1
        node = min(left, key=lambda each: (len(left[each]), each), default=0)
    return [pair[node] for node in sorted(pair)]


def coarsenings(graph: Graph, *, turn: int, depth: int) -> list[list[int]]:
    """Partition a connected graph coarser and coarser: pairs, pairs of pairs, and all at last."""
    found: list[list[int]] = []
    part = list(range(len(graph)))
    while len(found) < depth and len(set(part)) > 2:
        pairs = paired(quotient(graph, part), turn)
        part = [pairs[number] for number in part]
        found.append(part)
    return [*found, [0] * len(graph)]


def neighbours(num: int, src: list[int], dst: list[int]) -> Graph:
    """Return who is linked both ways with whom."""
    arcs = set(zip(src, dst, strict=True))
    graph: Graph = defaultdict(set, {node: set() for node in range(num)})
    for a, b in arcs:
        if a != b and (b, a) in arcs:
            graph[a].add(b)
    return dict(graph)
