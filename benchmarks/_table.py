"""Tables with the machine and versions they were measured on."""

import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version

PACKAGES = ("teccl", "numpy", "scipy", "numba")


def print_machine() -> None:
    """Print what the figures below were measured on."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    print(
        f"machine: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    print(f"versions: {packages}\n")


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print an aligned table; rows appear as they are made."""
    print(f"## {title}")
    widths = [max(len(name), 9) for name in header]
    print("  ".join(f"{name:>{w}}" for name, w in zip(header, widths, strict=True)))
    for row in rows:
        cells = [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row]
        print("  ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)), flush=True)
    print()
