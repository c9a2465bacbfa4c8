"""Schedules that shifts repeat: files with one chunk of each orbit, and shifts that are wrong."""

import json

import numpy as np
import pytest
from tests.verification.helpers import task, wants

import teccl
from teccl.errors import ScheduleError
from teccl.schedule import Schedule, orbits, schedule_files, send_array
from teccl.schedule.orbits import folded, unfolded
from teccl.topology import Topology
from teccl.verification import verify

COLUMNS = ("chunk", "link", "start_ps", "epoch", "reduce")


@pytest.fixture(autouse=True)
def short_rows(monkeypatch):
    """Write small schedules as long ones are written."""
    monkeypatch.setattr(schedule_files, "MAX_ROWS", 3)


def gathered(spec: str, **options) -> Schedule:
    """Solve an AllGather on a fabric with a symmetry."""
    return teccl.solve(spec, "allgather", size="1MB", **options).schedule


@pytest.mark.parametrize(
    ("spec", "options", "orbits"),
    [
        ("ring:gpus=6", {"chunks": 2}, 2),
        ("torus:dims=3x4,alpha=0", {"chunks": 1, "grid": True}, 1),
        ("torus:dims=2x3x3", {"chunks": 1}, 1),
    ],
)
def test_one_chunk_of_each_orbit_is_stored(tmp_path, spec, options, orbits):
    """A file is a small part of the schedule, gives it back whole and is written again alike."""
    schedule = gathered(spec, **options)
    path, again = tmp_path / "a.json", tmp_path / "b.json"
    schedule.save(path)
    stored = json.loads(path.read_text())["sends"]
    gpus = schedule.problem.topology.num_gpus
    assert stored["shifts"]
    assert len(stored["chunk"]) == len(schedule) // gpus
    assert len(set(stored["chunk"])) == orbits
    loaded = Schedule.load(path)
    assert all(np.array_equal(loaded.sends[name], schedule.sends[name]) for name in COLUMNS)
    assert verify(loaded) == ()
    loaded.save(again)
    assert path.read_bytes() == again.read_bytes()


def test_a_schedule_that_shifts_do_not_repeat_is_stored_whole(tmp_path):
    """One send out of line is enough."""
    schedule = gathered("ring:gpus=6", chunks=2)
    sends = schedule.sends.copy()
    sends["start_ps"][-1] += 1
    bent = Schedule(problem=schedule.problem, sends=sends, shifts=schedule.shifts)
    assert folded(schedule) is not None
    assert folded(bent) is None
    bent.save(tmp_path / "bent.json")
    assert "shifts" not in json.loads((tmp_path / "bent.json").read_text())["sends"]


def test_transfers_of_different_images_are_different():
    """Names of transfers never meet."""
    schedule = gathered("ring:gpus=6", chunks=2)
    whole = unfolded(schedule.problem, schedule.shifts, folded(schedule))
    assert len(np.unique(whole["transfer"])) == len(whole)


@pytest.mark.parametrize(
    ("shifts", "words"),
    [
        ([[0, 1, 2, 3, 4]], "give a permutation of 6"),
        ([[0, 0, 1, 2, 3, 4]], "give a permutation of 6"),
        ([[0, 1, 2, 3, 4, 6]], "give a permutation of 6"),
        ([[0, 1, 2, 3, 4, 5]], "moves no nodes"),
        ([["a", 1, 2, 3, 4, 5]], r"shifts\[0\]\[0\]: node is 'a'; give a whole number"),
        ([[1, 0, 2, 3, 4, 5]], "takes some link or chunk to none"),
        ([[1, 2, 3, 4, 5, 0], [5, 4, 3, 2, 1, 0]], "does not commute"),
        ([[1, 2, 3, 4, 5, 0]] * 2, "36 times, which is too much"),
        ([[1, 2, 3, 4, 5, 0]] * 20, "too many"),
        (7, "list"),
    ],
)
def test_wrong_shifts_are_refused(tmp_path, shifts, words):
    """A damaged file is refused with a reason."""
    path = tmp_path / "a.json"
    gathered("ring:gpus=6", chunks=2).save(path)
    document = json.loads(path.read_text())
    document["sends"]["shifts"] = shifts
    path.write_text(json.dumps(document))
    with pytest.raises(ScheduleError, match=words) as refusal:
        Schedule.load(path)
    assert str(path) in str(refusal.value)
    document["sends"] = {name: [] for name in document["sends"]} | {"shifts": shifts}
    path.write_text(json.dumps(document))
    with pytest.raises(ScheduleError):
        Schedule.load(path)


def test_chunks_that_are_alike_are_stored_whole():
    """Which of two equal chunks is another's image nobody can say."""
    chunks = [((i,), ((i + 1) % 4,)) for i in (0, 0, 1, 2, 3)]
    problem = task(Topology.parse("ring:gpus=4"), wants(*chunks))
    links = [problem.topology.find_links(f"{s[0]}>{d[0]}")[0] for s, d in chunks]
    sends = send_array([0, 1, 2, 3, 4], links, [0, 10**6, 0, 0, 0])
    schedule = Schedule(problem=problem, sends=sends, shifts=(np.array([1, 2, 3, 0]),))
    assert folded(schedule) is None


def test_what_is_too_large_to_read_is_stored_whole(monkeypatch):
    """A file that the reader would refuse is never written."""
    schedule = gathered("ring:gpus=6", chunks=2)
    monkeypatch.setattr(orbits, "MAX_SENDS", 5)
    assert folded(schedule) is None


def test_shifts_of_huge_order_are_refused(tmp_path):
    """Cycles of many lengths would repeat the sends beyond all memory."""
    schedule = teccl.solve("fully-connected:gpus=60", "allgather", size="1MB", chunks=1).schedule
    primes, shift, first = (2, 3, 5, 7, 11, 13, 17), [], 0
    for length in primes:
        shift += [first + (i + 1) % length for i in range(length)]
        first += length
    shift += range(first, 60)
    with pytest.raises(ScheduleError, match="times"):
        unfolded(schedule.problem, (np.array(shift),), schedule.sends)
