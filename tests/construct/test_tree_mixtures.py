"""Tree mixtures: pairs of trees that carry an AllReduce where GPUs that take no part may help."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from teccl.bounds import summarise
from teccl.construct.forest_plans import forest_plan
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import MILLION
from teccl.construct.realise import realise
from teccl.construct.tree_mixtures import best_mixture, mixed_forest
from teccl.demand import Demand
from teccl.demand.demand_files import parse_ranks
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.units import PICOSECONDS
from teccl.verification import verify

SUBSETS = [
    ("torus:dims=4x4,alpha=0", "0-3"),
    ("dgx1", "0,3,5,6"),
    ("star:gpus=6", "0,2,3"),
    ("dgx-h100:chassis=2", "0-3,8"),
    ("hypercube:dimension=3", None),
]


def make(name: str, ranks: str | None, size: str = "16MB") -> tuple[Problem, Instance, list[int]]:
    """Return an AllReduce with its instance and the nodes of its members."""
    topology = Topology.parse(name)
    members = None if ranks is None else parse_ranks(ranks)
    problem = Problem(
        topology=topology, demand=Demand.collective("allreduce", size=size, ranks=members)
    )
    nodes = sorted(set(problem.chunks.destinations(0).tolist()))
    return problem, Instance.build(problem), nodes


def plenty() -> Goal:
    """Return a goal with more work than these mixtures take."""
    return Goal(allowance=10 * MILLION)


def test_idle_rows_of_a_torus_carry_what_four_in_a_row_add_up() -> None:
    """Without latencies the bound of 96 us is met; trees of members alone take 120 us."""
    _, instance, members = make("torus:dims=4x4,alpha=0", "0-3")
    mixture = best_mixture(instance, members, plenty())
    assert mixture is not None
    assert mixture.least * len(members) == pytest.approx(96e6, rel=0.004)


def test_three_of_a_star_are_no_slower_than_their_ports() -> None:
    """Every member must send its buffer, and no more where those that are idle add up."""
    problem, instance, members = make("star:gpus=6,alpha=0", "0,2,3")
    mixture = best_mixture(instance, members, plenty())
    assert mixture is not None
    rate = min(problem.topology.rate(link) for link in problem.topology.links)
    buffer_ps = Fraction(16 * MILLION) / rate * PICOSECONDS
    assert mixture.least * len(members) == pytest.approx(float(buffer_ps), rel=0.004)


@pytest.mark.parametrize(("name", "ranks"), SUBSETS)
def test_every_pair_takes_each_contribution_once(name: str, ranks: str | None) -> None:
    """Inward trees lead every member to one place, outward ones lead from there to all again."""
    _, instance, members = make(name, ranks)
    mixture = best_mixture(instance, members, plenty())
    assert mixture is not None
    assert mixture.part.sum() == pytest.approx(1)
    src, dst = instance.routes.src, instance.routes.dst
    for inward, outward in mixture.pairs:
        senders = Counter(src[list(inward)].tolist())
        assert set(senders.values()) <= {1}
        (root,) = {*dst[list(inward)].tolist(), *members} - set(senders)
        reached = {root, *dst[list(outward)].tolist()}
        assert set(members) <= reached
        # Nobody sends on what has not come.
        for tree in (inward[::-1], outward):
            known = {root}
            for route in tree:
                near, far = (src, dst) if tree is outward else (dst, src)
                assert int(near[route]) in known
                known.add(int(far[route]))


@pytest.mark.parametrize(("name", "ranks"), SUBSETS)
def test_forests_of_mixtures_are_schedules(name: str, ranks: str | None) -> None:
    """What a mixture becomes is verified and holds no link for longer than it says."""
    problem, _, _ = make(name, ranks)
    forest = mixed_forest(problem, lambda found: found.pieces <= 16, plenty())
    assert forest is not None
    cut = replace(problem, num_chunks=forest.pieces)
    instance, plan = forest_plan(cut, forest)
    schedule = realise(instance, plan, method="construct")
    assert not verify(schedule)
    held = np.zeros(problem.topology.num_links)
    # Of every send, rounding makes up to a picosecond.
    hold = cut.hold_ps[:, 0] - 1
    np.add.at(held, schedule.sends["link"], hold[schedule.sends["link"]])
    block = problem.chunks.sizes[0] * problem.num_chunks
    assert held.max() <= block / forest.rate * PICOSECONDS
    assert plan.finish >= summarise(cut).physical_ps


def test_more_pieces_are_rounded_less() -> None:
    """A period that may have more pieces has no lower rate, and no more than asked for."""
    problem, _, _ = make("dgx1", "0,3,5,6")
    limits = (1, 4, 16, 64)
    found = [
        mixed_forest(problem, lambda forest, most=most: forest.pieces <= most, plenty())  # type: ignore[misc]
        for most in limits
    ]
    forests = [each for each in found if each is not None]
    assert all(each.pieces <= most for each, most in zip(forests, limits, strict=True))
    assert all(one.rate <= other.rate for one, other in pairwise(forests))


def test_members_apart_have_no_mixture() -> None:
    """Where no way leads from one member to another there is nothing to mix."""
    topology = Topology.parse("ring:gpus=4")
    links = tuple(link for link in topology.links if {link.src, link.dst} not in ({0, 1}, {2, 3}))
    problem = Problem(
        topology=replace(topology, links=links),
        demand=Demand.collective("allreduce", size="1MB", ranks=(0, 1)),
    )
    assert best_mixture(Instance.build(problem), [0, 1], plenty()) is None
