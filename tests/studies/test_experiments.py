"""Experiments: complete, resumable, the same in every run, and no worse than the paper."""

import csv

import pytest
from tests.cli.helpers import assert_refused, run

from teccl.studies.experiments import run_experiments
from teccl.studies.experiments.catalogue import EXPERIMENTS, published
from teccl.studies.experiments.writing_up import to_csv


def test_the_ndv2_table_has_every_row_of_the_paper():
    """Fifty-five rows, each with a request on the paper's epochs and one without."""
    cases = EXPERIMENTS["ndv2"].cases(False, 0)
    assert len(cases) == len(list(published("paper_ndv2_2chassis"))) == 55
    assert all(len(case.tasks) == 2 for case in cases)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_quick_cases_are_few_and_can_be_named(name):
    """Quick mode has some cases of every experiment and no more than the full one."""
    quick, full = (EXPERIMENTS[name].cases(quick, 0) for quick in (True, False))
    assert 0 < len(quick) <= len(full)
    assert all(task.key for case in quick for task in case.tasks)


def test_two_runs_give_the_same_table_and_files(here, tmp_path):
    """All columns but times agree without a store, and a second run is taken from it."""
    from dataclasses import replace

    (fresh,) = run_experiments(["sccl-least-steps"], quick=True, place=replace(here, store=False))
    stored = [
        run_experiments(["sccl-least-steps"], quick=True, folder=tmp_path, place=here)
        for _ in range(2)
    ]
    assert to_csv(stored[0][0]) == to_csv(stored[1][0])
    tables = (fresh, stored[0][0])
    rows = [[{k: v for k, v in row.items() if k != "solve_s"} for row in t.rows] for t in tables]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4
    text = (tmp_path / "experiments.md").read_text()
    assert "SCCL's least steps" in text
    assert "numpy" in text
    with (tmp_path / "sccl-least-steps.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 4


def test_allgather_is_as_fast_as_the_paper_says(here):
    """On SCCL's instances of AllGather no more epochs are needed than in the paper."""
    cases = EXPERIMENTS["sccl-instance"].cases(True, 0)
    gathers = [case for case in cases if case.labels["collective"] == "allgather"]
    assert len(gathers) == 6
    with here.opened() as bench:
        for case in gathers:
            row = case.figures([outcome.result for outcome in bench.run(case.tasks)])
            assert row["epochs"] <= int(row["paper"])


def test_the_command_lists_and_refuses():
    """Experiments have names, and others are refused with the nearest."""
    assert "ndv2" in run("experiments", "--list").out
    assert_refused(run("experiments", "ndv3"))


@pytest.mark.slow
def test_the_ndv2_table_is_no_later_than_the_paper(here):
    """Every row's best is at least as good as the paper's finish time."""
    (table,) = run_experiments(["ndv2"], place=here)
    assert [row for row in table.rows if row["best"] != "ok"] == []
