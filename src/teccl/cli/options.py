"""Options that several commands share, and how their text is read and completed."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from teccl.cli.errors import UsageError

SCHEDULE_SUFFIXES = (".json", ".json.gz")


def _complete_topology(incomplete: str) -> list[str]:
    from teccl.topology.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="A topology file, or preset\\[:key=value,...] such as ndv2:chassis=2.",
        show_default=False,
        autocompletion=_complete_topology,
    ),
]
ScheduleArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A schedule file.", show_default=False)
]


def flag(*names: str, help_text: str) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, metavar="", help=help_text, rich_help_panel="Output")


def output_option(help_text: str) -> Any:
    """Return the option that names the file to write."""
    return typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help=help_text,
        show_default=False,
        rich_help_panel="Output",
    )


JsonOption = Annotated[bool, flag("--json", help_text="Print one JSON object.")]
QuietOption = Annotated[bool, flag("--quiet", "-q", help_text="Print no table and no progress.")]


def check_output(path: str | None, suffixes: tuple[str, ...] = SCHEDULE_SUFFIXES) -> Path | None:
    """Refuse an output file that could not be written, before any work is done for it."""
    if path is None:
        return None
    target = Path(path)
    if not path.strip() or "\0" in path or not target.name:
        raise UsageError(f"output file {path[:80]!r} is not a file name; give for example out.json")
    if not target.name.lower().endswith(suffixes) or target.name.lower() in suffixes:
        raise UsageError(
            f"output file {path!r}: unknown kind of file; give a name ending in "
            f"{' or '.join(suffixes)}"
        )
    folder = next(place for place in (target.parent, *target.parent.parents) if place.exists())
    if target.is_dir():
        raise UsageError(f"output file {path!r} is a folder; give the name of a file")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"output file {path!r}: folder {str(folder)!r} cannot be written")
    return target
