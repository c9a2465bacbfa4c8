"""Names and lines: each stands once, so that whoever looks for something finds one place."""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path, PurePosixPath

import teccl

ROOT = Path(teccl.__file__).parent
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*.py"))
}
# Folders whose files carry the name of what a user or a table calls them. Such a name may come
# again: `cli/bound.py` is the command, `verification/rules/bound.py` the rule.
NAMED_AFTER_ENTRIES = (
    "cli",
    "construct/baselines",
    "formats",
    "plotting",
    "studies/rivals",
    "synthesis/strategies",
    "topology/presets",
    "verification/rules",
)
# The pipeline in small, module by module: `orbit/schedule.py` is to orbits what `schedule` is.
MIRROR = "orbit"
MIRRORED_MODULES = {
    "bounds",
    "case",
    "exchange",
    "folding",
    "groups",
    "growing",
    "judgement",
    "kernels",
    "layout",
    "plan",
    "problem",
    "replay",
    "result",
    "reversal",
    "schedule",
    "solving",
    "sums",
    "ways",
}
MIRRORED_CLASSES = {"Case"}
# Lines of this many make a repeat that one function should serve.
LONGEST_REPEAT = 11
BUILTINS = {name for name in dir(builtins) if not name.startswith("_")}


def inside(place: str, *folders: str) -> bool:
    return any(place.startswith(f"{folder}/") for folder in folders)


def modules_by_name(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Places of each name; a package has its folder's, entries of tables are left out."""
    found = defaultdict(list)
    for place in sources:
        path = PurePosixPath(place)
        entry = path.parent if path.name == "__init__.py" else path
        if entry.stem and not inside(place, *NAMED_AFTER_ENTRIES):
            found[entry.stem].append(place)
    return found


def classes_by_name(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Places of each public class."""
    found = defaultdict(list)
    for place, text in sources.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(place)
    return found


def shared(found: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], set[str]]:
    """Return names with several places, and those of them with a single one beside the mirror's."""
    several = {name: places for name, places in sorted(found.items()) if len(places) > 1}
    mirrored = {
        name
        for name, places in several.items()
        if len(places) == 2 and sum(inside(place, MIRROR) for place in places) == 1
    }
    return {name: several[name] for name in several.keys() - mirrored}, mirrored


def test_no_two_modules_share_a_name():
    """A module is known by its name alone, and so is a package."""
    twice, mirrored = shared(modules_by_name(SOURCES))
    assert not twice
    assert mirrored == MIRRORED_MODULES


def test_no_two_public_classes_share_a_name():
    """A class is known by its name alone."""
    twice, mirrored = shared(classes_by_name(SOURCES))
    assert not twice
    assert mirrored == MIRRORED_CLASSES


def test_names_that_come_again_are_found():
    """Modules and packages, and classes beside functions."""
    made = {"a/tree.py": "class Tree: ...", "tree/__init__.py": "def Tree(): ...", "b/x.py": ""}
    made |= {"orbit/x.py": "class Tree: ...", "c/y.py": "class Tree: ...", "cli/y.py": ""}
    assert shared(modules_by_name(made)) == ({"tree": ["a/tree.py", "tree/__init__.py"]}, {"x"})
    assert shared(classes_by_name(made)) == (
        {"Tree": ["a/tree.py", "orbit/x.py", "c/y.py"]},
        set(),
    )


def bound_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names that a module binds, with lines; not those that only a class has."""
    tree = ast.parse(text)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    members = {
        id(part)
        for node in classes
        for each in node.body
        for part in (each, *getattr(each, "targets", ()), getattr(each, "target", None))
    }
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.alias):
            name = node.asname or node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name):
            name = node.id if isinstance(node.ctx, ast.Store) else None
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs):
            name = node.name
        if name is not None and id(node) not in members:
            yield node.lineno, name


def test_nothing_shadows_a_builtin():
    """What Python calls by a name is found under it everywhere."""
    found = {
        (place, *each)
        for place, text in SOURCES.items()
        for each in bound_names(text)
        if each[1] in BUILTINS
    }
    assert not found


def test_shadowed_builtins_are_found():
    """Arguments, variables, functions and imports; what a class has is asked for by the class."""
    text = """
from x import y as open
def sum(id, *, key=None): return sorted(id, key=key)
class Kind:
    type: int = 1
    max = 2
    def format(self): [min for min in self]
"""
    found = [name for _, name in sorted(bound_names(text)) if name in BUILTINS]
    assert found == ["open", "id", "sum", "min"]


def code_lines(text: str) -> list[tuple[int, str]]:
    """Lines that say something, with numbers: no imports, docstrings, comments, lone brackets."""
    silent: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            silent |= set(range(node.lineno, node.end_lineno + 1))
    return [
        (number, " ".join(line.split()))
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"\w", line) and not line.strip().startswith("#") and number not in silent
    ]


def runs_twice(sources: Mapping[str, str], length: int) -> list[tuple[str, int, str, int]]:
    """Return where runs of that many lines stand, and where they stand again."""
    seen: dict[tuple[str, ...], tuple[str, int]] = {}
    twice = []
    for place, text in sources.items():
        lines = code_lines(text)
        for start in range(len(lines) - length + 1):
            run = tuple(line for _, line in lines[start : start + length])
            here = (place, lines[start][0])
            first = seen.setdefault(run, here)
            if first != here:
                twice.append((*first, *here))
    return twice


def test_no_long_run_of_lines_stands_twice():
    """What is written again is one function that both places call."""
    assert not runs_twice(SOURCES, LONGEST_REPEAT + 1)


def test_a_run_that_stands_twice_is_found():
    """Whatever else it is indented by, commented on and interrupted by; one line less is none."""
    steps = [f"total = weigh(total, {number})" for number in range(LONGEST_REPEAT + 1)]
    one = "\n".join(["import os", "total = 0", *steps])
    inner = "\n\n    # Then:\n    ".join(steps).replace(", ", ",  ")
    other = f'def weighed(total):\n    """Other words."""\n    {inner}\n    (\n    )'
    assert runs_twice({"one": one, "other": other}, len(steps)) == [("one", 3, "other", 3)]
    assert not runs_twice({"one": one, "other": other}, len(steps) + 1)
    assert not runs_twice({"one": one, "other": other.replace("5)", "50)")}, len(steps))


def test_the_sources_are_all_there():
    """Tests of all names and lines look at some."""
    assert {"cli/solve.py", "orbit/judge/__init__.py"} <= SOURCES.keys()
    assert len(list(chain.from_iterable(classes_by_name(SOURCES).values()))) > 100
