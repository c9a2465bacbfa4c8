"""Throughput plans: one period of trees, repeated."""

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.construct.networks import random_network
from tests.construct.small import assert_disjoint, make_instance

import teccl
from teccl.construct.instance import Instance, without_long_ways
from teccl.construct.jobs import justify_serially
from teccl.construct.multicast import Tables
from teccl.construct.realise import realise
from teccl.construct.repeated import (
    ACROSS,
    PATIENCE,
    _Repetition,
    _slow_members,
    _Turns,
    _turns_across,
    can_repeat,
    period_pieces,
    repeated_plans,
)
from teccl.construct.serial import sequence_of, settle
from teccl.construct.tasks import (
    finish_time,
    precedence,
    tasks_of_plan,
)
from teccl.construct.trees import laid_plan
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem
from teccl.reachability import find_unreachable
from teccl.topology import Topology
from teccl.verification import verify


def test_periods_are_parts_of_every_kind_of_demand() -> None:
    """Sizes stand in a matrix, beside chunks or once for all; a period has its share of each."""
    pairs = (ExplicitChunk((3,), (3,)), ExplicitChunk((2,), (0, 1, 2)))
    sized = tuple(pair._replace(size=Fraction(2**20)) for pair in pairs)
    matrix = ((Fraction(0), Fraction(0)), (Fraction(2**20), Fraction(0)))
    tenants = (
        Tenant(collective=Collective.EXPLICIT, size=Fraction(2**20), chunks=pairs, name="once"),
        Tenant(collective=Collective.EXPLICIT, size=Fraction(1), chunks=sized, name="each"),
        Tenant(collective=Collective.ALLTOALLV, matrix=matrix, ranks=(0, 2), name="matrix"),
    )
    network = "ring:gpus=4"
    made = make_instance(network, Demand(tenants=tenants), num_chunks=256)
    assert can_repeat(made.problem)
    found = list(repeated_plans(made, target=1))
    assert found
    for plan in found:
        assert not verify(realise(made, plan, method="construct"))


def bound_of(instance: Instance) -> int:
    """Return the physical bound of an instance's problem."""
    from teccl.bounds import summarise

    return summarise(instance.problem).physical_ps


@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "allreduce", "broadcast"])
@pytest.mark.parametrize("spec", ["ring:gpus=4", "dgx1", "star:gpus=4"])
def test_repeated_plans_verify(spec: str, collective: str) -> None:
    """Whatever the fabric and the collective, a repeated period is a correct schedule."""
    made = make_instance(spec, collective, "64MB", num_chunks=1024)
    chunks = 2 * period_pieces(made.problem)
    made = make_instance(spec, collective, "64MB", num_chunks=chunks)
    assert 2 * period_pieces(made.problem) == chunks
    assert can_repeat(made.problem)
    found = list(repeated_plans(made, target=bound_of(made)))
    assert found
    for plan in found:
        assert plan.finish >= bound_of(made)
        assert not verify(realise(made, plan, method="construct"))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
)
def test_random_fabrics_verify(seed: int) -> None:
    """Periods are correct on random networks too, with mixed rates and layers of switches."""
    rng = random.Random(seed)
    demand = Demand.collective(
        rng.choice(["allgather", "allreduce", "reducescatter"]), size="1000003B"
    )
    while True:
        network = random_network(rng)
        problem = Problem(topology=network, demand=demand)
        is_small = network.num_gpus <= 16 and network.num_switches and not network.has_profiles
        if is_small and find_unreachable(problem) is None:
            break
    pieces = period_pieces(replace(problem, num_chunks=1024))
    made = Instance.build(replace(problem, num_chunks=2 * pieces))
    for plan in repeated_plans(made, target=bound_of(made)):
        assert plan.finish >= bound_of(made)
        assert not verify(realise(made, plan, method="construct"))


@pytest.mark.parametrize("effort", ["quick", pytest.param("normal", marks=pytest.mark.slow)])
def test_a_slow_gpu_does_not_halve_an_allreduce(effort: str) -> None:
    """With one GPU at half rate an AllReduce still comes within three per cent of the bound."""
    slow = {"gpu0:*": "50%"}
    result = teccl.solve("dgx1", "allreduce", size="256MB", degrade=slow, effort=effort)
    assert result.physical_gap is not None
    assert result.physical_gap <= 0.03


def test_few_chunks_are_repeated_too() -> None:
    """A limit on chunks makes periods shorter, it does not rule them out.

    Without periods the gap is 17 per cent.
    """
    slow = {"gpu0:*": "50%"}
    options = {"size": "256MB", "max_chunks": 48, "effort": "quick"}
    result = teccl.solve("dgx1", "allreduce", degrade=slow, **options)
    assert result.num_chunks == 48
    assert result.physical_gap is not None
    assert result.physical_gap <= 0.07


@pytest.mark.slow
def test_few_chunks_are_repeated_on_a_large_machine() -> None:
    """The same for sixteen GPUs around switches, nearer to the bound."""
    slow = {"c0/gpu0:*": "50%"}
    result = teccl.solve("dgx2", "allreduce", size="256MB", degrade=slow, max_chunks=48)
    assert result.num_chunks in (32, 48)
    assert result.physical_gap is not None
    assert result.physical_gap <= 0.03


def test_pieces_that_differ_are_not_repeated() -> None:
    """A period stands for all pieces only where these are alike and counts divide."""
    made = make_instance("ring:gpus=4", "allgather", num_chunks=7)
    assert not can_repeat(made.problem)


@pytest.mark.parametrize("spec", ["dgx1", "star:gpus=6", "dgx2"])
def test_serial_scheduling_keeps_resources_and_waits(spec: str) -> None:
    """Serial schedules overlap nowhere and start nothing before its inputs are there."""
    made = make_instance(spec, "allreduce", num_chunks=2)
    plan = laid_plan(made, Tables.build(made), target=1e6)
    assert plan is not None
    tasks = tasks_of_plan(made, plan)
    key = np.random.default_rng(0).permutation(len(tasks))
    first = justify_serially(made, tasks, key=key, rounds=0, order=precedence(made, tasks))
    better = justify_serially(made, tasks, key=key, rounds=3, order=precedence(made, tasks))
    assert finish_time(tasks, better) <= finish_time(tasks, first) < 2**61
    order = precedence(made, tasks)
    before = np.repeat(np.arange(len(tasks)), np.diff(order.next_start))
    for start in (first, better):
        assert_disjoint(tasks, start)
        assert np.all(start[before] + order.next_lag <= start[order.next_task])


@pytest.mark.parametrize("seed", range(20))
def test_settled_times_are_the_least_that_keep_the_order(seed: int) -> None:
    """Whatever the order of work, times come out as plain repetition finds them."""
    rng = np.random.default_rng(seed)
    count, resources = int(rng.integers(2, 40)), int(rng.integers(1, 6))
    # Tasks hold one to three resources at offsets of their own, in the order of a true schedule.
    held = [rng.permutation(resources)[: rng.integers(1, 4)] for _ in range(count)]
    res_start = np.concatenate([[0], np.cumsum([len(res) for res in held])])
    behind, lag = np.full(res_start[-1], -1), np.zeros(res_start[-1], dtype=np.int64)
    last: dict[int, tuple[int, int]] = {}
    for task, res in enumerate(held):
        for place, name in enumerate(res.tolist(), start=int(res_start[task])):
            if name in last:
                before, entry = last[name]
                assert before < task
                behind[entry], lag[entry] = task, rng.integers(-3, 9)
            last[name] = (task, place)
    follower = np.minimum(np.arange(count) + rng.integers(1, 4, count), count)
    next_task = follower[follower < count]
    next_start = np.concatenate([[0], np.cumsum(follower < count)])
    next_lag = rng.integers(1, 9, len(next_task))
    waits = np.bincount(next_task, minlength=count)
    release = rng.integers(0, 5, count)
    shuffled = rng.permutation(count)
    sequence = sequence_of(waits, next_start, next_task, res_start, behind, shuffled)
    assert sorted(sequence.tolist()) == list(range(count))
    found = settle(sequence, next_start, next_task, next_lag, res_start, behind, lag, release)

    least = release.copy()
    arcs = [
        *zip(np.flatnonzero(follower < count), next_task, next_lag, strict=True),
        *((t, behind[i], lag[i]) for t in range(count) for i in range(*res_start[t : t + 2])),
    ]
    for _ in range(count):
        for before, after, length in arcs:
            if after >= 0:
                least[after] = max(least[after], least[before] + length)
    assert np.array_equal(found, least)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({}, False),
        ({"c0/gpu0:leaf0": Fraction(1, 2)}, False),
        ({"c0/gpu0:c0/nvswitch": Fraction(1, 2)}, True),
        ({"c0/gpu0>c0/nvswitch": Fraction(1, 2)}, True),
        ({"c0/nvswitch>c0/gpu0": Fraction(1, 2)}, True),
    ],
)
def test_sums_and_results_overlap_where_a_gpu_needs_most_of_the_time(fault, expected) -> None:
    """So they must beside a GPU whose ports are slow in either direction, and only there."""
    network = Topology.parse("dgx-h100:chassis=8").degraded(fault)
    demand = Demand.collective("allreduce", size="256MB")
    made = Instance.build(Problem(topology=network, demand=demand, num_chunks=4))
    goal = bound_of(made)
    work = _Repetition(made, made, goal, 0, lambda: None)
    assert bool(_slow_members(work)) is expected


def test_a_gpu_that_takes_no_part_makes_nothing_overlap() -> None:
    """Nothing is asked of a GPU without links that is left out."""
    network = Topology.parse("dgx-h100:chassis=8").without_links(["c0/gpu0:*"])
    demand = Demand.collective("allreduce", size="256MB", ranks=range(1, 64))
    made = Instance.build(Problem(topology=network, demand=demand, num_chunks=4))
    work = _Repetition(made, made, bound_of(made), 0, lambda: None)
    assert not _slow_members(work)


def hops_to_root(turns: _Turns, node: int) -> float:
    """Return how far a node is from the root of a tree on average."""
    tasks = turns.tasks
    above: dict[tuple[int, bool, int], int] = {}
    for chunk, is_sum, src, dst in zip(
        tasks.chunk.tolist(),
        tasks.reduce.tolist(),
        tasks.src.tolist(),
        tasks.out_node.tolist(),
        strict=True,
    ):
        near, far = (dst, src) if is_sum else (src, dst)
        above[chunk, is_sum, far] = near
    trees = {(chunk, is_sum) for chunk, is_sum, _ in above}
    hops = 0
    for tree in trees:
        at = node
        while (*tree, at) in above:
            at = above[*tree, at]
            hops += 1
    return hops / len(trees)


def test_urgent_gpus_hang_near_the_root() -> None:
    """A GPU that is urgent is fewer hops from the roots than it is otherwise."""
    network = Topology.parse("dgx-h100:chassis=8").degraded({"c0/gpu0:c0/nvswitch": Fraction(1, 2)})
    demand = Demand.collective("allreduce", size="256MB")
    made = without_long_ways(Instance.build(Problem(topology=network, demand=demand, num_chunks=2)))
    work = _Repetition(made, made, bound_of(made), 0, lambda: None)
    slow = _slow_members(work)
    assert slow == [int(network.gpus[0])]
    near, plain = (
        _turns_across(work, ACROSS[True], patience=PATIENCE, urgent=urgent) for urgent in (slow, ())
    )
    assert near is not None
    assert plain is not None
    assert hops_to_root(near, slow[0]) < 0.7 * hops_to_root(plain, slow[0])


def test_few_branches_pay_beside_a_slow_gpu() -> None:
    """Where a GPU is busy most of the time, few branches bring AllReduce nearer to its bound."""
    fault = {"c0/gpu0:*": Fraction(1, 2)}
    network = Topology.parse("internal1:chassis=16").degraded(fault)
    demand = Demand.collective("allreduce", size="64MB")
    made = without_long_ways(Instance.build(Problem(topology=network, demand=demand, num_chunks=8)))
    work = _Repetition(made, made, bound_of(made), 0, lambda: None)
    few, plain = (
        _turns_across(work, ACROSS[True], patience=patience) for patience in (PATIENCE, np.inf)
    )
    assert few is not None
    assert plain is not None
    early, late = (
        turns.plan(turns.scarce_first(overlaps=overlaps))
        for turns, overlaps in ((few, True), (plain, False))
    )
    assert not verify(realise(made, early, method="construct"))
    assert early.finish < late.finish
