"""What results amount to: quantiles of the gap by label, failures, costs and the worst problems."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from _quality.demands import BELOW_1MB, COLLECTIVES, DECADES
from _quality.draw import FAMILIES, SETS
from _quality.options import OPTIONS

Record = dict[str, Any]
QUANTILES = {"median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
WORST = 20


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that is not below this share of all values.

    Examples
    --------
    >>> quantile([4, 1, 3, 2], 0.5), quantile([4, 1, 3, 2], 0.75), quantile([1, 2], 0.99)
    (2, 3, 2)
    """
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def solved(records: Sequence[Record]) -> list[Record]:
    """Return those with a schedule and a bound to compare it with."""
    return [record for record in records if record.get("gap") is not None]


def groups(records: Sequence[Record]) -> Iterator[tuple[str, str, list[Record]]]:
    """Yield the records by set, and of each set by every label, with the names of both."""
    for name in SETS:
        chosen = [record for record in records if record["set"] == name]
        if not chosen:
            continue
        small = [each for each in chosen if _is_small_allreduce(each)]
        yield name, "all", chosen
        yield name, "all but allreduce below 1MB", [each for each in chosen if each not in small]
        yield name, "allreduce below 1MB", small
        for label, values in (
            ("family", FAMILIES),
            ("collective", COLLECTIVES),
            ("decade", DECADES),
        ):
            for value in values:
                yield name, value, [each for each in chosen if each[label] == value]
        for option in OPTIONS:
            yield name, option, [each for each in chosen if option in each["options"]]


def _is_small_allreduce(record: Record) -> bool:
    return record["collective"] == "allreduce" and record["decade"] in BELOW_1MB


def gap_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a row of gap quantiles for each group that is not empty, in per cent."""
    rows = []
    for name, label, chosen in groups(records):
        if not chosen:
            continue
        gaps = [100 * record["gap"] for record in solved(chosen)]
        row: dict[str, Any] = {"set": name, "of": label, "count": len(chosen), "solved": len(gaps)}
        for title, share in QUANTILES.items():
            row[title] = quantile(gaps, share) if gaps else None
        row["within 1 %"] = 100 * sum(g <= 1 for g in gaps) / len(gaps) if gaps else None
        rows.append(row)
    return rows


def cost_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return quantiles of seconds, processor seconds and peak memory by set."""
    rows = []
    for name in SETS:
        for what in ("seconds", "cpu_s", "peak_gb"):
            values = [
                record[what] for record in records if record["set"] == name and what in record
            ]
            if values:
                row: dict[str, Any] = {"set": name, "of": what, "sum": sum(values)}
                rows.append({**row, **{t: quantile(values, s) for t, s in QUANTILES.items()}})
    return rows


def failures(records: Sequence[Record]) -> list[Record]:
    """Return what has no verified schedule within a bound: refusals, errors and time-outs."""
    return [record for record in records if record["outcome"] != "solved" or _is_wrong(record)]


def _is_wrong(record: Record) -> bool:
    return not record["verified"] or record["gap"] is None or record["gap"] < 0


def worst(records: Sequence[Record], count: int = WORST) -> list[Record]:
    """Return the problems with the largest gaps."""
    return sorted(solved(records), key=lambda record: -record["gap"])[:count]


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Return everything the report prints as plain data."""
    return {
        "gaps_percent": gap_rows(records),
        "costs": cost_rows(records),
        "failures": failures(records),
        "worst": worst(records),
    }


def print_report(records: Sequence[Record], table: Callable[..., None]) -> None:
    """Print the report with `table(title, header, rows)`."""
    rows = gap_rows(records)
    if rows:
        title = "Gap to the proven bound, per cent"
        table(title, _wide(rows[0]), (_cells(row, ".2f") for row in rows))
    costs = cost_rows(records)
    if costs:
        title = "Seconds, processor seconds and peak gigabytes"
        table(title, _wide(costs[0]), (_cells(row, ".4g") for row in costs))
    failed = failures(records)
    print(f"## Failures: {len(failed)} of {len(records)}")
    for record in failed:
        said = record.get("error") or f"after {record['seconds']:.0f} s"
        print(f"{record['key']:>14}  {record['outcome']}: {said}\n{'':>14}  {record['command']}")
    print(f"\n## The worst {WORST}")
    for record in worst(records):
        figures = f"{100 * record['gap']:9.2f} %  {1e6 * record['finish_s']:.6g} us"
        print(f"{figures}  {record['key']}  {record['method']}\n{'':>13}{record['command']}")
    print()


def _wide(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name:>27}" if name == "of" else name for name in row)


def _cells(row: dict[str, Any], form: str) -> tuple[str, ...]:
    return tuple(
        "-" if cell is None else format(cell, form) if isinstance(cell, float) else str(cell)
        for cell in row.values()
    )
