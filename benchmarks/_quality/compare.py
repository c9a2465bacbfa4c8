"""Two runs over the same problems, compared pair by pair."""

from collections.abc import Callable, Sequence
from typing import Any

from _quality.report import QUANTILES, WORST, groups, quantile

Record = dict[str, Any]
Pair = dict[str, Any]
# Finishes are whole picoseconds; a ratio this near to one is the same finish.
_SAME = 1e-9


def pairs(old: Sequence[Record], new: Sequence[Record]) -> list[Pair]:
    """Pair the records of the same problems; `ratio` is new finish over old, if both have one."""
    before = {(record["key"], record["digest"]): record for record in old}
    found = []
    for record in new:
        other = before.get((record["key"], record["digest"]))
        if other is None:
            continue
        both = other["outcome"] == record["outcome"] == "solved"
        pair = {name: record[name] for name in ("key", "set", "family", "collective", "decade")}
        pair |= {
            "options": record["options"],
            "old": other,
            "new": record,
            "ratio": record["finish_s"] / other["finish_s"] if both else None,
        }
        found.append(pair)
    return found


def ratio_rows(found: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return a row of paired ratios for each group: quantiles, and how many are worse or better."""
    rows = []
    for name, label, chosen in groups(found):
        ratios = [pair["ratio"] for pair in chosen if pair["ratio"] is not None]
        if ratios:
            row: dict[str, Any] = {"set": name, "of": label, "pairs": len(ratios)}
            row |= {"worse": sum(r > 1 + _SAME for r in ratios)}
            row |= {"better": sum(r < 1 - _SAME for r in ratios)}
            rows.append({**row, **{t: quantile(ratios, s) for t, s in QUANTILES.items()}})
    return rows


def counts(found: Sequence[Pair]) -> dict[str, int]:
    """Count pairs: solved by one only, other bytes, and bounds that moved."""
    both = [pair for pair in found if pair["ratio"] is not None]
    return {
        "pairs": len(found),
        "solved by both": len(both),
        "solved by old only": _only(found, "old", "new"),
        "solved by new only": _only(found, "new", "old"),
        "schedule bytes differ": sum(p["old"]["sha256"] != p["new"]["sha256"] for p in both),
        "bound rose": sum(p["new"]["bound_s"] > p["old"]["bound_s"] * (1 + _SAME) for p in both),
        "bound fell": sum(p["new"]["bound_s"] < p["old"]["bound_s"] * (1 - _SAME) for p in both),
    }


def _only(found: Sequence[Pair], one: str, other: str) -> int:
    return sum(
        pair[one]["outcome"] == "solved" and pair[other]["outcome"] != "solved" for pair in found
    )


def worst_pairs(found: Sequence[Pair], count: int = WORST) -> list[Pair]:
    """Return what became worse, first what is not solved any more, then by ratio."""
    lost = [p for p in found if p["old"]["outcome"] == "solved" != p["new"]["outcome"]]
    later = [p for p in found if p["ratio"] is not None and p["ratio"] > 1 + _SAME]
    return (lost + sorted(later, key=lambda pair: -pair["ratio"]))[:count]


def summary(found: Sequence[Pair]) -> dict[str, Any]:
    """Return everything the comparison prints as plain data."""
    cpu = cpu_ratio(found)
    return {
        "counts": counts(found),
        "ratios": ratio_rows(found),
        "cpu_ratio": cpu,
        "worst": [
            {"ratio": pair["ratio"], "key": pair["key"], "command": pair["new"]["command"]}
            for pair in worst_pairs(found)
        ],
    }


def cpu_ratio(found: Sequence[Pair]) -> float | None:
    """Return new processor seconds over old ones, summed over what both solved."""
    both = [pair for pair in found if pair["ratio"] is not None]
    old = sum(pair["old"]["cpu_s"] for pair in both)
    return sum(pair["new"]["cpu_s"] for pair in both) / old if old else None


def print_comparison(found: Sequence[Pair], table: Callable[..., None]) -> None:
    """Print the comparison with `table(title, header, rows)`."""
    rows = ratio_rows(found)
    if rows:
        header = tuple(f"{name:>27}" if name == "of" else name for name in rows[0])
        cells = (
            tuple(f"{cell:.5f}" if isinstance(cell, float) else str(cell) for cell in row.values())
            for row in rows
        )
        table("New finish over old, pair by pair", header, cells)
    for name, count in counts(found).items():
        print(f"{name:>22}  {count}")
    ratio = cpu_ratio(found)
    print(f"{'processor seconds':>22}  {'-' if ratio is None else f'{ratio:.3f}'} times the old")
    print(f"\n## Worse, the worst {WORST} of them")
    for pair in worst_pairs(found):
        ratio = pair["ratio"]
        said = pair["new"]["outcome"] if ratio is None else f"{ratio:.5f}"
        print(f"{said:>12}  {pair['key']}\n{'':>12}  {pair['new']['command']}")
    print()
