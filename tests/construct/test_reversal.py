"""Reversal: reductions from multicasts on the reversed network, and where that is not allowed."""

import numpy as np
import pytest
from tests.construct.small import best_plan, make_instance, make_problem, verified

from teccl.construct.instance import Instance
from teccl.construct.multicast import Tables, greedy
from teccl.construct.plan import Plan
from teccl.construct.reversal import can_reverse, reversed_plan, transposed_problem
from teccl.demand import Collective, Demand
from teccl.demand.demand_files import demand_from_dict
from teccl.problem import SwitchMode


def multicast(backward: Instance, tables: Tables) -> Plan | None:
    """Make a multicast for the reversed network."""
    return greedy(backward, tables, seed=0, join=True)


@pytest.mark.parametrize("spec", ["dgx1", "ring:gpus=5", "ndv2:chassis=2", "mesh:dims=2x3"])
@pytest.mark.parametrize("collective", ["reducescatter", "reduce"])
def test_reversed_multicasts_are_reductions(spec: str, collective: str) -> None:
    """An AllGather or Broadcast turned round is a verified reduction that takes as long."""
    made = make_instance(spec, collective)
    plan = reversed_plan(made, multicast)
    assert plan is not None
    assert plan.reduce is not None
    assert plan.reduce.all()
    assert verified(made, plan).finish_ps == plan.finish


@pytest.mark.parametrize("spec", ["dgx2", "star:gpus=4", "dgx-h100:chassis=2"])
def test_reductions_through_switches(spec: str) -> None:
    """A switch that only copies combines nothing, and the schedule does without."""
    made = make_instance(spec, "reducescatter")
    verified(made, best_plan(made, level="quick"))


def test_reversal_on_the_grid() -> None:
    """A ReduceScatter needs as many epochs as the AllGather: two on a DGX-1 without latency."""
    made = make_instance("dgx1:alpha=0", "reducescatter", "200KB", epoch="slowest")
    plan = best_plan(made, target=2)
    assert plan.finish == 2
    verified(made, plan)


def test_transposed_problem() -> None:
    """Links turn round, the collective is the mirror image, and switches stop copying."""
    problem = make_problem("dgx2", "reducescatter")
    mirror = transposed_problem(problem)
    assert np.array_equal(mirror.topology.link_src, problem.topology.link_dst)
    assert mirror.demand.tenants[0].collective is Collective.ALLGATHER
    assert mirror.switch is SwitchMode.NO_COPY
    for chunk in range(len(problem.chunks)):
        assert np.array_equal(mirror.chunks.sources(chunk), problem.chunks.destinations(chunk))


@pytest.mark.parametrize("collective", ["gather", "alltoall", "scattergather"])
def test_collectives_without_a_mirror_swap_the_ends_of_every_chunk(collective: str) -> None:
    """A Gather turns into a Scatter, an AllToAll into one whose chunks have other numbers."""
    problem = make_problem("ring:gpus=4", Demand.collective(collective, size="1MB"))
    mirror = transposed_problem(problem)
    for chunk in range(len(problem.chunks)):
        assert np.array_equal(mirror.chunks.sources(chunk), problem.chunks.destinations(chunk))
        assert np.array_equal(mirror.chunks.destinations(chunk), problem.chunks.sources(chunk))


READY = {"collective": "reducescatter", "size": "1MB", "ready": {"1": "9us"}}
PROFILED = {
    "nodes": 2,
    "links": [
        {"src": 0, "dst": 1, "bandwidth": "1GB/s", "profile": [["1us", "2GB/s"]]},
        {"src": 1, "dst": 0, "bandwidth": "1GB/s"},
    ],
}


def test_time_must_be_free_to_run_backwards() -> None:
    """Ready times and bandwidth profiles rule reversal out."""
    assert can_reverse(make_problem("ring:gpus=4", "reducescatter"))
    assert not can_reverse(make_problem("ring:gpus=4", demand_from_dict(READY)))
    assert not can_reverse(make_problem(PROFILED, "reducescatter", "2KB"))


def test_ready_times_are_kept_without_reversal() -> None:
    """Where reversal is ruled out reductions are laid forwards and verify."""
    made = make_instance("ring:gpus=4", demand_from_dict(READY))
    verified(made, best_plan(made, level="quick"))
    made = make_instance(PROFILED, "reducescatter", "2KB")
    verified(made, best_plan(made, level="quick"))
