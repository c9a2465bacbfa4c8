"""Tunable numbers: few, and in one place."""

import ast
from pathlib import Path

import teccl

ROOT = Path(teccl.__file__).parent
FREE = {-1, 0, 1, 2}
# Compiled kernels, whose numbers are shapes, columns and bit tricks.
KERNELS = {
    "flows",
    "growing",
    "inserting",
    "kernels",
    "labels",
    "limited",
    "listing",
    "matched",
    "modulo",
    "packing",
    "routing",
    "ruining",
    "serial",
    "shortening",
    "timetable",
    "wayfinding",
}


def numbers(path: Path) -> list[float]:
    """Numeric literals of a module, those in subscripts and shapes aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            skipped |= {id(part) for part in ast.walk(node.slice)}
        # The number of columns of an array.
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape":
            skipped |= {id(part) for part in node.args}
        if isinstance(node, ast.Tuple):
            skipped |= {
                id(part)
                for part in node.elts
                if isinstance(part, ast.Constant) and len(node.elts) == 2
            }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and node.value not in FREE
        and id(node) not in skipped
    ]


def test_numbers_do_not_become_more():
    """What is found by trial replaces something else; 60 in all is the aim."""
    found = {
        str(path.relative_to(ROOT)): numbers(path)
        for part in ("construct", "synthesis")
        for path in sorted((ROOT / part).rglob("*.py"))
        if path.stem not in KERNELS
    }
    listing = {name: values for name, values in found.items() if values}
    assert sum(map(len, listing.values())) <= 91, listing
