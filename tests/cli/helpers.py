"""Running the command line inside the test process."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from teccl.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


def run(*arguments: object) -> Outcome:
    """Run one command and return its exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Outcome(int(code), out.getvalue(), err.getvalue())


def assert_refused(outcome: Outcome, codes: tuple[int, ...] = (2,)) -> None:
    """Assert that a command ended with one of some codes and exactly one line of error."""
    assert outcome.code in codes, outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("error: "), lines[0]
    assert len(lines[0]) > len("error: ") + 5
    assert lines[0].isprintable()
    assert "Traceback" not in outcome.err + outcome.out
