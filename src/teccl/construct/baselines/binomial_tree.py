"""Binomial trees: in every round each GPU that has the data hands it to one that has not.

Broadcast and Scatter run down the tree, Reduce and Gather up; AllReduce reduces and broadcasts
every block in a tree of its own, rotated so that each member is the root of one.
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

COLLECTIVES = (
    Collective.BROADCAST,
    Collective.REDUCE,
    Collective.SCATTER,
    Collective.GATHER,
    Collective.ALLREDUCE,
)


def refusal(problem: Problem) -> str | None:
    """Return what the method cannot do for a problem, or None."""
    reason = refuse_options(problem, COLLECTIVES)
    if reason is None and problem.has_reductions:
        team = team_of(problem)
        n, rotates = len(team), only_collective(problem) is Collective.ALLREDUCE
        pairs = [
            ((root + child) % n, (root + parent) % n)
            for root in (range(n) if rotates else [team.root])
            for rounds in tree_rounds(n)
            for parent, child in rounds
        ]
        reason = blocked_sum(problem, team.nodes, pairs)
    return reason


def build(problem: Problem) -> SendArray:
    """Schedule one of the collectives with a root, or an AllReduce."""
    team = team_of(problem)
    hops = {
        Collective.BROADCAST: _broadcast,
        Collective.REDUCE: _reduce,
        Collective.SCATTER: _scatter,
        Collective.GATHER: _gather,
        Collective.ALLREDUCE: _allreduce,
    }[only_collective(problem)](team)
    return book_hops(problem, hops, team.nodes)


def tree_rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return the pairs (parent, child) of each round of a broadcast from 0, in order.

    The largest subtrees are served first.

    Examples
    --------
    >>> tree_rounds(6)
    [[(0, 4)], [(0, 2)], [(0, 1), (2, 3), (4, 5)]]
    """
    rounds = []
    distance = 1 << max(0, (count - 1).bit_length() - 1)
    while distance:
        rounds.append(
            [(v, v + distance) for v in range(0, count, 2 * distance) if v + distance < count]
        )
        distance //= 2
    return rounds


def _edges(team: Team, root: int) -> list[tuple[int, int]]:
    """Return the pairs (parent, child) of the tree from a root, by node, in order of rounds."""
    return [
        (_rotated(team, root, parent), _rotated(team, root, child))
        for pairs in tree_rounds(len(team))
        for parent, child in pairs
    ]


def _rotated(team: Team, root: int, place: int) -> int:
    return team.nodes[(root + place) % len(team)]


def _broadcast(team: Team) -> Iterator[Hop]:
    edges = _edges(team, team.root)
    for blocks in team.pieces:
        for parent, child in edges:
            yield Hop(blocks[0], parent, child)


def _reduce(team: Team) -> Iterator[Hop]:
    edges = _edges(team, team.root)
    for blocks in team.pieces:
        for parent, child in reversed(edges):
            yield Hop(blocks[0], child, parent, reduce=True)


def _subtrees(count: int) -> Iterator[tuple[int, int, range]]:
    """Yield (parent, child, places below the child) in order of rounds."""
    for pairs in tree_rounds(count):
        for parent, child in pairs:
            distance = child - parent
            yield parent, child, range(child, min(child + distance, count))


def _scatter(team: Team) -> Iterator[Hop]:
    n, root = len(team), team.root
    for parent, child, below in _subtrees(n):
        src, dst = _rotated(team, root, parent), _rotated(team, root, child)
        for blocks in team.pieces:
            for place in below:
                yield Hop(blocks[(root + place) % n], src, dst)


def _gather(team: Team) -> Iterator[Hop]:
    n, root = len(team), team.root
    for parent, child, below in reversed(list(_subtrees(n))):
        src, dst = _rotated(team, root, child), _rotated(team, root, parent)
        for blocks in team.pieces:
            for place in below:
                yield Hop(blocks[(root + place) % n], src, dst)


def _allreduce(team: Team) -> Iterator[Hop]:
    edges = [_edges(team, root) for root in range(len(team))]
    for blocks in team.pieces:
        # All trees advance edge by edge together, so that no root is served last.
        for step in reversed(range(len(team) - 1)):
            for root, tree in enumerate(edges):
                parent, child = tree[step]
                yield Hop(blocks[root], child, parent, reduce=True)
        for step in range(len(team) - 1):
            for root, tree in enumerate(edges):
                parent, child = tree[step]
                yield Hop(blocks[root], parent, child)
