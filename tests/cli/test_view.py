"""`teccl view` at the command line."""

import json
from pathlib import Path

import pytest
import typer
from tests.cli.helpers import assert_refused, run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two schedules of one problem and one of another."""
    monkeypatch.chdir(tmp_path)
    ring = ["solve", "ring:gpus=4", "allgather", "--size", "1MB", "--chunks", 1, "--method"]
    Path("result.json").write_text(run(*ring, "ring", "-o", "ring.json", "--json").out)
    run(*ring, "shortest-path", "-o", "paths.json.gz", "--quiet")
    other = ["solve", "ring:gpus=4", "alltoall", "--size", "1MB", "--method", "shortest-path"]
    run(*other, "-o", "other.json", "--quiet")
    return tmp_path


def test_a_page_is_written_beside(folder):
    """Without -o the page has the schedule's name."""
    outcome = run("view", "ring.json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "report saved to ring.html\n"
    assert "allgather on ring" in Path("ring.html").read_text()
    assert run("view", "paths.json.gz", "--quiet").out == ""
    assert Path("paths.html").exists()


def test_the_page_is_opened_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --open the browser gets the page's address, and without it nothing."""
    opened: list[str] = []
    monkeypatch.setattr(typer, "launch", opened.append)
    assert run("view", "ring.json").code == 0
    assert opened == []
    assert run("view", "ring.json", "--open").code == 0
    assert opened == [Path("ring.html").resolve().as_uri()]


def test_solve_time_comes_from_the_result():
    """What solve --json printed adds the solve time."""
    assert run("view", "ring.json", "--result", "result.json", "-o", "a.html").code == 0
    assert "Solve time" in Path("a.html").read_text()
    assert run("view", "ring.json", "-o", "b.html").code == 0
    assert "Solve time" not in Path("b.html").read_text()
    assert_refused(run("view", "ring.json", "--result", "ring.json"))


def test_two_schedules_are_compared():
    """Both file names head the columns; other problems are refused."""
    assert run("view", "ring.json", "--compare", "paths.json.gz", "-o", "c.html").code == 0
    text = Path("c.html").read_text()
    assert '<th scope="col">ring</th><th scope="col">paths</th>' in text
    outcome = run("view", "ring.json", "--compare", "other.json", "-o", "d.html")
    assert_refused(outcome)
    assert "compare schedules of one problem" in outcome.err
    assert not Path("d.html").exists()


def test_wrong_schedules_are_not_explained():
    """A schedule that fails verification has no page, and the code is 3."""
    document = json.loads(Path("ring.json").read_text())
    document["sends"].pop()
    Path("broken.json").write_text(json.dumps(document))
    outcome = run("view", "broken.json")
    assert_refused(outcome, codes=(3,))
    assert not Path("broken.html").exists()


def test_bad_names_are_refused():
    """The page's name must say that it is one, and the schedule must exist."""
    assert_refused(run("view", "ring.json", "-o", "page.pdf"))
    assert_refused(run("view", "nothing.json"))
