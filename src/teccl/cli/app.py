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
        command = typer.main.get_command(build_app())
        code = command.main(arguments, prog_name="teccl", standalone_mode=False, obj=settings)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK
    except Exception as problem:  # noqa: BLE001, the user gets a line, not a traceback
        return report(problem, debug=settings.debug)
    if code == ExitCode.INTERRUPTED:
        print_error("interrupted")
    return code if isinstance(code, int) else ExitCode.OK


def build_app() -> typer.Typer:
    """Assemble the commands."""
    from teccl.cli import (
        bound,
        demands,
        doctor,
        export,
        importing,
        inspect,
        solve,
        topology,
        ui,
        view,
    )
    from teccl.cli.calibrate import calibrate
    from teccl.cli.compare import compare
    from teccl.cli.expect import diagnose, expect
    from teccl.cli.experiments import experiments
    from teccl.cli.place import place
    from teccl.cli.run import run as run_schedule
    from teccl.cli.sweep import sweep
    from teccl.cli.validate import validate
    from teccl.cli.whatif import whatif

    app = typer.Typer(
        name="teccl",
        cls=CommandGroup,
        help="Verified, timed communication schedules for GPU collectives, "
        "with a proof of how good they are.",
        invoke_without_command=True,
        callback=_global_options,
        context_settings=CONTEXT_SETTINGS,
    )
    app.command("solve")(solve.solve)
    app.command("bound")(bound.bound)
    app.command("import")(importing.import_schedule)
    app.add_typer(topology.build_group(), name="topology")
    app.add_typer(demands.build_group(), name="demand")
    app.command("place")(place)
    app.command("verify")(inspect.verify)
    app.command("simulate")(inspect.simulate)
    app.command("validate")(validate)
    app.command("export")(export.export)
    app.command("view")(view.view)
    app.command("ui")(ui.ui)
    app.command("sweep")(sweep)
    app.command("compare")(compare)
    app.command("whatif")(whatif)
    app.command("expect")(expect)
    app.command("diagnose")(diagnose)
    app.command("experiments")(experiments)
    app.command("doctor")(doctor.doctor)
    app.command("run")(run_schedule)
    app.command("calibrate")(calibrate)
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
