"""Errors that newcomers meet: each says what was wrong in their own words, and what to do."""

import re
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run

SOLVE = "solve dgx1 allgather --size 1MB"
FILES = {
    "empty.yaml": "",
    "bad.yaml": "a: [1\nb: }",
    "profile.yaml": """
nodes: [{name: a}, {name: b}]
links:
- {src: a, dst: b, bandwidth: 100GB/s, alpha: 1us, profile: [[10us, 50GB/s]]}
- {src: b, dst: a, bandwidth: 100GB/s, alpha: 1us}
""",
}
CHANGING = "100GB/s, 50GB/s from 10us"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that commands name."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("topology check empty.yaml", "empty.yaml is empty; give a mapping"),
        ("topology check bad.yaml", "line 2: .*; mend it there"),
        ("topology check mine.ymal", "did you mean mine.y"),
        ("topology check ring:gpus=-4", "gpus is -4; give a whole number from 2"),
        (f"{SOLVE} --ranks 0-8", "error: rank 8 does not exist"),
        (f"{SOLVE} --gap 5", "did you mean 5%"),
        (f"{SOLVE} --gap -1/100", "gap -1/100 is negative"),
        (f"{SOLVE} --size 1Mb", "write MB for bytes, sizes in bits are not taken"),
        ("export none.json --to torch", "sweep ... --plan FOLDER"),
    ],
)
def test_the_remedy_is_in_the_error(words: str, text: str) -> None:
    """One line, with what to do."""
    outcome = run(*words.split())
    assert_refused(outcome)
    assert re.search(text, outcome.err), outcome.err


def test_a_bandwidth_that_changes_is_shown() -> None:
    """Tables and the drawing say when it becomes what."""
    assert run("topology", "show", "profile.yaml").out.count(CHANGING) == 2
    assert CHANGING in run("topology", "check", "profile.yaml").out
    assert run("topology", "draw", "profile.yaml", "-o", "drawn.svg").code == 0
    assert f"{CHANGING}; 1us: 1 link" in Path("drawn.svg").read_text()


def test_schedules_of_different_problems_are_named() -> None:
    """No representation of an object of the program is shown."""
    for gpus in (4, 5):
        words = f"solve ring:gpus={gpus} allgather --size 1MB --method ring --chunks 1 --quiet"
        assert run(*words.split(), "-o", f"{gpus}.json").code == 0
    outcome = run("view", "4.json", "--compare", "5.json", "-o", "page.html")
    assert_refused(outcome)
    assert "different topologies, ring (4 GPUs, 8 links) and ring (5 GPUs, 10 links)" in outcome.err
