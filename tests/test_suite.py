"""The suite itself: it mirrors the package, and no test passes by doing nothing."""

import ast
import re
from pathlib import Path

import pytest

import teccl

TESTS = Path(__file__).parent
PACKAGE = Path(teccl.__file__).parent
FILES = sorted(TESTS.rglob("*.py"))
# Folders that test something beside the package, or hold what tests need.
BESIDE = {"benchmarks", "data", "docs", "torch/programs"}


def test_every_folder_mirrors_a_package():
    """Tests of a part of the package are where that part is."""
    folders = {path.parent.relative_to(TESTS).as_posix() for path in FILES} - {"."} - BESIDE
    mirrored = {folder for folder in folders if (PACKAGE / folder).is_dir()}
    # A format's room is a file or a folder.
    rooms = {folder for folder in folders if (PACKAGE / folder).with_suffix(".py").is_file()}
    assert folders - mirrored - rooms == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_a_test_skips_aloud(path):
    """A test that cannot say anything is skipped with a reason: it does not just return."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tests = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and is_test(n)]
    silent = [
        f"{test.name}, line {node.lineno}"
        for test in tests
        for node in ast.walk(test)
        if isinstance(node, ast.Return) and node.value is None
    ]
    assert silent == []


def is_test(function: ast.FunctionDef) -> bool:
    return function.name.startswith("test_")


def test_constants_are_patched_where_they_are_imported():
    """A dotted text would go on naming a constant that has moved."""
    dotted = re.compile(r"setattr\(\s*[\"']teccl\.[\w.]*\.[A-Z_]{2,}[\"']")
    assert [str(path) for path in FILES if dotted.search(path.read_text(encoding="utf-8"))] == []
