"""`teccl bound`: what it prints, what it refuses, and that it agrees with `solve`."""

import copy
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.cli.helpers import assert_refused, run

import teccl
from teccl.bounds import summarise
from teccl.bounds.bound_report import Scope, report
from teccl.cli import bound
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "bound.schema.json"
RING = ("ring:gpus=4", "allgather", "--size", "1MB")


def document(*arguments: str) -> dict[str, Any]:
    """Return what the command prints as JSON."""
    outcome = run("bound", *arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def test_physical_bound_by_hand() -> None:
    """Three quarters of the data enter a GPU over two links of 50 GB/s, after one alpha."""
    assert document(*RING)["physical_bound_s"] == 0.5e-6 + 0.75e6 / 100e9


def test_given_chunks_add_their_bound() -> None:
    """The chunk from across the ring takes two hops of 5 us and alpha each."""
    found = document(*RING, "--chunks", "1")
    assert found["chunk_bound_s"] == 11e-6
    assert {bound["scope"] for bound in found["bounds"]} == {"physical", "chunks"}


def test_grid_adds_epochs() -> None:
    """On the grid the bound is a whole number of epochs, and their duration is told."""
    found = document("ring:gpus=4,alpha=0", "allgather", "--size", "1MB", "--grid")
    assert (found["epoch_s"], found["bound_epochs"], found["grid_bound_s"]) == (5e-6, 2, 1e-5)
    assert "chunk_bound_s" not in found


def test_bounds_of_a_schedule_leave_gaps(tmp_path: Path) -> None:
    """Beside a schedule each bound says by which part of itself the schedule is above it."""
    path = str(tmp_path / "ring.json")
    assert run("solve", *RING, "--method", "ring", "--chunks", "1", "-o", path).code == 0
    found = document("--schedule", path)
    assert found["finish_time_s"] == 16.5e-6
    gaps = {bound["scope"]: bound["gap"] for bound in reversed(found["bounds"])}
    assert gaps == {"physical": pytest.approx(16.5 / 8 - 1), "chunks": pytest.approx(0.5)}
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(found)
    assert "106 %" in run("bound", "--schedule", path).out


def test_epochs_have_no_gap_to_physical_time(tmp_path: Path) -> None:
    """A schedule on a grid ends in physical time, which is not what epochs count."""
    path = str(tmp_path / "grid.json")
    assert run("solve", *RING, "--grid", "--effort", "quick", "-o", path).code == 0
    bounds = document("--schedule", path)["bounds"]
    assert {bound["scope"] for bound in bounds if "gap" in bound} == {"physical"}
    assert {bound["scope"] for bound in bounds} == {"physical", "grid"}


@pytest.mark.parametrize("arguments", [(), ("ring:gpus=4", "--schedule", "a.json")])
def test_a_topology_or_a_schedule_is_given(arguments: tuple[str, ...]) -> None:
    """A schedule has a topology of its own."""
    outcome = run("bound", *arguments)
    assert_refused(outcome)
    assert "--schedule" in outcome.err


def test_options_beside_a_schedule_are_refused() -> None:
    """A schedule has its size, its options and its chunks."""
    outcome = run("bound", "--schedule", "a.json", "--size", "1MB")
    assert_refused(outcome)
    assert "leave the other options out" in outcome.err


@pytest.mark.parametrize("option", [("--epoch", "slowest"), ("--epoch-multiplier", "2")])
def test_options_of_the_grid_imply_it(option: tuple[str, str]) -> None:
    """An epoch that is given asks for the grid."""
    assert "bound_epochs" in document(*RING, *option)


def test_best_comes_first_in_each_scope() -> None:
    """Bounds of a scope fall, and the figures above them are the first."""
    found = document("ndv2:chassis=2", "allgather", "--size", "1MB", "--chunks", "2")
    for scope, key in (("physical", "physical_bound_s"), ("chunks", "chunk_bound_s")):
        values = [bound["value_s"] for bound in found["bounds"] if bound["scope"] == scope]
        assert values == sorted(values, reverse=True)
        assert values[0] == found[key]


def test_certificate_names_what_binds() -> None:
    """Between two NDv2 chassis the one link between them binds."""
    found = document("ndv2:chassis=2", "allgather", "--size", "1MB")
    assert "500KB must cross link c1/gpu0 > c0/gpu1" in found["certificate"]


@pytest.mark.parametrize(
    ("collective", "arguments"),
    [
        ("allgather", ()),
        ("alltoall", ("--chunks", "2")),
        ("allreduce", ("--grid",)),
        ("reduce", ("--epoch", "1us", "--chunks", "3")),
        ("reduce", ()),
    ],
)
def test_agrees_with_solve(collective: str, arguments: tuple[str, ...]) -> None:
    """The bound is the one that results carry."""
    request = ("dgx1", collective, "--size", "1MB", *arguments)
    found = document(*request)
    result = json.loads(run("solve", *request, "--effort", "quick", "--json").out)
    keys = ("chunk_bound_s", "epoch_s", "bound_epochs", "grid_bound_s")
    assert {k: found.get(k) for k in keys} == {k: result.get(k) for k in keys}
    # A schedule that meets its bound on the grid ends the search for others.
    if "--grid" in arguments:
        assert found["physical_bound_s"] >= result["physical_bound_s"]
    else:
        assert found["physical_bound_s"] == result["physical_bound_s"]


@pytest.mark.parametrize("grid", [False, True])
def test_report_holds_what_a_summary_has(grid: bool) -> None:
    """The library's report has the values of the summary and a certificate that is in its list."""
    problem = Problem(
        topology=teccl.Topology.parse("dgx2"),
        demand=Demand.collective("allgather", size="1MB"),
        num_chunks=2,
    )
    epochs = TimeGrid.build(problem) if grid else None
    found = report(problem, epochs, given_chunks=True)
    summary = summarise(problem, grid=epochs, given_chunks=True)
    assert found.bounds[Scope.PHYSICAL][0].value == summary.physical_ps
    assert found.bound_epochs == summary.epochs
    assert found.chunk_bound_s == (summary.chunk_ps / 1e12 if summary.chunk_ps else None)
    scope, best = found.winner
    assert best is found.bounds[scope][0]
    assert found.certificate == best.certificate


def test_a_chunk_bound_is_never_below_the_physical_one() -> None:
    """What holds for any chunking is counted among the bounds for given chunks."""
    found = document("dgx1", "allreduce", "--size", "64MB", "--chunks", "8")
    assert found["chunk_bound_s"] >= found["physical_bound_s"]
    assert found["certificate"] in {bound["certificate"] for bound in found["bounds"]}


def test_table_marks_the_winner() -> None:
    """People get the figures, a table for each scope and one star."""
    outcome = run("bound", *RING, "--chunks", "1")
    assert (outcome.code, outcome.err) == (0, "")
    for text in ("physical bound", "chunk bound", "for any chunking", "certificate"):
        assert text in outcome.out
    assert outcome.out.count("*") == 1
    assert "\x1b" not in outcome.out


def test_long_tables_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table stops at a screenful and says how many bounds there are."""
    monkeypatch.setattr(bound, "MAX_ROWS", 2)
    outcome = run("bound", "dgx2", "allgather", "--size", "1MB")
    assert "more (--json lists them)" in outcome.out


def test_quiet_prints_nothing() -> None:
    """A quiet run prints nothing when all is well."""
    outcome = run("bound", *RING, "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.parametrize("extra", [(), ("--json",), ("--quiet",)], ids=str)
def test_unreachable_demand(extra: tuple[str, ...]) -> None:
    """Where data cannot get to who wants it there is one clear line and exit code 1."""
    outcome = run(
        "bound", "line:gpus=3", "allgather", "--size", "1MB", "--without-link", "0>1", *extra
    )
    assert_refused(outcome, (1,))
    assert outcome.out == ""
    assert "cannot get from gpu0 to gpu1" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("dgx1", "allgather"), "--size 1MB"),
        (("dgx1",), "no collective"),
        (("dgx1", "allgathr", "--size", "1MB"), "allgather"),
        ((*RING, "--chunks", "0"), "chunks '0'"),
        ((*RING, "--grid", "--chunks", "auto"), "give a number"),
        ((*RING, "--epoch", "0us"), "not positive"),
        ((*RING, "--epoch-multiplier", "0"), "not positive"),
        ((*RING, "--switch", "cpy"), "'copy'"),
        ((*RING, "--transit", "cut"), "cut-through"),
        ((*RING, "--buffer", "-1"), "buffer '-1'"),
        ((*RING, "--degrade", "0:1"), "A:B=50%"),
        ((*RING, "--ranks", "0-9"), "rank"),
        ((*RING, "--method", "ring"), "--method"),
    ],
    ids=str,
)
def test_bad_input_is_refused(arguments: tuple[str, ...], fragment: str) -> None:
    """Whatever is wrong is named with its remedy on one line."""
    outcome = run("bound", *arguments)
    assert_refused(outcome)
    assert fragment in outcome.err


def test_options_reach_the_problem() -> None:
    """Members, root, switches and changed links all change the bound."""
    size = ("--size", "1MB")
    whole = document("dgx1", "allgather", *size)["physical_bound_s"]
    assert document("dgx1", "allgather", *size, "--ranks", "0-3")["physical_bound_s"] < whole
    slowed = document("dgx1", "allgather", *size, "--degrade", "0:*=10%")["physical_bound_s"]
    assert slowed > 5 * whole
    near = document("line:gpus=4,alpha=1us", "broadcast", *size, "--root", "1")
    far = document("line:gpus=4,alpha=1us", "broadcast", *size, "--root", "0")
    assert far["physical_bound_s"] - near["physical_bound_s"] == pytest.approx(1e-6)
    kept = document("star:gpus=4", "allgather", *size, "--chunks", "1")
    circuit = document(
        "star:gpus=4", "allgather", *size, "--chunks", "1", "--transit", "cut-through"
    )
    assert circuit["chunk_bound_s"] < kept["chunk_bound_s"]


def test_demand_file(tmp_path: Path) -> None:
    """A demand file takes the place of the collective."""
    path = tmp_path / "pairs.yaml"
    path.write_text("matrix: [[0, 1MB], [0, 0]]\n")
    found = document("line:gpus=2,alpha=0,bandwidth=1GB/s", "--demand", str(path))
    assert found["physical_bound_s"] == float(Fraction(1, 1000))


SAMPLES = [RING, (*RING, "--chunks", "2"), (*RING, "--grid")]


@pytest.mark.parametrize("arguments", SAMPLES, ids=str)
def test_documents_fit_the_schema(arguments: tuple[str, ...]) -> None:
    """What is printed fits the published schema; unknown and missing keys do not."""
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    found = document(*arguments)
    assert [error.message for error in validator.iter_errors(found)] == []
    for place in ((), ("bounds", 0)):
        broken = copy.deepcopy(found)
        target: Any = broken
        for key in place:
            target = target[key]
        target["unheard-of"] = 1
        assert not validator.is_valid(broken)
    for key in ("physical_bound_s", "certificate", "bounds"):
        assert not validator.is_valid({k: v for k, v in found.items() if k != key})
