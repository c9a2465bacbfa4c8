"""Running experiments and writing them: Markdown, CSV and figures, with where they come from."""

import csv
import io
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from teccl import _files as files
from teccl._suggest import did_you_mean
from teccl.errors import InputError
from teccl.studies.experiments.experiment import Experiment, Table
from teccl.studies.running import Bench, Workplace

PACKAGES = ("teccl", "numpy", "scipy", "numba", "highspy", "ortools")


def run_experiments(
    names: Sequence[str] = (),
    *,
    folder: str | Path | None = None,
    quick: bool = False,
    seed: int = 0,
    place: Workplace | None = None,
) -> list[Table]:
    """Run experiments and write their tables; all of them if none is named.

    What a store holds is not run again, so that an interrupted run continues where it ended.

    Parameters
    ----------
    names
        Which; None for all.
    folder
        Where to write ``experiments.md`` and a CSV file and figure for each; None writes nothing.
    quick
        Whether to run a few minutes' worth of each.
    seed
        Of all random choices.
    place
        Where to run and what to remember.
    """
    from teccl.studies.experiments.catalogue import EXPERIMENTS

    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"unknown experiment {name[:40]!r}{did_you_mean(name, EXPERIMENTS)}")
    tables = []
    with (place or Workplace()).opened() as bench:
        for experiment in [EXPERIMENTS[name] for name in names or EXPERIMENTS]:
            table = _run(experiment, bench, quick=quick, seed=seed)
            tables.append(table)
            if folder is not None:
                # Written one by one, so that what is done can be read while the rest runs.
                _write(tables, Path(folder), quick=quick, seed=seed)
            if bench.place.cancel is not None and bench.place.cancel.is_cancelled:
                break
    return tables


def _run(experiment: Experiment, bench: Bench, *, quick: bool, seed: int) -> Table:
    cases = experiment.cases(quick, seed)
    outcomes = {o.task.key: o for o in bench.run([t for case in cases for t in case.tasks])}
    rows = []
    for case in cases:
        found = [outcomes.get(task.key) for task in case.tasks]
        results = [None if outcome is None else outcome.result for outcome in found]
        row = {**case.labels, **case.figures(results)}
        reasons = [o.reason for o in found if o is not None and o.reason]
        reasons += [r.message for r in results if r and r.schedule is None and r.message]
        rows.append({**row, "why_not": "; ".join(reasons)} if reasons else row)
    return Table(experiment=experiment, rows=tuple(rows))


def columns_of(table: Table) -> list[str]:
    """Return the names of all columns, in order of appearance."""
    return list(dict.fromkeys(name for row in table.rows for name in row))


def to_csv(table: Table) -> str:
    """Return a table as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(table), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue()


def to_markdown(tables: Sequence[Table], *, quick: bool, seed: int) -> str:
    """Return a page with all tables, and the machine and versions they were made with."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    lines = [
        "# Benchmarks",
        "",
        (
            f"Made by `teccl experiments{' --quick' if quick else ''} --seed {seed}` on "
            f"{platform.machine()} with {os.cpu_count()} cores, "
            f"Python {platform.python_version()}, {versions}. "
            "Columns that end in `solve_s` are times of that machine; all else is the "
            "same in every run. Columns named after the paper hold its published figures."
        ),
    ]
    for table in tables:
        experiment = table.experiment
        lines += ["", f"## {experiment.title}", "", experiment.about, ""]
        names = columns_of(table)
        lines.append("| " + " | ".join(names) + " |")
        lines.append("|" + "---|" * len(names))
        lines += [
            "| " + " | ".join(_cell(row, name) for name in names) + " |" for row in table.rows
        ]
        lines += [f"\n{note}" for note in experiment.notes]
    return "\n".join(lines) + "\n"


def _cell(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    text = "" if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")


def _write(tables: Sequence[Table], folder: Path, *, quick: bool, seed: int) -> None:
    page = to_markdown(tables, quick=quick, seed=seed)
    files.write_atomically(folder / "experiments.md", page, InputError)
    table = tables[-1]
    name = table.experiment.name
    files.write_atomically(folder / f"{name}.csv", to_csv(table), InputError)
    if table.experiment.figure:
        figure = draw(table)
        if figure is not None:
            files.write_atomically(folder / f"{name}.svg", figure, InputError)


def draw(table: Table) -> bytes | None:
    """Draw a table's figure as SVG, None without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return None
    mpl.use("agg")
    from matplotlib import pyplot

    horizontal, *lines = table.experiment.figure
    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for row in table.rows:
        if all(row.get(name) is not None for name in lines):
            groups.setdefault(row.get("topology", ""), []).append(row)
    for group, rows in groups.items():
        for name in lines:
            axes.plot(
                [row[horizontal] for row in rows],
                [row[name] for row in rows],
                marker="o",
                label=str(group),
            )
    axes.set_xlabel(horizontal)
    axes.set_ylabel(", ".join(lines))
    if groups:
        axes.legend(frameon=False)
    axes.grid(visible=True, alpha=0.3)
    data = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": table.experiment.name}):
        figure.savefig(data, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    return data.getvalue()
