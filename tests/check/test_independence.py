"""The checker shares no code with what it judges."""

import ast
from pathlib import Path

import pytest

import teccl.check

SOURCES = sorted(Path(teccl.check.__file__).parent.glob("*.py"))
ALLOWED = {
    "teccl.check",
    "teccl.demand",
    "teccl.errors",
    "teccl.problem",
    "teccl.schedule.model",
    # Sorts rows of numbers, whatever they mean.
    "teccl.schedule.ordering",
    "teccl.topology",
    "teccl.units",
}
# Arithmetic of the problem, the grid and the schedule that the checker must do itself.
FOREIGN = {"transmission_ps", "ready_ps", "alpha_ps", "rates", "rate_steps", "picoseconds"}


def imported(tree: ast.Module) -> set[str]:
    modules = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    return modules | {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_checker_imports_data_only(path):
    """Only the data classes of the problem and the schedule are imported."""
    own = {name for name in imported(ast.parse(path.read_text())) if name.startswith("teccl")}
    strange = {name for name in own if not any(f"{name}.".startswith(f"{a}.") for a in ALLOWED)}
    assert strange == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_checker_uses_no_foreign_arithmetic(path):
    """Lengths and epochs that others computed are never read."""
    tree = ast.parse(path.read_text())
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and ast.unparse(node.value) not in {"lengths", "self"}
    }
    assert read & FOREIGN == set()
    assert "grid.kappa" not in path.read_text()
