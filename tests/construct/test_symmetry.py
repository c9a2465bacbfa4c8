"""Symmetry: which groups are found, and that what they repeat is a schedule."""

from dataclasses import replace
from fractions import Fraction
from itertools import islice
from operator import attrgetter

import numpy as np
import pytest
from tests.construct.small import best_plan, make_instance, make_problem, verified

from teccl.construct import route_first
from teccl.construct.goal import Goal
from teccl.construct.insertion import inserted_plans
from teccl.construct.instance import Instance
from teccl.construct.symmetry import (
    find_group,
    free_group,
    is_symmetric_demand,
    plans_in_quotient,
    symmetric_plans,
)
from teccl.demand import Collective, Demand
from teccl.schedule.timing import send_times
from teccl.topology import Topology


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ("torus:dims=4x5", 20),
        ("ring:gpus=6", 6),
        ("hypercube:dimension=3", 8),
        ("dgx-h100:chassis=2", 16),
        ("ndv2:chassis=3", 3),
        ("star:gpus=5", 5),
    ],
)
def test_group_sizes(spec: str, size: int) -> None:
    """Translations of tori, rotations of rings and chassis, and flips of hypercubes are found."""
    group = find_group(Topology.parse(spec))
    assert group is not None
    assert len(group) == size


@pytest.mark.parametrize("spec", ["mesh:dims=3x3", "line:gpus=3"])
def test_no_group(spec: str) -> None:
    """A network whose GPUs differ has no group that moves them all."""
    assert find_group(Topology.parse(spec)) is None


def test_changed_links_break_the_group() -> None:
    """A missing link or a slower one is no symmetry, though the graph may look alike."""
    ring = Topology.parse("ring:gpus=5")
    assert find_group(ring.without_links(["0>1"])) is None
    assert find_group(ring.degraded({"0>1": Fraction(1, 2)})) is None


def test_elements_move_every_gpu_and_keep_links() -> None:
    """Each element is an automorphism; only the identity leaves a GPU in place."""
    topology = Topology.parse("dgx-h100:chassis=2")
    group = find_group(topology)
    assert group is not None
    for nodes, links in zip(group.nodes, group.links, strict=True):
        assert np.array_equal(nodes[topology.link_src], topology.link_src[links])
        assert np.array_equal(nodes[topology.link_dst], topology.link_dst[links])
    moved = group.nodes[1:][:, topology.gpus] != topology.gpus
    assert moved.all()


@pytest.mark.parametrize(("dims", "epochs"), [("3x3", 2), ("5x5", 6)])
def test_repeated_plan_meets_the_port_bound(dims: str, epochs: int) -> None:
    """On a torus without latency (n - 1) chunks enter each GPU over four links without a pause."""
    made = make_instance(f"torus:dims={dims},alpha=0", "allgather", "25MB", epoch="fastest")
    group = find_group(made.problem.topology)
    assert group is not None
    found = islice(symmetric_plans(made, group, seed=0), 24)
    plan = min((plan for plan in found if plan), key=attrgetter("finish"))
    assert plan.finish == epochs
    verified(made, plan)


def test_repeated_plan_is_symmetric() -> None:
    """Every element of the group maps the sends onto themselves, times included."""
    made = make_instance("ring:gpus=6", "allgather", num_chunks=2)
    group = find_group(made.problem.topology)
    assert group is not None
    plan = next(symmetric_plans(made, group, seed=0))
    chunks = made.problem.chunks
    source = np.array([chunks.sources(k)[0] for k in range(len(chunks))])
    number = {
        (int(s), int(p)): k for k, (s, p) in enumerate(zip(source, chunks.piece, strict=True))
    }
    rows = {tuple(row) for row in plan.rows[:, :3].tolist()}
    for nodes, links in zip(group.nodes, group.links, strict=True):
        image = {
            (number[int(nodes[source[k]]), int(chunks.piece[k])], int(links[r]), start)
            for k, r, start in rows
        }
        assert image == rows


@pytest.mark.parametrize("spec", ["dgx-h100:chassis=2", "ndv2:chassis=2", "hypercube:dimension=3"])
def test_repeated_plans_verify(spec: str) -> None:
    """Through switches and over slow links, too, what the group repeats is a schedule."""
    made = make_instance(spec, "allgather", num_chunks=2)
    group = find_group(made.problem.topology)
    assert group is not None
    for plan in filter(None, islice(symmetric_plans(made, group, seed=0), 2)):
        verified(made, plan)


def test_a_removed_link_falls_back() -> None:
    """Where the symmetry is broken a schedule is made without it."""
    whole = make_problem("torus:dims=3x3", "allgather")
    topology = whole.topology.without_links(["0>1"])
    assert find_group(topology) is None
    broken = Instance.build(replace(whole, topology=topology))
    verified(broken, best_plan(broken, level="quick"))


@pytest.mark.parametrize(
    ("demand", "symmetric"),
    [
        (Demand.collective("allgather", size="1MB"), True),
        (Demand.collective("allgather", size="1MB", ranks=(0, 1, 2)), False),
        (Demand.collective("broadcast", size="1MB"), False),
    ],
)
def test_only_a_full_allgather_is_symmetric(demand: Demand, symmetric: bool) -> None:
    """Every rank must gather from every rank for the group to repeat it."""
    problem = make_problem("ring:gpus=4", demand)
    assert is_symmetric_demand(problem, Collective.ALLGATHER) is symmetric


@pytest.mark.parametrize("spec", ["torus:dims=3x4", "internal2:chassis=4", "dgx-h100:chassis=3"])
def test_paths_of_one_source_repeat(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange laid for one source and repeated is correct and near one laid for all."""
    made = Instance.build(make_problem(spec, "alltoall"))
    whole = best_plan(made, level="quick")
    monkeypatch.setattr(route_first, "LAID_PER_GPU", 0)
    calls = []
    repeat = route_first.symmetric_paths
    monkeypatch.setattr(
        route_first, "symmetric_paths", lambda *given: calls.append(1) or repeat(*given)
    )
    plan = best_plan(made, level="quick")
    assert calls
    verified(made, plan)
    assert plan.finish <= 1.1 * whole.finish


@pytest.mark.parametrize("spec", ["dgx-h100:chassis=3", "torus:dims=3x3", "dgx1"])
def test_exchanges_are_inserted_for_one_source_of_each_orbit(spec: str) -> None:
    """What is inserted in the quotient is a schedule when the group repeats it, link by link."""
    made = make_instance(spec, "alltoall", num_chunks=2)
    plans = list(plans_in_quotient(made, lambda small: inserted_plans(small, Goal())))
    assert plans
    for plan in plans:
        assert plan.shifts
        assert len(np.unique(plan.rows[:, 0])) == len(made.problem.chunks)
        assert send_times(verified(made, plan)).arrival_ps.max() == plan.finish


def test_part_of_a_group_moves_every_link() -> None:
    """Rotations below the leaves of a fat tree leave the links of its core in place, others not."""
    topology = Topology.parse("fat-tree:k=4")
    whole, part = find_group(topology), free_group(topology)
    assert whole is not None
    assert part is not None
    assert 1 < len(part) < len(whole)
    assert (whole.links[1:] == whole.links[0]).any()
    assert not (part.links[1:] == part.links[0]).any()
