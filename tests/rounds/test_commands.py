"""`teccl simulate --rounds`: what rounds cost, beside the schedule's own time."""

import json
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run
from tests.torch.schedules import solved


@pytest.fixture
def schedule(tmp_path: Path) -> Path:
    """A broadcast along a line, in chunks that overlap."""
    path = tmp_path / "schedule.json"
    solved("line:gpus=4", "broadcast", size="1MB", chunks=8).save(path)
    return path


def test_rounds_stand_beside_the_finish_time(schedule):
    """The table has the time in rounds, the ratio and how many there are."""
    outcome = run("simulate", schedule, "--rounds")
    assert (outcome.code, outcome.err) == (0, "")
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("in rounds")]
    assert line.endswith("3 rounds")
    assert "times" in line


def test_json_has_the_rounds_only_where_asked_for(schedule):
    """The overhead is counted for each round."""
    plain = json.loads(run("simulate", schedule, "--json").out)
    assert "rounds" not in plain
    free, dear = (
        json.loads(run("simulate", schedule, "--rounds", *more, "--json").out)["rounds"]
        for more in ((), ("--round-overhead", "1ms"))
    )
    assert (free["num_rounds"], dear["num_rounds"]) == (3, 3)
    assert dear["finish_time_s"] == pytest.approx(free["finish_time_s"] + 3e-3)
    assert free["finish_time_s"] > plain["finish_time_s"]


def test_a_bad_overhead_is_refused(schedule):
    """One line names the value."""
    assert_refused(run("simulate", schedule, "--rounds", "--round-overhead", "soon"))
