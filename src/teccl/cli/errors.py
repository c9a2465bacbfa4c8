"""Errors as one line on standard error, and the exit codes that go with them."""

import errno
import sys
import traceback
from enum import IntEnum
from pathlib import PurePath
from typing import Any

import typer

from teccl._suggest import did_you_mean
from teccl.errors import InputError, TecclError, VerificationError

MAX_LINE = 2000


class ExitCode(IntEnum):
    """What a command's end means."""

    OK = 0
    NO_SCHEDULE = 1
    BAD_INPUT = 2
    FAILED_VERIFICATION = 3
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class UsageError(InputError):
    """The command line itself is wrong."""


class CommandFailed(TecclError):  # noqa: N818, it ends a command, with a code of its own
    """A command ends with a code and, unless it is empty, one line of reason."""

    def __init__(self, code: ExitCode, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code


def one_line(text: str) -> str:
    """Return the text on one line, control characters shown as escapes, cut if very long.

    Examples
    --------
    >>> one_line("a" + chr(10) + "b")
    'a b'
    """
    joined = " ".join(text.split())
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in joined)
    return shown if len(shown) <= MAX_LINE else shown[: MAX_LINE - 3] + "..."


def print_error(reason: str, *, label: str = "error") -> None:
    """Write one line to standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"{label}: {one_line(reason)}\n")
        sys.stderr.flush()


def report(problem: BaseException, *, debug: bool) -> ExitCode:
    """Tell the user what ended a command and return the exit code."""
    if debug and not isinstance(problem, typer.TyperException | CommandFailed):
        traceback.print_exception(problem)
    if isinstance(problem, CommandFailed):
        if str(problem):
            print_error(str(problem))
        return problem.code
    if isinstance(problem, typer.TyperException):
        print_error(_usage_reason(problem))
        return ExitCode.BAD_INPUT
    if isinstance(problem, VerificationError):
        print_error(str(problem))
        return ExitCode.FAILED_VERIFICATION
    if isinstance(problem, InputError):
        print_error(str(problem))
        return ExitCode.BAD_INPUT
    return _report_unexpected(problem)


def _report_unexpected(problem: BaseException) -> ExitCode:
    if isinstance(problem, TecclError):
        print_error(str(problem))
        return ExitCode.NO_SCHEDULE
    if isinstance(problem, MemoryError):
        print_error("out of memory; use a smaller problem, fewer chunks or another method")
        return ExitCode.NO_SCHEDULE
    if isinstance(problem, OSError) and problem.errno not in (None, errno.EPIPE):
        subject = f"file {problem.filename}" if problem.filename else "system call"
        print_error(f"{subject}: {problem.strerror}")
        return ExitCode.BAD_INPUT if problem.filename else ExitCode.NO_SCHEDULE
    print_error(
        f"{type(problem).__name__}: {str(problem)[:300]}{_place(problem)}; please report it "
        "with the traceback that TECCL_DEBUG=1 or teccl --debug shows",
        label="internal error",
    )
    return ExitCode.NO_SCHEDULE


def _place(problem: BaseException) -> str:
    """Return the innermost line of teccl that the exception went through."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if "teccl" in PurePath(frame.filename).parts]
    return f" ({PurePath(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _usage_reason(problem: typer.TyperException) -> str:
    """Say in our words what the parser found wrong: the option, the value, the remedy."""
    context: Any = getattr(problem, "ctx", None)
    parameter: Any = getattr(problem, "param", None)
    help_hint = f"see '{context.command_path if context else 'teccl'} --help'"
    if hasattr(problem, "possibilities"):
        option = str(getattr(problem, "option_name", "?"))
        return f"unknown option {option}{_nearest_option(option, context) or '; ' + help_hint}"
    if parameter is not None:
        message = problem.message.removeprefix("Value error, ").rstrip(".")
        if not message:
            return f"missing {_parameter_name(parameter)}; {help_hint}"
        return f"{_parameter_name(parameter)}: {message[:1].lower()}{message[1:]}"
    message = problem.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; {help_hint}"


def _nearest_option(option: str, context: Any) -> str:
    if context is None:
        return ""
    known = [
        name for p in context.command.get_params(context) for name in p.opts + p.secondary_opts
    ]
    hint = did_you_mean(option, known)
    return hint if "did you mean" in hint else ""


def _parameter_name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"argument {parameter.metavar or parameter.name.upper()}"
    return str(max(parameter.opts, key=len))
