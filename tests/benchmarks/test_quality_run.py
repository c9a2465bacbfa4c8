"""Running drawn problems: resumed where it was, limited in time, honest about failures."""

from pathlib import Path
from typing import Any

import pytest
from _quality import run as running
from _quality.draw import draw_problem
from _quality.problem import Problem
from _quality.run import Results, ResultsError


def small(**changes: Any) -> Problem:
    """Return a problem that is solved at once."""
    values = {
        "key": "plain-0-0",
        "set": "plain",
        "family": "network",
        "collective": "allgather",
        "decade": "1KB-10KB",
        "num_gpus": 4,
        "options": (),
        "topology": "ring:gpus=4",
        "demand": None,
        "keywords": {"size": "1KB", "chunks": 1},
    }
    return Problem(**{**values, **changes})


def go(problems: list[Problem], path: Path, **changes: Any) -> list[dict[str, Any]]:
    """Run problems quietly."""
    values = {"limit_s": 100.0, "workers": 1, "threads": None, "tell": lambda _: None}
    return running.run(problems, Results(path=path), **{**values, **changes})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace the child by one that fails, and list what it was asked to solve."""
    seen: list[Any] = []

    def child(call: dict[str, Any] | None, limit_s: float) -> dict[str, Any]:
        if call is None:
            return {"code": "same", "keywords": {"chunk_tolerance": 0.001}}
        seen.append(call)
        return {"outcome": "time-out", "seconds": limit_s}

    monkeypatch.setattr(running, "_run_child", child)
    return seen


def test_a_child_tells_the_figures_of_a_solved_problem(tmp_path: Path) -> None:
    """A problem is solved in a process of its own, the same bytes each time."""
    first, second = go([small(), small(key="plain-0-1")], tmp_path / "results.jsonl", threads=1)
    assert (first["outcome"], first["verified"], first["chunks"]) == ("solved", True, 1)
    assert first["finish_s"] >= first["bound_s"] > 0
    assert first["gap"] == pytest.approx(first["finish_s"] / first["bound_s"] - 1)
    assert first["sha256"] == second["sha256"]
    assert first["cpu_s"] > 0 < first["peak_gb"]


def test_refusals_and_time_outs_are_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What teccl refuses and what takes too long is recorded, not raised."""
    monkeypatch.setattr(running, "measured_code", lambda: {"code": "any", "keywords": {}})
    refused = small(keywords={"size": "1KB", "root": 99}, collective="broadcast")
    record = go([refused], tmp_path / "refused.jsonl")[0]
    assert record["outcome"] == "refused"
    assert "99" in record["error"]
    found = running._run_child({"topology": "ring"}, limit_s=0.01)
    assert found["outcome"] == "time-out"


def test_a_run_goes_on_where_it_was(calls: list[Any], tmp_path: Path) -> None:
    """Problems that have a result are not solved again, a broken last line is."""
    path = tmp_path / "results.jsonl"
    problems = [draw_problem("plain", 0, index) for index in range(3)]
    go(problems[:2], path)
    with path.open("a") as stream:
        stream.write('{"key": "plain-0-2", "dig')
    records = go(problems, path)
    assert [record["key"] for record in records] == ["plain-0-0", "plain-0-1", "plain-0-2"]
    assert len(calls) == 3
    assert go(problems, path) == records == Results(path=path).load()
    assert len(calls) == 3


def test_every_call_has_the_keywords_of_the_measured_code(calls: list[Any], tmp_path: Path) -> None:
    """Chunks are chosen by one rule, threads are handed on, and the command says both."""
    problem = small(keywords={"size": "1KB"})
    record = go([problem], tmp_path / "results.jsonl", threads=2)[0]
    assert (calls[0]["chunk_tolerance"], calls[0]["threads"]) == (0.001, 2)
    assert record["command"].endswith("--chunk-tolerance 0.001 --threads 2")


def test_given_chunks_leave_nothing_to_choose(calls: list[Any], tmp_path: Path) -> None:
    """A tolerance beside a number of chunks, or on the grid, would be refused."""
    for number, keywords in enumerate(
        ({"size": "1KB", "chunks": 1}, {"size": "1KB", "grid": True})
    ):
        go([small(keywords=keywords)], tmp_path / f"{number}.jsonl")
    assert all("chunk_tolerance" not in call for call in calls)
    assert len(calls) == 2


def test_failures_are_solved_again_on_demand(calls: list[Any], tmp_path: Path) -> None:
    """A time-out is tried again with more time or when asked for, and the last result counts."""
    path = tmp_path / "results.jsonl"
    go([small()], path, limit_s=10)
    go([small()], path, limit_s=10, retry=True)
    assert go([small()], path, limit_s=20)[0]["limit_s"] == 20
    assert len(calls) == 3


def test_a_changed_problem_is_another_one(calls: list[Any], tmp_path: Path) -> None:
    """A result belongs to the problem it was made for, not to its number."""
    go([small()], tmp_path / "results.jsonl")
    go([small(topology="ring:gpus=5", num_gpus=5)], tmp_path / "results.jsonl")
    assert len(calls) == 2


def test_results_of_other_code_are_refused(calls: list[Any], tmp_path: Path) -> None:
    """One file holds results of one code with one number of threads."""
    go([small()], tmp_path / "results.jsonl")
    with pytest.raises(ResultsError, match="--output"):
        go([small()], tmp_path / "results.jsonl", threads=2)
