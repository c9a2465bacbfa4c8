"""Recursive doubling: partners at distance 1, 2, 4, ... exchange all they have.

AllGather doubles what everyone holds; ReduceScatter is its mirror image, recursive halving;
AllReduce is one after the other. See Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH", 2005.
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

COLLECTIVES = (Collective.ALLGATHER, Collective.REDUCESCATTER, Collective.ALLREDUCE)


def refusal(problem: Problem) -> str | None:
    """Return what the method cannot do for a problem, or None."""
    reason = refuse_options(problem, COLLECTIVES)
    if reason is None and problem.num_gpus & (problem.num_gpus - 1):
        reason = f"needs a power of two of members, not {problem.num_gpus}"
    if reason is None and problem.has_reductions:
        n = problem.num_gpus
        partners = [(i, i ^ distance) for distance in _powers(n) for i in range(n)]
        reason = blocked_sum(problem, team_of(problem).nodes, partners)
    return reason


def build(problem: Problem) -> SendArray:
    """Schedule an AllGather, ReduceScatter or AllReduce."""
    team = team_of(problem)
    return book_hops(problem, _hops(team, only_collective(problem)), team.nodes)


def _hops(team: Team, collective: Collective) -> Iterator[Hop]:
    if collective is not Collective.ALLGATHER:
        yield from _halving(team)
    if collective is not Collective.REDUCESCATTER:
        yield from _doubling(team)


def _doubling(team: Team) -> Iterator[Hop]:
    """Send to the partner every block of the sender's own group of `distance` members."""
    for distance in _powers(len(team)):
        for blocks in team.pieces:
            for offset in range(distance):
                for i, node in enumerate(team.nodes):
                    yield Hop(blocks[i ^ offset], node, team.nodes[i ^ distance])


def _halving(team: Team) -> Iterator[Hop]:
    """Send to the partner the partial sums of every block that ends in the partner's half."""
    for distance in reversed(_powers(len(team))):
        for blocks in team.pieces:
            for offset in range(distance):
                for i, node in enumerate(team.nodes):
                    partner = i ^ distance
                    yield Hop(blocks[partner ^ offset], node, team.nodes[partner], reduce=True)


def _powers(count: int) -> list[int]:
    return [1 << step for step in range(count.bit_length() - 1)]
