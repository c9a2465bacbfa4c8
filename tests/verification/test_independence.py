"""The judge shares no code with what it judges, nor with the replay."""

import ast
from pathlib import Path

import pytest

import teccl

ROOT = Path(teccl.__file__).parent
JUDGE = sorted((ROOT / "verification").rglob("*.py"))
REPLAY = sorted((ROOT / "replay").rglob("*.py"))
DATA = {
    # Rows of numbers and fractions, whatever they mean, and two threads.
    "teccl._arrays",
    "teccl._parallel",
    "teccl._ratios",
    "teccl.demand",
    "teccl.errors",
    "teccl.keywords",
    "teccl.problem",
    "teccl.schedule.columns",
    "teccl.schedule.sends",
    "teccl.schedule.ordering",
    "teccl.schedule.additions",
    "teccl.topology",
    "teccl.units",
}
# Arithmetic of the problem, the grid and the schedule that the checker must do itself.
FOREIGN = {"transmission_ps", "ready_ps", "alpha_ps", "rates", "rate_steps", "picoseconds"}


def imported(tree: ast.Module) -> set[str]:
    modules = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    return modules | {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}


def strange(path: Path, allowed: set[str]) -> set[str]:
    """Modules of teccl that a file imports, other than the allowed ones and what is in them."""
    own = {name for name in imported(ast.parse(path.read_text())) if name.startswith("teccl")}
    return {name for name in own if not any(f"{name}.".startswith(f"{a}.") for a in allowed)}


@pytest.mark.parametrize("path", JUDGE, ids=lambda path: path.stem)
def test_the_judge_imports_data_only(path):
    """Only the data classes of the problem and the schedule are imported."""
    assert strange(path, DATA | {"teccl.verification"}) == set()


@pytest.mark.parametrize("path", REPLAY, ids=lambda path: path.stem)
def test_the_replay_imports_nothing_of_the_judge(path):
    """The replay has rules of its own and times sends as everything else does."""
    assert strange(path, DATA | {"teccl.replay", "teccl.schedule.timing"}) == set()


def test_what_both_use_judges_nothing():
    """The modules that judge and replay have in common import neither of them."""
    common = {
        "_arrays.py",
        "_parallel.py",
        "_ratios.py",
        "schedule/columns.py",
        "schedule/ordering.py",
    }
    for name in common:
        names = imported(ast.parse((ROOT / name).read_text()))
        assert not {n for n in names if n.startswith(("teccl.verification", "teccl.replay"))}


@pytest.mark.parametrize("path", JUDGE, ids=lambda path: path.stem)
def test_the_judge_uses_no_foreign_arithmetic(path):
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
