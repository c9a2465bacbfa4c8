"""Estimates of what a construction takes: near what it made, and refused beyond the memory."""

import pytest

import teccl
from teccl import Demand, Problem, Topology
from teccl.errors import MethodError
from teccl.footprint import construction_footprint, free_memory, least_sends
from teccl.synthesis import solving


@pytest.mark.parametrize(
    ("spec", "collective"),
    [
        ("torus:dims=4x4", "allgather"),
        ("torus:dims=4x4", "allreduce"),
        ("torus:dims=4x4", "alltoall"),
        ("mesh:dims=3x4", "broadcast"),
        ("dgx-h100:chassis=2", "reducescatter"),
        ("dgx-h100:chassis=2", "alltoall"),
    ],
)
def test_sends_are_about_those_of_the_schedule(spec, collective):
    """The estimate is within a factor of two of what is then made."""
    result = teccl.solve(spec, collective, size="1MB", chunks=1, effort="quick")
    sends = construction_footprint(result.problem).sends
    assert result.num_sends / 2 <= sends <= 2 * result.num_sends


def test_large_constructions_are_announced(monkeypatch):
    """Whoever watches hears of sends, memory and time before the work begins."""
    monkeypatch.setattr(solving, "MILLION", 10)
    heard = []
    teccl.solve("ring:gpus=4", "allgather", size="1MB", progress=heard.append)
    first = next(event for event in heard if event.phase == "construct")
    assert first.incumbent_s is None
    assert "16 sends" in first.message
    assert "GB" in first.message


def test_what_does_not_fit_is_refused(monkeypatch):
    """No memory is filled to learn that it is too small."""
    monkeypatch.setattr(solving, "MILLION", 10)
    monkeypatch.setattr(solving, "free_memory", lambda: 1000.0)
    with pytest.raises(MethodError, match="GB are free; use fewer GPUs"):
        teccl.solve("ring:gpus=4", "allgather", size="1MB")


def test_estimates_grow_with_the_fabric():
    """Sixteen times the deliveries are sixteen times the memory."""
    sizes = []
    for dims in ("4x4", "8x8"):
        topology = Topology.parse(f"torus:dims={dims}")
        problem = Problem(topology=topology, demand=Demand.collective("allgather", size="1MB"))
        sizes.append(construction_footprint(problem).num_bytes)
    assert sizes[1] == 16 * sizes[0]
    assert free_memory() > 0


def test_sends_are_counted_before_chunks_are_listed():
    """What no memory holds is refused by counting, for every kind of demand."""
    assert least_sends(Demand.collective("allgather", size="1MB"), 99999) == 99999 * 99998
    assert least_sends(Demand.collective("broadcast", size="1MB"), 8) == 7
    with pytest.raises(MethodError, match="99999 GPUs"):
        teccl.solve("line:gpus=99999", "allgather", size="1MB")
