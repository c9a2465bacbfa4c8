"""Reporting drawn problems: quantiles by label, failures, and two runs pair by pair."""

import json
from pathlib import Path
from typing import Any

import pytest
import quality
from _quality import compare, report


def record(key: str, gap: float | None = 0.0, **changes: Any) -> dict[str, Any]:
    """Return a record of a solved problem, or of a time-out if there is no gap."""
    values: dict[str, Any] = {
        "key": key,
        "digest": f"d-{key}",
        "set": "plain",
        "family": "direct",
        "collective": "allgather",
        "decade": "1MB-10MB",
        "options": [],
        "command": f"teccl solve {key}",
        "seconds": 1.0,
        "outcome": "time-out",
    }
    if gap is not None:
        values |= {"outcome": "solved", "gap": gap, "finish_s": 1 + gap, "bound_s": 1.0}
        values |= {"verified": True, "sha256": f"{gap}", "method": "construct", "cpu_s": 2.0}
    return {**values, **changes}


def row(rows: list[dict[str, Any]], label: str) -> dict[str, Any]:
    """Return the row of a label in the plain set."""
    return next(row for row in rows if (row["set"], row["of"]) == ("plain", label))


def test_quantiles_are_values_that_were_measured() -> None:
    """A quantile is the least value with that share at or below it."""
    values = [float(i) for i in range(1, 101)]
    assert [report.quantile(values, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]


def test_gaps_are_reported_in_per_cent_by_label() -> None:
    """Rows hold quantiles and the share within one per cent; failures only count."""
    records = [record("a", 0.005), record("b", 0.3, decade="1KB-10KB"), record("c", None)]
    rows = report.gap_rows(records)
    assert row(rows, "all")["count"] == 3
    assert row(rows, "all")["solved"] == 2
    assert row(rows, "all")["median"] == pytest.approx(0.5)
    assert row(rows, "all")["within 1 %"] == pytest.approx(50)
    assert row(rows, "1KB-10KB")["max"] == pytest.approx(30)


def test_small_allreduces_are_counted_apart() -> None:
    """AllReduce below 1 MB has rows of its own."""
    records = [
        record("a", 0.9, collective="allreduce", decade="100KB-1MB"),
        record("b", 0.1, collective="allreduce"),
        record("c", 0.2, decade="100KB-1MB"),
    ]
    rows = report.gap_rows(records)
    assert row(rows, "allreduce below 1MB")["max"] == pytest.approx(90)
    assert row(rows, "all but allreduce below 1MB")["max"] == pytest.approx(20)


def test_what_is_not_proven_right_is_a_failure() -> None:
    """Time-outs, unverified schedules and gaps below zero are failures."""
    wrong = [record("a", None), record("b", verified=False), record("c", -0.01)]
    assert report.failures([*wrong, record("d")]) == wrong


def test_the_worst_come_first() -> None:
    """Problems are listed by gap."""
    records = [record(f"{i}", i / 10) for i in range(30)]
    found = report.worst(records)
    assert [each["key"] for each in found] == [str(i) for i in range(29, 9, -1)]


def test_only_the_same_problems_are_paired() -> None:
    """Pairs have the same key and digest."""
    old = [record("a"), record("b"), record("c")]
    new = [record("b"), record("c", digest="other"), record("e")]
    assert [pair["key"] for pair in compare.pairs(old, new)] == ["b"]


def test_ratios_are_new_over_old() -> None:
    """Worse and better are counted, the worst is named with what is solved no longer."""
    old = [
        record("a", 0.0),
        record("b", 1.0),
        record("c", 0.0),
        record("d", 0.0),
        record("e", None),
    ]
    new = [record("a", 0.5), record("b", 0.0), record("c", 0.0), record("d", None), record("e", 0)]
    found = compare.pairs(old, new)
    ratios = row(compare.ratio_rows(found), "all")
    assert (ratios["pairs"], ratios["worse"], ratios["better"]) == (3, 1, 1)
    assert (ratios["median"], ratios["max"]) == (1.0, 1.5)
    assert [pair["key"] for pair in compare.worst_pairs(found)] == ["d", "a"]
    counts = compare.counts(found)
    assert (counts["solved by old only"], counts["solved by new only"]) == (1, 1)
    assert counts["schedule bytes differ"] == 2


def test_two_files_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--compare`` reads two files, of several results of a problem the last."""
    files = [tmp_path / "old.jsonl", tmp_path / "new.jsonl"]
    files[0].write_text("\n".join(map(json.dumps, [record("a", None), record("a", 0.0)])))
    files[1].write_text(json.dumps(record("a", 0.25)))
    monkeypatch.setattr("sys.argv", ["quality.py", "--compare", *map(str, files), "--json"])
    quality.main()
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["solved by both"] == 1
    assert found["worst"] == [{"ratio": 1.25, "key": "a", "command": "teccl solve a"}]
    monkeypatch.setattr("sys.argv", ["quality.py", "--compare", *map(str, files)])
    quality.main()
    assert "1.25000" in capsys.readouterr().out


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is no file ends with one line."""
    words = ["quality.py", "--compare", str(tmp_path / "a"), str(tmp_path / "b")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match="does not exist"):
        quality.main()
