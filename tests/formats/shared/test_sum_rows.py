"""Programs that keep several partial sums apart, read back."""

import pytest
from tests.verification.partial import exchange, one_shot

import teccl
from teccl.formats.reading import import_schedule
from teccl.topology import Topology


@pytest.mark.parametrize("to", ["msccl", "rccl"])
@pytest.mark.parametrize("in_place", [False, True])
def test_one_shot_comes_back(tmp_path, to, in_place):
    """A program with scratch becomes a schedule with partial sums that ends as early."""
    schedule = one_shot(Topology.parse("ring:gpus=5"), 1000, 2)
    path = tmp_path / "program.xml"
    teccl.export(schedule, to=to, path=path, in_place=in_place)
    read = import_schedule(path, "msccl", topology=schedule.problem.topology, size=1000).schedule
    assert teccl.verify(read) == ()
    assert read.sums is not None
    assert read.problem.whole_buffer
    assert len(read) == len(schedule)
    assert read.finish_ps == schedule.finish_ps


def test_exchanges_come_back(tmp_path):
    """Sums that are formed as they come are rows of their own again."""
    schedule = exchange(2, 1000)
    path = tmp_path / "program.xml"
    teccl.export(schedule, to="msccl", path=path)
    read = import_schedule(path, "msccl", topology=schedule.problem.topology, size=1000).schedule
    assert teccl.verify(read) == ()
    assert read.finish_ps == schedule.finish_ps


def test_accumulators_stay_accumulators(tmp_path):
    """A program that one accumulator serves is read as before."""
    schedule = teccl.solve("ring:gpus=4", "allreduce", size="1KB", method="ring").schedule
    path = tmp_path / "program.xml"
    teccl.export(schedule, to="msccl", path=path)
    read = import_schedule(path, "msccl", topology=schedule.problem.topology, size=1000).schedule
    assert read.sums is None
    assert teccl.verify(read) == ()
