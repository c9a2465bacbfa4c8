"""The `teccl` command: its groups, global options and the way every command ends."""

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

from teccl import __version__
from teccl._numba import check_environment
from teccl.cli.errors import ExitCode, UsageError, print_error, report
from teccl.cli.groups import CONTEXT_SETTINGS, CommandGroup, require_command

# What makes a group of commands.
_GROUP = "build_group"
# Commands in the order of the help: their modules and functions.
COMMANDS = {
    "solve": ("solve", "solve"),
    "bound": ("bound", "bound"),
    "import": ("importing", "import_schedule"),
    "topology": ("topology", _GROUP),
    "demand": ("demands", _GROUP),
    "place": ("place", "place"),
    "verify": ("inspect", "verify"),
    "simulate": ("inspect", "simulate"),
    "validate": ("validate", "validate"),
    "export": ("export", "export"),
    "view": ("view", "view"),
    "ui": ("ui", "ui"),
    "sweep": ("sweep", "sweep"),
    "compare": ("compare", "compare"),
    "whatif": ("whatif", "whatif"),
    "expect": ("expect", "expect"),
    "diagnose": ("expect", "diagnose"),
    "experiments": ("experiments", "experiments"),
    "doctor": ("doctor", "doctor"),
    "run": ("run", "run"),
    "calibrate": ("calibrate", "calibrate"),
}


@dataclass(slots=True)
class Settings:
    """What the global options decide."""

    debug: bool = False


def run(arguments: list[str]) -> int:
    """Run one command; every way it can end becomes an exit code and at most one line."""
    settings = Settings(debug=os.environ.get("TECCL_DEBUG", "") not in ("", "0"))
    _accept_any_text()
    try:
        check_environment()
        if not {"--show-completion", "--install-completion"}.isdisjoint(arguments):
            _check_shell()
        command = typer.main.get_command(build_app(arguments[0] if arguments else None))
        code = command.main(arguments, prog_name="teccl", standalone_mode=False, obj=settings)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK
    except Exception as problem:  # noqa: BLE001, the user gets a line, not a traceback
        return report(problem, debug=settings.debug)
    if code == ExitCode.INTERRUPTED:
        print_error("interrupted")
    return code if isinstance(code, int) else ExitCode.OK


def build_app(only: str | None = None) -> typer.Typer:
    """Assemble the commands, or load one only, which is all that a line with its name needs."""
    app = typer.Typer(
        name="teccl",
        cls=CommandGroup,
        help="Verified, timed communication schedules for GPU collectives, "
        "with a proof of how good they are.",
        invoke_without_command=True,
        callback=_global_options,
        context_settings=CONTEXT_SETTINGS,
    )
    for name, (module, function) in COMMANDS.items():
        if only in COMMANDS and only != name:
            continue
        found = getattr(import_module(f"teccl.cli.{module}"), function)
        if function == _GROUP:
            app.add_typer(found(), name=name)
        else:
            app.command(name)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from teccl.cli.output import emit

        emit(f"teccl {__version__}")
        raise typer.Exit


def _global_options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001, its callback does the work
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", metavar="", help="Show tracebacks of errors (or set TECCL_DEBUG=1)."
        ),
    ] = False,
) -> None:
    context.obj.debug |= debug
    require_command(context)


def _check_shell() -> None:
    """Refuse completion where nothing tells which shell it is for."""
    # Typer's own way to find the shell; it has no type hints.
    shellingham: Any = import_module("shellingham")
    try:
        shellingham.detect_shell()
    except (shellingham.ShellDetectionFailure, NotImplementedError, OSError):
        raise UsageError(
            "no shell found to complete for; _TECCL_COMPLETE=source_bash teccl "
            "(or source_zsh, source_fish) prints the script"
        ) from None


def _accept_any_text() -> None:
    """Let a terminal that cannot show a character print its escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
