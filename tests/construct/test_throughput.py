"""Optimal throughput: exact rates, and graphs without switches that keep them."""

import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from teccl.construct.splitting import Cable, Splitting
from teccl.construct.throughput import Spreading, optimal_rate


def random_spreading(rng: random.Random, *, symmetric: bool = False) -> Spreading:
    """Return some roots and members of a small random graph."""
    count = rng.randint(3, 6)
    capacity = np.zeros((count, count), dtype=np.int64)
    for pair in combinations(range(count), 2):
        for a, b in (pair, pair[::-1]):
            capacity[a, b] = rng.choice([0, 1, 2, 3, 7, 12, 25])
        if symmetric:
            capacity[pair[::-1]] = capacity[pair]
    members = np.array(sorted(rng.sample(range(count), rng.randint(2, count))))
    weight = np.zeros(count, dtype=np.int64)
    roots = members if rng.random() < 0.7 else members[:1]
    weight[roots] = 1 if rng.random() < 0.5 else [rng.randint(1, 3) for _ in roots]
    return Spreading(capacity, weight, members)


def over_all_cuts(spreading: Spreading) -> Fraction | None:
    """Return the least capacity out of a set of nodes that leaves out a member, per share in it."""
    capacity, weight, members = spreading
    nodes = range(len(weight))
    rates = []
    for size in range(1, len(weight)):
        for inside in combinations(nodes, size):
            share = int(weight[list(inside)].sum())
            if share and not set(members.tolist()) <= set(inside):
                outside = [node for node in nodes if node not in inside]
                rates.append(Fraction(int(capacity[np.ix_(inside, outside)].sum()), share))
    return min(rates, default=None)


def split(spreading: Spreading, rate: Fraction) -> Splitting:
    """Take all nodes that are no members out of a graph scaled to whole trees."""
    scaled = spreading._replace(capacity=spreading.capacity * rate.denominator)
    cables = {
        (int(a), int(b)): Cable([(int(scaled.capacity[a, b]), (link,))])
        for link, (a, b) in enumerate(np.argwhere(scaled.capacity))
    }
    splitting = Splitting(scaled, rate.numerator, cables)
    splitting.split_all()
    return splitting


def test_rate_is_that_of_the_narrowest_of_all_cuts():
    """Newton's method on cuts finds the same rate as looking at every set of nodes."""
    rng = random.Random(0)
    for _ in range(400):
        spreading = random_spreading(rng)
        assert optimal_rate(spreading) == over_all_cuts(spreading)


def test_numbers_that_grow_too_large_have_no_rate():
    """Capacities whose flows do not fit the kernels are refused, not cut."""
    capacity = np.array([[0, 2**60], [2**60 - 1, 0]])
    ones = np.ones(2, dtype=np.int64)
    assert optimal_rate(Spreading(capacity, ones, np.arange(2))) is None


@pytest.mark.parametrize("seed", range(4))
def test_splitting_keeps_the_rate(seed: int):
    """Where as much leads into nodes as out of them, members alone reach the same rate."""
    rng = random.Random(seed)
    for _ in range(50):
        spreading = random_spreading(rng, symmetric=True)
        rate = optimal_rate(spreading)
        if rate:
            left = spreading._replace(capacity=split(spreading, rate).capacity)
            others = np.setdiff1d(np.arange(len(left.weight)), left.members)
            assert not left.capacity[others].any()
            assert not left.capacity[:, others].any()
            assert optimal_rate(left) == rate.numerator


def test_ways_of_arcs_use_no_link_beyond_its_capacity():
    """Each arc stands for ways from its tail to its head, which share the links."""
    rng = random.Random(5)
    for _ in range(100):
        spreading = random_spreading(rng, symmetric=True)
        rate = optimal_rate(spreading)
        if not rate:
            continue
        links = np.argwhere(spreading.capacity)
        splitting = split(spreading, rate)
        used = np.zeros(len(links), dtype=np.int64)
        for (tail, head), cable in splitting.cables.items():
            assert sum(amount for amount, _ in cable.strands) == splitting.capacity[tail, head]
            for amount, way in cable.strands:
                assert (links[way[0]][0], links[way[-1]][1]) == (tail, head)
                used[list(way)] += amount
        assert (used <= spreading.capacity[tuple(links.T)] * rate.denominator).all()
