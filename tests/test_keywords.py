"""The table of keywords: library, command line, app and documentation agree with it."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import pytest
import typer

import teccl
from teccl.cli import solve as command
from teccl.cli.options import given_keywords, option, takes
from teccl.keywords import KEYWORDS, METHOD_NAMES, Topic
from teccl.synthesis import METHODS
from teccl.synthesis.request import Request

SIGNATURE = inspect.signature(teccl.solve).parameters
DOCS = Path(__file__).parents[1] / "docs"
# What no table of options has: the positional arguments and the callbacks.
BESIDE = {"topology", "collective", "progress", "cancel"}


def test_the_library_takes_these_and_no_others() -> None:
    """Every keyword of `solve` is described."""
    assert set(SIGNATURE) == set(KEYWORDS) | BESIDE


@pytest.mark.parametrize("name", [name for name, entry in KEYWORDS.items() if entry.choices])
def test_the_default_is_the_librarys_and_one_of_the_choices(name: str) -> None:
    """What help says holds, and can be chosen."""
    assert SIGNATURE[name].default == KEYWORDS[name].default
    assert KEYWORDS[name].default in KEYWORDS[name].choices


def test_methods_are_those_that_are_served() -> None:
    """Each has a function, in the order of the table."""
    assert tuple(METHODS) == METHOD_NAMES


def test_a_request_has_a_field_for_each() -> None:
    """Whatever shapes neither topology nor demand is kept under its own name."""
    shaping = {"size", "ranks", "root", "demand", "without_links", "degrade", "overhead"}
    named = {"time_limit": "time_limit_s"}
    known = {field.name for field in fields(Request)}
    assert {named.get(name, name) for name in set(KEYWORDS) - shaping} <= known


def test_every_docstring_entry_is_there() -> None:
    """The documentation of `solve` explains each."""
    explained = set(re.findall(r"\w+", teccl.solve.__doc__ or ""))
    assert set(KEYWORDS) <= explained


@pytest.mark.parametrize("name", KEYWORDS)
def test_the_command_line_has_its_flag_and_sentence(name: str) -> None:
    """`teccl solve --help` is made of the table, and the manual names every flag."""
    app = typer.Typer()
    app.command()(command.solve)
    options = {
        flag: parameter.help
        for parameter in typer.main.get_command(app).params
        for flag in parameter.opts
        if hasattr(parameter, "help")
    }
    entry = KEYWORDS[name]
    assert options[entry.flag] == entry.help
    assert f"`{entry.flag}" in (DOCS / "cli.md").read_text(encoding="utf-8")


def test_given_keywords_are_those_of_the_command_line() -> None:
    """Flags that take nothing set what the table says, and what is not given is left out."""
    given = {"no_copy": True, "no_warm_start": False, "grid": True, "size": "1MB", "root": None}
    given |= {"without_link": ["0:1"], "degrade": [], "from_schedule": "s.json", "quiet": True}
    assert given_keywords(given) == {
        "size": "1MB",
        "grid": True,
        "copy": False,
        "without_links": ["0:1"],
        "from_schedule": "s.json",
    }


def test_a_command_takes_what_it_names_beside_its_own() -> None:
    """Help has them in the order of the decorator; what the command declares stays its own."""
    own = option("--chunks", "LIST", "Method", "Several.")

    @takes("chunks", Topic.CHANGES, "warm_start", jobs=option("--jobs", "N", "Work", "Workers."))
    def command(
        topology: str, *, quiet: bool = False, chunks: Annotated[str, own] = "1", **given: Any
    ) -> None: ...

    signature = inspect.signature(command)
    assert list(signature.parameters) == [
        *("topology", "chunks", "without_link", "degrade", "overhead", "no_warm_start", "jobs"),
        "quiet",
    ]
    hints = get_type_hints(command, include_extras=True)
    assert hints.pop("return") is type(None)
    assert hints == {name: each.annotation for name, each in signature.parameters.items()}
    assert get_args(hints["chunks"])[1] is own
    kinds = {name: get_args(hint)[0] for name, hint in hints.items() if get_args(hint)}
    assert kinds["without_link"] == list[str] | None
    assert (kinds["overhead"], kinds["no_warm_start"]) == (str | None, bool)
    with pytest.raises(KeyError):
        takes("chunk")(command)
