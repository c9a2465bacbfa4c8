"""Counterparts: AllReduces made of schedules for other collectives."""

from typing import Any

import pytest

import teccl
from teccl.construct.counterparts import gathered_and_added, scattered_and_gathered
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.replay import simulate
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.strategies import PORTFOLIO
from teccl.synthesis.strategies.counterparts import Counterparts
from teccl.topology import Topology
from teccl.verification import has_same_order, verify

MACHINES = ["dgx1", "torus:dims=3x3", "star:gpus=5", "dgx-h100:chassis=2", "mesh:dims=2x3"]
# Any schedule will do.
SOON: dict[str, Any] = {"method": "construct", "effort": "quick"}


def allreduce(machine: str, *, chunks: int, whole: bool, ranks: tuple[int, ...] | None) -> Problem:
    """Return an AllReduce of 64 KB."""
    demand = Demand.collective("allreduce", size="64KB", ranks=ranks)
    topology = Topology.parse(machine)
    return Problem(topology=topology, demand=demand, num_chunks=chunks, whole_buffer=whole)


@pytest.mark.parametrize("ranks", [None, (0, 1, 3)])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("chunks", [1, 3])
def test_whole_buffers_that_are_gathered_are_sums(machine: str, chunks: int, ranks) -> None:
    """One shot made of an AllGather of whole buffers is correct, in one order, and ends with it."""
    problem = allreduce(machine, chunks=chunks, whole=True, ranks=ranks)
    members = len(ranks) if ranks else problem.num_gpus
    size = members * 64_000
    gather = teccl.solve(machine, "allgather", size=size, ranks=ranks, chunks=chunks, **SOON)
    assert gather.schedule is not None
    schedule = gathered_and_added(problem, gather.schedule)
    assert not verify(schedule)
    assert has_same_order(schedule)
    assert simulate(schedule).finish_ps <= gather.finish_ps


@pytest.mark.parametrize("ranks", [None, (0, 1, 3)])
@pytest.mark.parametrize("machine", MACHINES)
def test_halves_one_after_the_other_are_a_sum(machine: str, ranks) -> None:
    """A ReduceScatter and an AllGather make an AllReduce that ends no later than both in turn."""
    problem = allreduce(machine, chunks=2, whole=False, ranks=ranks)
    scatter, gather = (
        teccl.solve(machine, half, size="64KB", chunks=2, ranks=ranks, **SOON)
        for half in ("reducescatter", "allgather")
    )
    assert scatter.schedule is not None
    assert gather.schedule is not None
    schedule = scattered_and_gathered(problem, scatter.schedule, gather.schedule)
    assert not verify(schedule)
    assert simulate(schedule).finish_ps <= scatter.finish_ps + gather.finish_ps


@pytest.mark.parametrize("size", ["1KB", "64KB"])
def test_parts_are_searched_for_where_nothing_better_is_known(size: str) -> None:
    """Alone, the strategy ends no later than one shot and two halves that are solved apart."""
    request = Request(
        topology=Topology.parse("dgx1"), demand=Demand.collective("allreduce", size=size)
    )
    search = Search(request=request, started=0.0)
    search.bound = search.prove(request.problem(1), narrow=False)
    baselines = next(each for each in PORTFOLIO if each.name == "baselines")
    next(iter(baselines.attempts(search)))
    list(Counterparts().attempts(search))
    tenant = request.demand.tenants[0]
    halves = [teccl.solve("dgx1", half, size=size) for half in ("reducescatter", "allgather")]
    shot = teccl.solve("dgx1", "allgather", size=8 * tenant.size)
    rivals = (sum(each.finish_ps for each in halves), shot.finish_ps)
    assert search.incumbents.fastest <= min(rivals) * 1.001


@pytest.mark.parametrize(
    "options", [{"chunks": 2}, {"buffer": 1}, {"copy": False}, {"grid": True, "chunks": 1}]
)
def test_what_parts_cannot_promise_is_left_to_others(options) -> None:
    """Given chunks, few buffers and no copies mean something else for the parts."""
    request = Request(
        topology=Topology.parse("dgx1"),
        demand=Demand.collective("allreduce", size="1MB"),
        **options,
    )
    assert Counterparts().refusal(Search(request=request, started=0.0).features)
