"""Tables with the machine and versions they were measured on."""

import argparse
import json
import os
import platform
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import _frozen

PACKAGES = ("teccl", "numpy", "scipy", "numba")
# Where rows are kept beside being printed, and all of them.
_KEPT: dict[str, Path | None] = {"file": None}
_ROWS: list[dict[str, object]] = []


def print_machine() -> None:
    """Print what the figures below were measured on."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    print(
        f"machine: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    print(f"versions: {packages}\n")


def run_tables(tables: Mapping[str, Callable[[], None]], doc: str) -> None:
    """Print the tables that the command line names.

    ``--json FILE`` keeps their rows, ``--compare`` holds them against frozen ones.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(tables))
    parser.add_argument("--json", type=Path, metavar="FILE", help="append each row as a JSON line")
    parser.add_argument("--compare", action="store_true", help="with the rows of data/frozen.csv")
    asked = parser.parse_args()
    unknown = [name for name in asked.tables if name not in tables]
    if unknown:
        parser.error(f"unknown table {unknown[0]!r}; name some of {', '.join(tables)}")
    _KEPT["file"] = asked.json
    print_machine()
    for name in asked.tables or tables:
        tables[name]()
    if asked.compare:
        header = (f"{'row':>80}", "finish over frozen", "CPU s over frozen", "verdict")
        print_table("Beside frozen rows", header, _frozen.compare(list(_ROWS)))


def used_cpu_s() -> float:
    """Processor seconds of this process and of the children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _keep(title: str, header: Sequence[str], row: Sequence[object], cpu_s: float) -> None:
    names = [name.strip() for name in header]
    record = {"table": title, **dict(zip(names, row, strict=True)), "row cpu s": cpu_s}
    _ROWS.append(record)
    path = _KEPT["file"]
    if path is not None:
        with path.open("a") as stream:
            stream.write(json.dumps(record, default=str) + "\n")


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print an aligned table; rows appear as they are made."""
    print(f"## {title}")
    cpu_s = used_cpu_s()
    widths = [max(len(name), 9) for name in header]
    print("  ".join(f"{name:>{w}}" for name, w in zip(header, widths, strict=True)))
    for row in rows:
        cells = [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row]
        print("  ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)), flush=True)
        _keep(title, header, row, used_cpu_s() - cpu_s)
        cpu_s = used_cpu_s()
    print()


def print_markdown(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as the documentation has it."""
    print(f"## {title}\n")
    for row in ([name.strip() for name in header], ["---"] * len(header), *rows):
        print("| " + " | ".join(map(str, row)) + " |")
    print()
