"""`teccl export`: a schedule as files that other programs run or show."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import UsageError
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    ScheduleArgument,
    check_output,
    choice,
    flag,
    option,
    output_option,
)
from teccl.formats.registry import formats_that

if TYPE_CHECKING:
    from teccl.formats.writing import Export

TARGET_NAMES = tuple(formats_that("writes"))
# The library knows these too; they stand here so that help and completion need not load it.
DTYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
)
PROTOCOLS = ("Simple", "LL", "LL128")
_PROGRAM = "Programs for GPU runtimes"


def export(  # noqa: PLR0917, the command line gives names
    file: ScheduleArgument,
    to: Annotated[
        str | None, choice("--to", TARGET_NAMES, "Target", "What to make, required")
    ] = None,
    in_place: Annotated[
        bool | None,
        typer.Option(
            "--in-place/--out-of-place",
            rich_help_panel=_PROGRAM,
            help="Serve calls that reuse their buffer, or those that do not (out of place).",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[
        str | None, choice("--dtype", DTYPES, _PROGRAM, "Elements that chunks consist of (float)")
    ] = None,
    channels: Annotated[
        int | None, option("--channels", "N", _PROGRAM, "Most channels to use (auto).")
    ] = None,
    instances: Annotated[
        int | None,
        option("--instances", "N", _PROGRAM, "Copies of the program on shares of the data (1)."),
    ] = None,
    protocol: Annotated[
        str | None, choice("--protocol", PROTOCOLS, _PROGRAM, "Protocol of the runtime (by size)")
    ] = None,
    min_bytes: Annotated[
        str | None,
        option("--min-bytes", "SIZE", _PROGRAM, "Smallest size to use the file for (size / 2)."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        option("--max-bytes", "SIZE", _PROGRAM, "Largest size to use the file for (size * 2)."),
    ] = None,
    with_config: Annotated[
        bool,
        flag("--with-config", help_text="Write ASTRA-sim's network, system and workload too."),
    ] = False,
    rank: Annotated[
        int | None,
        option("--rank", "R", "Target", "Of an orbit file, write this rank's messages as JSON."),
    ] = None,
    output: Annotated[
        str | None, output_option("The file to write; without it nothing is written.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn a schedule into a proven program for a GPU runtime, or into a trace."""
    from teccl.cli.orbits import export_rank
    from teccl.cli.output import emit, emit_json
    from teccl.cli.startup import load_numba_alone
    from teccl.formats.shared.exports import ExportOptions
    from teccl.formats.writing import export as export_schedule
    from teccl.formats.writing import find_target
    from teccl.orbit.recognition import is_orbit_file
    from teccl.schedule import Schedule

    if is_orbit_file(Path(file)):
        if to is not None:
            raise UsageError("an orbit file is exported rank by rank as JSON; drop --to")
        export_rank(file, rank, check_output(output), as_json=as_json)
        return
    if rank is not None:
        # A file that is not there or damaged lists nothing, and is named first.
        Schedule.load(file)
        raise UsageError("--rank is for orbit files; this one lists all sends, so drop it")
    if to is None:
        raise UsageError(f"missing --to; give one of {', '.join(TARGET_NAMES)}")
    target = find_target(to, ExportOptions())
    path = check_output(output, target.suffixes)
    schedule = Schedule.load(file)
    if target.compiled:
        load_numba_alone()
    made = export_schedule(
        schedule,
        to=to,
        path=path,
        in_place=in_place,
        dtype=dtype,
        channels=channels,
        instances=instances,
        protocol=protocol,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        with_config=with_config or None,
    )
    if as_json:
        emit_json(export_document(made, written=path is not None))
    elif not quiet:
        emit(export_text(made, written=path is not None))


def export_document(made: "Export", *, written: bool) -> dict[str, Any]:
    """Return an export as one JSON object."""
    return {
        "target": made.target,
        "files": [str(file.path) for file in made.files] if written else [],
        **made.facts,
        "notes": list(made.notes),
        "environment": dict(made.environment),
        "command": made.command,
    }


def export_text(made: "Export", *, written: bool) -> str:
    """Return an export as lines to print."""
    from shlex import quote

    from teccl.cli.output import pairs

    rows: list[tuple[str, object]] = [("target", made.target)]
    rows += [(name.replace("_", " "), value) for name, value in made.facts.items()]
    if written:
        names = [str(file.path) for file in made.files]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        rows.append(("saved to", names[0] + more))
    else:
        rows.append(("saved to", "nowhere; give -o FILE to write it"))
    parts = [pairs(rows)]
    parts += [f"note: {note}" for note in made.notes]
    if made.environment:
        lines = (f"export {name}={quote(value)}" for name, value in made.environment.items())
        parts.append("\n".join(lines))
    if made.command:
        parts.append(made.command)
    return "\n".join(parts)
