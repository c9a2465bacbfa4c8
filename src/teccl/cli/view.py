"""`teccl view`: explain a schedule on one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teccl.cli.errors import CommandFailed, ExitCode
from teccl.cli.options import QuietOption, ScheduleArgument, check_output, flag, output_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teccl.result import Attempt
    from teccl.schedule import Schedule

REPORT_SUFFIXES = (".html", ".htm")


def view(
    file: ScheduleArgument,
    *,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="FILE",
            help="Another schedule of the same problem, to show beside the first.",
            show_default=False,
        ),
    ] = None,
    result: Annotated[
        str | None,
        typer.Option(
            "--result",
            metavar="FILE",
            help="What solve --json printed for the schedule: its solve time, the chunks tried.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None, output_option("Where to save the page (the schedule's name with .html).")
    ] = None,
    show: Annotated[bool, flag("--open", help_text="Open the page in the browser.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Explain a schedule on one HTML page that needs no network."""
    from teccl.cli.output import emit
    from teccl.report import write_report

    path = check_output(output or _page_name(file), REPORT_SUFFIXES)
    assert path is not None
    seconds, tried = (None, ()) if result is None else _read_result(Path(result))
    schedule = _load(file)
    other = None if compare is None else _load(compare)
    labels = None if compare is None else _labels(file, compare)
    write_report(schedule, path, compare=other, labels=labels, solve_seconds=seconds, tried=tried)
    if not quiet:
        emit(f"report saved to {path}")
    if show:
        typer.launch(path.resolve().as_uri())


def _page_name(file: str) -> str:
    name = Path(file).name.removesuffix(".gz").removesuffix(".json")
    return f"{name}.html"


def _load(file: str) -> "Schedule":
    """Read a schedule, of an orbit file all images of it, and make sure that it is correct."""
    from teccl.cli.orbits import list_images
    from teccl.orbit.recognition import is_orbit_file
    from teccl.schedule import Schedule
    from teccl.verification import verify

    schedule = list_images(file) if is_orbit_file(Path(file)) else Schedule.load(file)
    violations = verify(schedule)
    if violations:
        raise CommandFailed(
            ExitCode.FAILED_VERIFICATION,
            f"schedule {file} failed verification: {violations[0]}; see teccl verify {file}",
        )
    return schedule


def _labels(file: str, other: str) -> tuple[str, str] | None:
    """File names tell the schedules apart unless they are the same in two folders."""
    names = [Path(_page_name(each)).stem for each in (file, other)]
    return None if names[0] == names[1] else (names[0], names[1])


def _read_result(path: Path) -> "tuple[float, tuple[Attempt, ...]]":
    """Solve time and chunks tried from what solve printed."""
    from teccl._files import parse_json, read_text
    from teccl.cli.errors import UsageError

    document = parse_json(read_text(path, UsageError), str(path), UsageError)
    seconds = document.get("solve_seconds") if isinstance(document, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        raise UsageError(
            f"result {path}: no solve_seconds; give a file with what solve --json printed"
        )
    return float(seconds), tuple(_attempts(document.get("tried", []), path))


def _attempts(value: object, path: Path) -> "Iterator[Attempt]":
    from teccl.cli.errors import UsageError
    from teccl.result import Attempt

    for entry in value if isinstance(value, list) else [value]:
        figures = entry if isinstance(entry, dict) else {}
        count, time = figures.get("num_chunks"), figures.get("finish_time_s")
        if type(count) is not int or not isinstance(time, int | float) or time < 0:
            raise UsageError(
                f"result {path}: tried is no list of chunks and finish times; give a file with "
                "what solve --json printed"
            )
        yield Attempt(count, str(figures.get("method", "")), float(time))
