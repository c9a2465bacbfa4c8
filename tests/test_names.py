"""Names and lines: each stands once, so that whoever looks for something finds one place."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import teccl

ROOT = Path(teccl.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
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
MIRRORS = ("orbit",)
# Lines of this many make a repeat that one function should serve.
LONGEST_REPEAT = 11


def inside(path: Path, folders: tuple[str, ...]) -> bool:
    place = path.relative_to(ROOT).as_posix()
    return any(place.startswith(f"{folder}/") for folder in folders)


def repeated(found: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {
        name: [path.relative_to(ROOT).as_posix() for path in places]
        for name, places in sorted(found.items())
        if len(places) > 1
    }


def test_no_two_modules_share_a_name():
    """A module is known by its name alone, and so is a package."""
    found = defaultdict(list)
    for path in FILES:
        entry = path.parent if path.name == "__init__.py" else path
        if entry != ROOT and not inside(path, (*NAMED_AFTER_ENTRIES, *MIRRORS)):
            found[entry.stem].append(path)
    assert not repeated(found)


def test_no_two_public_classes_share_a_name():
    """A class is known by its name alone."""
    found = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    assert not repeated(
        {name: [p for p in found[name] if not inside(p, MIRRORS)] for name in found}
    )


def code_lines(path: Path) -> list[tuple[int, str]]:
    """Lines that say something, with their numbers: no imports, no comments, no lone brackets."""
    text = path.read_text(encoding="utf-8")
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    return [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"\w", line) and not line.strip().startswith("#") and number not in skipped
    ]


def test_no_long_run_of_lines_stands_twice():
    """What is written again is one function that both places call."""
    length = LONGEST_REPEAT + 1
    seen: dict[tuple[str, ...], tuple[Path, int]] = {}
    twice = []
    for path in FILES:
        lines = code_lines(path)
        for start in range(len(lines) - length + 1):
            run = tuple(line for _, line in lines[start : start + length])
            place = (path, lines[start][0])
            first = seen.setdefault(run, place)
            if first != place:
                twice.append((str(first[0]), first[1], str(path), lines[start][0]))
    assert not twice
