"""Optimal throughput: how fast every root can send to all members at once, in exact numbers."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teccl.construct.instance import IntArray
from teccl.construct.params import NEVER


class Spreading(NamedTuple):
    """What is to be spread over a graph: from which nodes how much, to which.

    Parameters
    ----------
    capacity
        Matrix of whole numbers: what an arc carries in a unit of time.
    weight
        Per node, how many shares of the data are its own.
    members
        Nodes that want all of it.
    """

    capacity: IntArray
    weight: IntArray
    members: IntArray

    def with_source(self, capacity: int, rate: int) -> IntArray:
        """Return the graph times a number, with a source that gives every root its share."""
        count = len(self.weight)
        arcs = np.zeros((count + 1, count + 1), dtype=np.int64)
        arcs[:count, :count] = self.capacity * capacity
        arcs[count, :count] = self.weight * rate
        return arcs

    def fits(self, capacity: int, rate: int) -> bool:
        """Whether flows on such a graph fit the kernels' numbers."""
        most = max(int(self.capacity.sum()) * capacity, int(self.weight.sum()) * rate)
        return 2 * most < NEVER

    def is_feasible(self, rate: int) -> bool:
        """Whether all members can get every share at a rate."""
        from teccl.construct.flows import narrowest

        limit = int(self.weight.sum()) * rate
        return narrowest(self.with_source(1, rate), len(self.weight), self.members, limit)[1] < 0


def optimal_rate(spreading: Spreading) -> Fraction | None:
    """Return the highest rate of a share at which all members can get everything at once.

    A set of nodes that leaves out a member must let out the shares of its roots, so the rate is at
    most its outgoing capacity per share. It begins with what members can take in; wherever a flow
    to a member falls short, the narrowest cut gives the next rate, which is that cut's own, until
    no cut is narrower (Newton's method, which ends after few steps). By Edmonds' theorem trees
    exist that reach it. Nought where some member is out of reach; None where numbers grow too
    large.
    """
    from teccl.construct.flows import push_flow, reached

    capacity, weight, members = spreading
    total, source = int(weight.sum()), len(weight)
    inward = capacity.sum(axis=0)
    rates = [
        Fraction(int(inward[member]), total - int(weight[member]))
        for member in members.tolist()
        if total > weight[member]
    ]
    if not rates:
        return None
    rate = min(rates)
    for member in members.tolist():
        while rate:
            share, scale = rate.numerator, rate.denominator
            if not spreading.fits(scale, share):
                return None
            rest = spreading.with_source(scale, share)
            if push_flow(rest, source, member, total * share) == total * share:
                break
            inside = reached(rest, source)[:source]
            outward = int(capacity[np.ix_(inside, ~inside)].sum())
            rate = Fraction(outward, int(weight[inside].sum()))
    return rate
