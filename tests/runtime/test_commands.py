"""`teccl run` and `teccl calibrate` as commands: what they print, and what they refuse."""

import json
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run
from tests.test_schemas import assert_fits

import teccl

pytest.importorskip("mpi4py", reason="mpi4py is not installed; pip install 'teccl[mpi]'")


@pytest.fixture
def schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A schedule for two ranks whose size is no whole number of elements."""
    monkeypatch.chdir(tmp_path)
    result = teccl.solve("ring:gpus=2", "allgather", size="1001B", chunks=1, effort="quick")
    result.schedule.save("schedule.json")
    return Path("schedule.json")


def test_the_table_is_that_of_nccl_tests(schedule):
    """Size, count, type, time, bandwidths and errors beside the library's; padding is said."""
    outcome = run("run", schedule, "--repeat", 2, "--warmup", 0, "--check")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert "1001 bytes of the schedule padded onto whole elements: 1008" in lines
    heads, ours, library = (line.split() for line in lines[-3:])
    assert heads[:6] == ["by", "size", "count", "type", "redop", "root"]
    assert heads[6:] == ["time", "algbw", "busbw", "wrong"]
    assert ours[:6] == ["teccl", "1008", "252", "float32", "-", "-"]
    assert library[2:4] == ours[1:3]
    assert (ours[-1], library[-1]) == ("0", "0")


def test_json_fits_its_schema(schedule):
    """The report holds every repeat, for the schedule and for the library."""
    outcome = run("run", schedule, "--repeat", 3, "--warmup", 1, "--json", "--check")
    document = json.loads(outcome.out)
    assert_fits("run", document)
    (row,) = document["rows"]
    assert len(row["teccl"]["seconds"]) == len(row["library"]["seconds"]) == 3
    assert (document["wrong"], document["differs"]) == (0, 0)


def test_emulated_links_print_the_simulated_time(schedule):
    """The measured time stands beside the simulated one; the library's has no meaning there."""
    outcome = run("run", schedule, "--emulate", "--time-scale", "1000", "--repeat", 1, "--json")
    document = json.loads(outcome.out)
    assert_fits("run", document)
    assert document["time_scale"] == 1000
    assert document["rows"][0]["library"] is None
    text = run("run", schedule, "--time-scale", "1000", "--repeat", 1, "--warmup", 0).out
    assert "links emulated 1000 times slower" in text


def test_only_the_ranks_in_use_are_started(tmp_path, monkeypatch):
    """A group of two in a ring of eight needs the ranks between them, not all."""
    monkeypatch.chdir(tmp_path)
    result = teccl.solve("line:gpus=8", "allgather", size="1KB", ranks=[1, 3], effort="quick")
    result.schedule.save("schedule.json")
    document = json.loads(run("run", "schedule.json", "--json", "--check", "--repeat", 1).out)
    assert (document["ranks"], document["wrong"]) == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeat", "0"], "repeat '0'"),
        (["--warmup", "-1"], "warmup '-1'"),
        (["--dtype", "complex64"], "data type 'complex64' is unknown"),
        (["--op", "xor"], "op 'xor' is unknown"),
        (["--timeout", "0"], "not positive"),
        (["--timeout", "soon"], "timeout 'soon'"),
        (["--time-scale", "-2"], "time scale '-2'"),
        (["--ranks", "7"], "needs 2"),
    ],
)
def test_bad_options_are_refused(schedule, arguments, message):
    """One line names the option's value and the remedy."""
    outcome = run("run", schedule, *arguments)
    assert_refused(outcome)
    assert message in outcome.err


def test_a_wrong_schedule_is_not_run(schedule):
    """A schedule that fails verification ends with code 3 before any rank starts."""
    document = json.loads(schedule.read_text(encoding="utf-8"))
    document["sends"].pop()
    schedule.write_text(json.dumps(document), encoding="utf-8")
    outcome = run("run", schedule)
    assert_refused(outcome, codes=(3,))
    assert "failed verification" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "1"], "ranks '1'"),
        (["--sizes", "1KB:1KB"], "fewer than two"),
        (["--sizes", "1:2"], "has no unit"),
        (["--emulate", "star:gpus=4"], "switches"),
        (["--emulate", "ring:gpus=4", "--ranks", "3"], "4 GPUs and there are 3 ranks"),
        (["--groups", "9"], "groups of 9"),
        (["--log", "absent.txt"], "does not exist"),
        (["-o", "file.txt"], "unknown kind of file"),
    ],
)
def test_bad_options_of_calibrate_are_refused(tmp_path, monkeypatch, arguments, message):
    """One line names the option's value and the remedy."""
    monkeypatch.chdir(tmp_path)
    outcome = run("calibrate", *arguments)
    assert_refused(outcome)
    assert message in outcome.err


def test_json_of_calibrate_fits_its_schema():
    """All fits with their confidence."""
    outcome = run("calibrate", "--repeat", 2, "--sizes", "1KB:64KB", "--json")
    document = json.loads(outcome.out)
    assert_fits("calibrate", document)
    assert (document["num_ranks"], len(document["links"])) == (2, 2)
