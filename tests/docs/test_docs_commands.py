"""Every teccl command that the documentation shows works as shown."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.helpers import run

from teccl.schedule import Schedule

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
# Commands that repeat what they measure many times, unless they are told otherwise or read a log.
MEASURED = ("run", "calibrate")
# Commands that solve many requests, and the options by which they write files for later ones.
STUDIES = ("sweep", "compare", "whatif", "expect")
WRITTEN = {"-o", "--output", "--save", "--plan", "--csv", "--plot"}
# Ranks that are started at once; more take seconds, and so do those of torch.
FEW = 4
TITLE = re.compile(r'title="([^"]+)"')


class Step(NamedTuple):
    """A file that a page shows, or a command that it runs."""

    file: str | None
    text: str


def steps(page: Path) -> Iterator[Step]:
    """Yield the titled files and the teccl commands of a page, in order."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        title = TITLE.search(block["info"])
        if title:
            yield Step(title[1], block["body"])
        elif block["info"].split()[:1] in (["console"], ["bash"]):
            body = block["body"].replace("\\\n", " ")
            for line in body.splitlines():
                if line.startswith("$ teccl"):
                    yield Step(None, line.removeprefix("$ "))


def pages_with_commands() -> list[Path]:
    """Return the pages that show a command."""
    return [page for page in PAGES if any(step.file is None for step in steps(page))]


def test_the_documentation_shows_commands() -> None:
    """The pages about the command line and the files do show commands."""
    assert {"README.md", "cli.md", "files.md"} <= {page.name for page in pages_with_commands()}


def starts_many(arguments: list[str]) -> bool:
    """Whether a command starts many ranks, or some of torch, each of which takes seconds."""
    if "torch" in arguments:
        return True
    return arguments[0] == "run" and Schedule.load(arguments[1]).problem.topology.num_gpus > FEW


def options_of(text: str) -> frozenset[str]:
    """Return what kind of command this is: its name and its options, without their values."""
    words = shlex.split(text, comments=True)
    return frozenset([words[1], *(word for word in words if word.startswith("-"))])


def repeated_studies() -> set[tuple[str, str]]:
    """Return studies by page whose options another page has shown, and that write nothing."""
    seen, found = set(), set()
    for page in PAGES:
        for step in steps(page):
            words = shlex.split(step.text, comments=True) if step.file is None else [""] * 2
            if words[1] not in STUDIES:
                continue
            kind = options_of(step.text)
            if kind in seen and not kind & WRITTEN:
                found.add((page.name, step.text))
            seen.add(kind)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store of results for all pages, several of which study the same requests."""
    return tmp_path_factory.mktemp("store") / "studies.sqlite"


@pytest.mark.parametrize(
    "is_whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["short", "whole"]
)
@pytest.mark.parametrize("page", pages_with_commands(), ids=lambda page: page.name)
def test_commands_work(
    page: Path, is_whole: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a page succeed one after the other in an empty folder.

    Slow tests search and measure as users do, others shorter, and start only few ranks: tests of
    these commands start others. Of studies with the same options they make one.
    """
    repeated = set() if is_whole else repeated_studies()
    if is_whole and any(
        step.file is None and "--backend torch" in step.text for step in steps(page)
    ):
        pytest.importorskip("torch", reason="torch is not installed; pip install torch==2.13.0+cpu")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TECCL_STORE", f"{store}-{is_whole}")
    for step in steps(page):
        if step.file is not None:
            Path(step.file).write_text(step.text, encoding="utf-8")
            continue
        program, *arguments = shlex.split(step.text, comments=True)
        assert program == "teccl"
        if (page.name, step.text) in repeated or (not is_whole and starts_many(arguments)):
            continue
        if not is_whole and arguments[0] in MEASURED and not {"--repeat", "--log"} & {*arguments}:
            arguments += ["--repeat", "1", *(["--warmup", "0"] if arguments[0] == "run" else [])]
        outcome = run(*arguments)
        # That a folder is made is announced; nothing else is said where all is well.
        errors = [each for each in outcome.err.splitlines() if not each.startswith("note: folder")]
        assert (outcome.code, errors) == (0, []), step.text
