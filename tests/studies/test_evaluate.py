"""Quick evaluations: verified, between the bound and what solve finds."""

import pytest

import teccl
from teccl import Topology, verify


@pytest.mark.parametrize("collective", ["allgather", "alltoall", "allreduce"])
def test_evaluations_are_verified_and_bounded(collective):
    """Every schedule is correct, and no bound lies above it."""
    topology = Topology.parse("random:gpus=8,seed=1")
    found = teccl.evaluate(topology, collective, ["1KB", "1MB", "64MB"])
    assert found.is_feasible
    for schedule, finish, bound in zip(
        found.schedules, found.finish_ps, found.bound_ps, strict=True
    ):
        assert verify(schedule) == ()
        assert bound <= finish == schedule.finish_ps


def test_evaluations_rank_like_solving():
    """A topology with twice the bandwidth is found better."""
    slow, fast = (
        teccl.evaluate(f"random:gpus=16,seed=3,bandwidth={rate}GB/s", "allgather", ["64MB"])
        for rate in (25, 50)
    )
    assert fast.finish_ps[0] < 0.6 * slow.finish_ps[0]


def test_a_cut_topology_is_infeasible():
    """No way between some ranks gives no times, not an error."""
    cut = Topology.parse("line:gpus=3").without_links(["0:1"])
    found = teccl.evaluate(cut, "allgather", ["1KB", "1MB"])
    assert found.finish_times_s == (None, None)
    assert not found.is_feasible
