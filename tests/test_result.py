"""Result: figures, the JSON contract and the table for people."""

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import pytest

from teccl.construct.baselines import build_baseline
from teccl.demand import Collective, Demand, Tenant
from teccl.problem import Problem
from teccl.result import Attempt, Result, Status, bus_factor
from teccl.schedule import BoundSummary
from teccl.timegrid import TimeGrid
from teccl.topology import Topology

PLAIN_KEYS = {
    "status",
    "method",
    "requested_method",
    "topology",
    "collective",
    "num_gpus",
    "size_bytes",
    "num_chunks",
    "chunk_bytes",
    "finish_time_s",
    "physical_bound_s",
    "physical_gap",
    "certificate",
    "algbw_GBps",
    "busbw_GBps",
    "num_sends",
    "verified",
    "solve_seconds",
    "message",
    "tenants",
    "tried",
}
CHUNK_KEYS = {"chunk_bound_s", "chunk_gap"}
GRID_KEYS = {"epoch_s", "epochs", "grid_time_s", "bound_epochs", "grid_bound_s", "grid_gap"}


@pytest.fixture(scope="module")
def problem():
    """An AllGather whose ring takes 3 (0.5 + 5) us."""
    demand = Demand.collective("allgather", size="1MB")
    return Problem(topology=Topology.parse("ring:gpus=4"), demand=demand)


@pytest.fixture(scope="module")
def result(problem):
    schedule = build_baseline("ring", problem)
    return Result(
        status=Status.FEASIBLE,
        requested_method="auto",
        problem=problem,
        schedule=schedule,
        finish_ps=schedule.finish_ps,
        tenant_finish_ps=(schedule.finish_ps,),
        bound=BoundSummary(
            physical_ps=8_000_000, certificate="the port of gpu0", chunk_ps=11_000_000
        ),
        verified=True,
        solve_seconds=0.25,
        tried=(Attempt(1, "ring", 16.5e-6),),
    )


@pytest.fixture(scope="module")
def failure(problem):
    return Result(
        status=Status.INFEASIBLE, requested_method="ring", problem=problem, message="no path"
    )


def test_figures_follow_from_schedule_and_bound(result):
    """Time, gap and bandwidths are those of the replay and the bound."""
    assert result.finish_time_s == 16.5e-6
    assert result.physical_bound_s == 8e-6
    assert result.physical_gap == pytest.approx(16.5 / 8 - 1)
    assert result.algbw_GBps == pytest.approx(1e6 / 16.5e-6 / 1e9)
    assert result.busbw_GBps == pytest.approx(0.75 * result.algbw_GBps)
    assert (result.method, result.num_sends, result.num_gpus) == ("ring", 12, 4)
    assert result.tenants == (("tenant0", 16.5e-6),)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        (Collective.ALLREDUCE, Fraction(14, 8)),
        (Collective.ALLGATHER, Fraction(7, 8)),
        (Collective.REDUCESCATTER, Fraction(7, 8)),
        (Collective.ALLTOALL, Fraction(7, 8)),
        (Collective.BROADCAST, Fraction(1)),
        (Collective.REDUCE, Fraction(1)),
        (Collective.GATHER, Fraction(1)),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(collective, factor):
    """Bus bandwidth is algorithm bandwidth times the factor of nccl-tests."""
    assert bus_factor(Tenant(collective=collective, size=Fraction(1)), 8) == factor


def test_bus_factor_counts_the_members():
    """Ranks that take no part do not enter the factor."""
    tenant = Tenant(collective=Collective.ALLGATHER, size=Fraction(1), ranks=(0, 3))
    assert bus_factor(tenant, 8) == Fraction(1, 2)


def test_json_has_the_contract_keys(result):
    """Off the grid with chunks chosen automatically neither grid nor chunk keys appear."""
    figures = result.to_dict()
    assert set(figures) == PLAIN_KEYS
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert figures["status"] == "feasible"
    assert figures["size_bytes"] == 1_000_000
    assert type(figures["size_bytes"]) is int
    assert figures["tenants"] == [{"name": "tenant0", "finish_time_s": 16.5e-6}]
    assert figures["tried"] == [{"num_chunks": 1, "method": "ring", "finish_time_s": 16.5e-6}]


def test_given_chunks_add_their_bound(result):
    """Off the grid with given chunks the bound for whole chunks appears, too."""
    figures = replace(result, given_chunks=True).to_dict()
    assert set(figures) == PLAIN_KEYS | CHUNK_KEYS
    assert figures["chunk_bound_s"] == 11e-6
    assert figures["chunk_gap"] == pytest.approx(0.5)


def test_chunk_bound_is_never_below_the_physical_bound(result):
    """What holds for any chunking holds for given chunks."""
    bound = BoundSummary(physical_ps=8_000_000, certificate="", chunk_ps=None)
    assert replace(result, given_chunks=True, bound=bound).chunk_bound_s == 8e-6


def test_grid_adds_its_keys(result, problem):
    """On a grid epochs and their bound appear, and no bound for chunks off it."""
    bound = BoundSummary(physical_ps=8_000_000, certificate="", epochs=3)
    on_grid = replace(
        result, grid=TimeGrid.build(problem), epochs=4, bound=bound, given_chunks=True
    )
    figures = on_grid.to_dict()
    assert set(figures) == PLAIN_KEYS | GRID_KEYS
    assert figures["epoch_s"] == 5e-6
    assert figures["grid_time_s"] == 20e-6
    assert figures["grid_bound_s"] == 15e-6
    assert figures["grid_gap"] == pytest.approx(1 / 3)


def test_without_a_schedule_its_keys_are_null(failure):
    """An infeasible result has the same keys, the schedule's null and verified false."""
    figures = failure.to_dict()
    assert set(figures) == PLAIN_KEYS
    absent = {key for key, value in figures.items() if value is None}
    assert absent == {
        "method",
        "num_chunks",
        "chunk_bytes",
        "finish_time_s",
        "physical_bound_s",
        "physical_gap",
        "certificate",
        "algbw_GBps",
        "busbw_GBps",
        "num_sends",
    }
    assert figures["verified"] is False
    assert figures["tenants"] == [{"name": "tenant0", "finish_time_s": None}]


def test_given_chunks_stay_without_a_schedule(failure):
    """What the user fixed is reported even if nothing came of it."""
    assert replace(failure, given_chunks=True).to_dict()["num_chunks"] == 1


def test_summary_is_an_aligned_table(result):
    """Names stand in one column and values in the next, times with their unit."""
    lines = result.summary().splitlines()
    column = lines[0].index("feasible")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)
    assert "16.5 us" in result.summary()
    assert "ring (requested auto)" in result.summary()
    assert "8 us (gap 106 %)" in result.summary()


def test_summary_says_why_there_is_no_schedule(failure):
    """An infeasible result prints its message and no figures of a schedule."""
    assert "no path" in failure.summary()
    assert "finish" not in failure.summary()


def test_summary_lists_several_tenants(problem):
    """Each tenant's finish has a line of its own when there are several."""
    tenants = tuple(replace(problem.demand.tenants[0], name=name) for name in ("red", "blue"))
    shared = replace(problem, demand=Demand(tenants=tenants))
    result = Result(
        status=Status.FEASIBLE,
        requested_method="shortest-path",
        problem=shared,
        schedule=build_baseline("shortest-path", shared),
        finish_ps=2_000_000,
        tenant_finish_ps=(1_000_000, 2_000_000),
    )
    assert "  blue" in result.summary()
    assert result.busbw_GBps == pytest.approx(0.75 * result.algbw_GBps)


def test_gap_of_a_zero_bound_is_undefined(result):
    """A bound of nothing gives no gap rather than an infinite one."""
    bound = BoundSummary(physical_ps=0, certificate="")
    assert replace(result, bound=bound).physical_gap is None


def test_result_is_frozen_and_pickles(result):
    """Results travel between processes and cannot be changed."""
    with pytest.raises(FrozenInstanceError):
        result.status = Status.OPTIMAL
    assert pickle.loads(pickle.dumps(result)).to_dict() == result.to_dict()


def test_repr_is_short(result, failure):
    """A result prints what, where and how long."""
    assert repr(result) == "Result(feasible, allgather on 'ring', 16.5 us by ring)"
    assert repr(failure) == "Result(infeasible, allgather on 'ring', no schedule)"
