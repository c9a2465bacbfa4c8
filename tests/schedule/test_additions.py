"""Partial sums in the data model and in files."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.test_schemas import assert_fits, validator
from tests.verification.partial import exchange, one_shot

from teccl import Demand, Problem, Schedule, Topology
from teccl.errors import ScheduleError
from teccl.schedule import schedule_files, sum_array
from teccl.schedule.schedule_files import schedule_from_dict, schedule_to_dict
from teccl.timegrid import TimeGrid


@pytest.fixture
def schedule() -> Schedule:
    """A one-shot AllReduce on a ring of four, over two hops."""
    return one_shot(Topology.parse("ring:gpus=4"), 1024, 2)


def test_a_whole_buffer_is_cut_into_pieces():
    """S bytes make as many chunks of S / p as asked for, among however many ranks."""
    demand = Demand.collective("allreduce", size="1KB")
    problem = Problem(
        topology=Topology.parse("ring:gpus=5"), demand=demand, num_chunks=4, whole_buffer=True
    )
    assert len(problem.chunks) == 4
    assert problem.chunk_bytes == 250
    assert len(problem.chunks.sources(3)) == len(problem.chunks.destinations(3)) == 5


def test_whole_buffers_change_nothing_else():
    """Other collectives keep their blocks."""
    topology, demand = Topology.parse("ring:gpus=4"), Demand.collective("allgather", size="1KB")
    whole = Problem(topology=topology, demand=demand, whole_buffer=True)
    assert len(whole.chunks) == len(Problem(topology=topology, demand=demand).chunks)


def test_slots_are_numbered_by_chunk_and_gpu():
    """Without slots given, every row has one of its own, counted from zero."""
    sums = sum_array(chunk=[0, 0, 0, 1, 0], node=[0, 1, 0, 0, 1])
    assert sums["slot"].tolist() == [0, 0, 1, 0, 1]


def test_files_keep_everything(schedule, tmp_path):
    """A file of version 2 gives back the same schedule, and the same bytes."""
    schedule.save(tmp_path / "one.json")
    again = Schedule.load(tmp_path / "one.json")
    assert np.array_equal(again.sends, schedule.sends)
    assert np.array_equal(again.sums, schedule.sums)
    assert again.same_order
    assert again.problem == schedule.problem
    again.save(tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_files_fit_their_schema(schedule):
    """Rows and columns of version 2 fit the published schema, and mixtures do not."""
    document = schedule_to_dict(schedule)
    assert document["schema_version"] == 2
    assert_fits("schedule", document)
    document["schema_version"] = 1
    assert not validator("schedule").is_valid(json.loads(json.dumps(document)))
    del document["same_order"]
    document["schema_version"] = 2
    assert not validator("schedule").is_valid(json.loads(json.dumps(document)))


def test_long_files_list_columns(schedule, monkeypatch):
    """Many sends are listed by column, with what they carry."""
    monkeypatch.setattr(schedule_files, "MAX_ROWS", 3)
    document = schedule_to_dict(schedule)
    assert_fits("schedule", document)
    again = schedule_from_dict(document)
    assert np.array_equal(again.sends, schedule.sends)


def test_version_one_is_written_where_it_is_enough(schedule):
    """Accumulators alone need no new version."""
    problem = replace(schedule.problem, whole_buffer=False)
    empty = Schedule(problem=problem, sends=np.zeros(0, dtype=schedule.sends.dtype.descr[:-2]))
    document = schedule_to_dict(empty)
    assert document["schema_version"] == 1
    assert "sums" not in document
    assert schedule_to_dict(replace(empty, same_order=True))["schema_version"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["sums"]["slot"].pop(), "different lengths"),
        (lambda d: d["sums"]["left"].__setitem__(0, -1), "left[0] is -1"),
        (lambda d: d["sums"]["left"].__setitem__(1, 2), "adds one row only|must be from"),
        (lambda d: d["sums"]["chunk"].__setitem__(0, 99), "chunk 99"),
        (lambda d: d["sums"]["result"].__setitem__(0, 2), "from 0 to 1"),
        (lambda d: d["sends"][0].__setitem__("carries", 10**6), "carries 1000000"),
        (lambda d: d["sends"][0].pop("becomes"), "becomes"),
        (lambda d: d.__setitem__("sums", []), "sums"),
        (lambda d: d.__setitem__("same_order", 1), "same_order"),
        (lambda d: d["options"].pop("whole_buffer"), "whole_buffer"),
    ],
)
def test_damaged_files_are_refused_on_one_line(schedule, change, message):
    """What is wrong is named, and nothing else is raised."""
    document = json.loads(json.dumps(schedule_to_dict(schedule)))
    change(document)
    pattern = message.replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(ScheduleError, match=pattern) as caught:
        schedule_from_dict(document)
    assert "\n" not in str(caught.value)


def test_partial_sums_have_no_epochs(schedule):
    """A grid is refused."""
    grid = TimeGrid(problem=schedule.problem, epoch=schedule.problem.topology.links[0].alpha)
    with pytest.raises(ScheduleError, match="no epochs"):
        replace(schedule, grid=grid)


def test_sends_of_another_type_are_refused(schedule):
    """Sends that do not say what they carry do not go with partial sums."""
    with pytest.raises(ScheduleError, match="SUM_SEND_DTYPE"):
        replace(schedule, sends=np.zeros(0, dtype=schedule.sends.dtype.descr[:-2]))


def test_sends_tell_what_they_carry(schedule):
    """Iterating gives rows of the partial sums."""
    send = next(iter(schedule))
    assert schedule.sums["chunk"][send.carries] == send.chunk
    assert schedule.sums["chunk"][send.becomes] == send.chunk


def test_the_critical_path_follows_partial_sums():
    """Each send on it waits for the one before, in what it carries or on its link."""
    schedule = exchange(3, 1024)
    path = schedule.critical_path()
    assert len(path) == 3
    topology = schedule.problem.topology
    links = schedule.sends["link"][path]
    assert topology.link_dst[links[:-1]].tolist() == topology.link_src[links[1:]].tolist()
