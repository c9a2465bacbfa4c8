"""Double binary trees: two trees, each for half of the chunks.

The leaves of one tree are inner nodes of the other, so that every GPU sends and receives about as
much as any other. See Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast,
reduction and scan", 2009; NCCL builds the same trees for AllReduce.
"""

from collections.abc import Iterator

from teccl.construct.baselines._common import (
    Hop,
    Team,
    blocked_sum,
    book_hops,
    only_collective,
    refuse_options,
    team_of,
)
from teccl.demand import Collective
from teccl.problem import Problem
from teccl.schedule.sends import SendArray

COLLECTIVES = (Collective.BROADCAST, Collective.REDUCE, Collective.ALLREDUCE)

Edges = list[tuple[int, int]]


def refusal(problem: Problem) -> str | None:
    """Return what the method cannot do for a problem, or None."""
    reason = refuse_options(problem, COLLECTIVES)
    if reason is None and problem.has_reductions:
        team = team_of(problem)
        upwards = [(child, parent) for tree in _trees(problem, team) for parent, child in tree]
        reason = blocked_sum(problem, team.nodes, upwards)
    return reason


def build(problem: Problem) -> SendArray:
    """Schedule a Broadcast, Reduce or AllReduce."""
    team = team_of(problem)
    hops = _hops(team, only_collective(problem), _trees(problem, team))
    return book_hops(problem, hops, team.nodes)


def _trees(problem: Problem, team: Team) -> tuple[Edges, ...]:
    """Return the edges (parent, child) of both trees by position."""
    if only_collective(problem) is Collective.ALLREDUCE:
        return allreduce_trees(len(team))
    n, root = len(team), team.root
    return tuple(
        [((root + parent) % n, (root + child) % n) for parent, child in tree]
        for tree in rooted_trees(n)
    )


def inorder_edges(count: int) -> Edges:
    """Return the pairs (parent, child), from the top, of the tree over 0 to count - 1 rooted at 0.

    The root has one child; below it is a binary tree in which every odd place is a leaf.

    Examples
    --------
    >>> inorder_edges(6)
    [(0, 4), (4, 2), (4, 5), (2, 1), (2, 3)]
    """
    edges: Edges = []
    frontier = [(0, 1, count)]
    while frontier:
        below = []
        for parent, low, high in frontier:
            if low < high:
                top = _top(low, high)
                edges.append((parent, top))
                below += [(top, low, top), (top, top + 1, high)]
        frontier = below
    return edges


def _top(low: int, high: int) -> int:
    """Return the place from `low` to below `high` that the most powers of two divide."""
    step = 1 << (high - 1).bit_length()
    while True:
        first = -(-low // step) * step
        if first < high:
            return first
        step //= 2


def allreduce_trees(count: int) -> tuple[Edges, Edges]:
    """Return two trees over all places; the second is mirrored or, for odd counts, shifted."""
    first = inorder_edges(count)
    if count % 2:
        return first, [((a + 1) % count, (b + 1) % count) for a, b in first]
    return first, [(count - 1 - a, count - 1 - b) for a, b in first]


def rooted_trees(count: int) -> tuple[Edges, Edges]:
    """Return two trees that both hang below place 0."""
    first, others = inorder_edges(count), count - 1

    def other(place: int) -> int:
        if place == 0:
            return 0
        return place % others + 1 if others % 2 else count - place

    return first, [(other(a), other(b)) for a, b in first]


def _hops(team: Team, collective: Collective, trees: tuple[Edges, ...]) -> Iterator[Hop]:
    nodes = team.nodes
    chunks = [chunk for blocks in team.pieces for chunk in blocks.values()]
    for number, chunk in enumerate(chunks):
        edges = trees[number % 2]
        if collective is not Collective.BROADCAST:
            for parent, child in reversed(edges):
                yield Hop(chunk, nodes[child], nodes[parent], reduce=True)
        if collective is not Collective.REDUCE:
            for parent, child in edges:
                yield Hop(chunk, nodes[parent], nodes[child])
