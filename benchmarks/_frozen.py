"""Frozen rows: what an earlier commit took for each row of a table, to compare with."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

# Finish and processor seconds of every row, before there was one portfolio (d94ab6b).
FILE = Path(__file__).parent / "data" / "frozen.csv"
# How much later and how much dearer a row may be.
LATER, DEARER = 1.001, 1.3
# Columns that say what was asked for, and those that say when it ends, the one that counts first.
_ASKED = ("topology", "collective", "size", "SCCL")
_FINISH = ("grid us", "epochs", "finish us", "finish")

Row = Mapping[str, object]


def name_of(row: Row) -> str:
    """Return what a row was asked for, with its table."""
    return ", ".join(str(row[name]).strip() for name in ("table", *_ASKED) if name in row)


def finish_of(row: Row) -> float | None:
    """Return when a row ends, in its table's unit; None where the row has no such column."""
    for name in _FINISH:
        if name in row:
            return float(str(row[name]))
    return None


def load() -> dict[str, tuple[float, float]]:
    """Return finish and processor seconds of the frozen rows, by name."""
    with FILE.open() as stream:
        rows = list(csv.DictReader(stream))
    return {row["name"]: (float(row["finish"]), float(row["cpu_s"])) for row in rows}


def compare(rows: Sequence[Row]) -> list[tuple[str, float, float, str]]:
    """Return name, finish and processor seconds over the frozen ones, and a verdict, row by row."""
    frozen, found = load(), []
    for row in rows:
        name, finish = name_of(row), finish_of(row)
        if finish is None or name not in frozen:
            continue
        later = finish / frozen[name][0]
        dearer = float(str(row["row cpu s"])) / frozen[name][1]
        verdict = "later" * (later > LATER) + " dearer" * (dearer > DEARER)
        found.append((name, later, dearer, verdict.strip() or "ok"))
    return found
