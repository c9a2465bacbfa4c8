"""Sweeps: the best for each size, kept for later, and plans made of them."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from fractions import Fraction
from itertools import pairwise

import pytest
from tests.cli.helpers import assert_refused, run

from teccl import Schedule, verify
from teccl.errors import MethodError
from teccl.studies.planning import finish_at, size_ranges, write_plan
from teccl.studies.store import Store
from teccl.studies.sweeping import sweep


def test_the_best_method_wins(here):
    """Of several methods each size has the fastest."""
    both = sweep(
        "fully-connected:gpus=4",
        "allreduce",
        sizes="1KB,16MB",
        methods="ring,double-binary-tree",
        place=here,
    )
    for row in both.rows:
        times = [outcome.result.finish_ps for outcome in row.outcomes]
        assert len(times) == 2
        assert row.best.finish_ps == min(times)


def test_a_second_sweep_solves_nothing(here):
    """Finished sizes come from the store, with the same figures."""
    first = sweep("ring:gpus=4", "allgather", sizes="1KB:64KB", place=here)
    again = sweep("ring:gpus=4", "allgather", sizes="1KB:256KB", place=here)
    assert (first.num_stored, again.num_stored) == (0, 4)
    assert again.to_csv().startswith(first.to_csv())


def test_a_size_without_schedule_says_why(here):
    """A fabric that is cut has a row with the reason."""
    links = ["0:1", "2:3"]
    found = sweep("ring:gpus=4", "allgather", sizes="1KB", without_links=links, place=here)
    assert "cannot get" in found.rows[0].reason


def test_a_sweep_in_which_everything_fails_is_refused(here):
    """There is nothing to return, so the reason is raised."""
    with pytest.raises(MethodError, match="recursive-doubling"):
        sweep("ring:gpus=3", "allgather", sizes="1KB,2KB", methods="recursive-doubling", place=here)


def test_a_sweep_is_walked_row_by_row(here):
    """Rows come in the order asked for."""
    found = sweep("ring:gpus=4", "allgather", sizes="2KB,1KB", methods="ring", place=here)
    assert [int(row.size_bytes) for row in found] == [2000, 1000]
    assert len(found) == 2


def test_replay_for_another_size_is_exact(here):
    """A schedule with fixed chunks takes for k times the size what solving that size says."""
    small = sweep("ring:gpus=4", "allgather", sizes="1MB", methods="ring", chunks="2", place=here)
    large = sweep("ring:gpus=4", "allgather", sizes="8MB", methods="ring", chunks="2", place=here)
    schedule = small.results[0].schedule
    assert finish_at(schedule, Fraction(8_000_000)) == large.results[0].finish_ps


def test_ranges_cover_all_sizes_once(here):
    """Ranges follow each other without gap, each with the better schedule at its ends."""
    found = sweep("dgx1", "allgather", sizes="1KB,1MB", methods="auto", place=here)
    ranges = size_ranges(found.results)
    assert len(ranges) > 1
    assert ranges[0].min_bytes == 0
    for one, other in pairwise(ranges):
        assert one.max_bytes == other.min_bytes
        edge = Fraction(other.min_bytes)
        times = [finish_at(r.result.schedule, edge) for r in (one, other)]
        assert times[1] < times[0]


def test_plans_hold_verified_files(here, tmp_path):
    """A plan names a schedule and an export for each range, and a tuner's table."""
    found = sweep("dgx1", "allgather", sizes="1KB,1MB", place=here)
    plan = write_plan(found, tmp_path / "plan", targets=("msccl",), place=here)
    assert json.loads((tmp_path / "plan" / "plan.json").read_text()) == plan
    for entry in plan["ranges"]:
        assert verify(Schedule.load(tmp_path / "plan" / entry["schedule"])) == ()
        (name,) = entry["exports"]["msccl"]["files"]
        text = (tmp_path / "plan" / name).read_text()
        assert f'minBytes="{entry["minBytes"]}"' in text
    lines = (tmp_path / "plan" / "tuner.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    assert all(len(row) == 10 and row[0] == "allgather" and row[3] == "ring" for row in rows)
    assert [int(row[1]) for row in rows[1:]] == [int(row[2]) + 1 for row in rows[:-1]]


def test_the_command_prints_a_table_and_files(tmp_path):
    """Table, CSV, JSON and figure agree."""
    arguments = ("sweep", "ring:gpus=4", "allgather", "--sizes", "1KB,1MB", "--jobs", 1)
    outcome = run(*arguments, "--csv", tmp_path / "t.csv", "--plot", tmp_path / "t.svg")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0].split()[:2] == ["size", "(B)"]
    printed = json.loads(run(*arguments, "--json").out)
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["finish_time_s"] for row in rows] == [str(r["finish_time_s"]) for r in printed]
    assert (tmp_path / "t.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sizes", "x"),
        ("--methods", "rings"),
        ("--chunks", "0"),
        ("--jobs", "0"),
        ("--to", "msccl"),
        ("--csv", "table.txt"),
        ("--dask", "tcp://127.0.0.1:1", "--mpi"),
    ],
)
def test_bad_options_are_refused(arguments):
    """One line and code 2, before any work."""
    assert_refused(run("sweep", "ring:gpus=4", "allgather", *arguments))


def table(folder):
    """Return the rows of a sweep's CSV without times."""
    with (folder / "table.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    return [{k: v for k, v in row.items() if k != "solve_seconds"} for row in rows]


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path):
    """Killed at random moments and started again, a sweep repeats no finished size."""
    command = [sys.executable, "-m", "teccl", "sweep", "ndv2:chassis=2", "allgather"]
    command += ["--sizes", "1KB:1GB", "--csv", str(tmp_path / "table.csv"), "--quiet"]
    environment = {**os.environ, "TECCL_STORE": str(tmp_path / "killed.sqlite")}
    generator = random.Random(0)
    for _ in range(20):
        process = subprocess.Popen(command, env=environment)
        time.sleep(generator.uniform(0.5, 6.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, env=environment, check=True)
    with Store(tmp_path / "killed.sqlite") as store:
        assert list(store.writes().values()) == [1] * 11
    killed = table(tmp_path)
    environment["TECCL_STORE"] = str(tmp_path / "whole.sqlite")
    subprocess.run(command, env=environment, check=True)
    assert killed == table(tmp_path)


def test_chunk_tolerance_is_handed_on():
    """Fewer chunks where they may end later; beside given numbers of chunks it is refused."""
    words = ("sweep", "ring:gpus=4", "allgather", "--sizes", "1MB", "--no-store", "--jobs", "1")
    (row,) = json.loads(run(*words, "--chunk-tolerance", "50%", "--json").out)
    assert row["num_chunks"] == 1
    outcome = run(*words, "--chunks", "2", "--chunk-tolerance", "50%")
    assert_refused(outcome)
    assert "chunk tolerance" in outcome.err
