"""Standard output: JSON, tables and plain lines."""

import json
import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import typer

from teccl.cli.errors import CommandFailed, ExitCode, one_line

if TYPE_CHECKING:
    from teccl.orbit import OrbitSchedule, PatchedSchedule
    from teccl.schedule import Schedule

# A pipe has no width: wide enough that no cell is ever cut.
_PIPE_WIDTH = 100_000
_PIECE = 2**15


def emit(text: str) -> None:
    """Write text and a line end to standard output, now.

    A reader that has gone (``teccl topology list | head -1``) ends the command without a word.
    """
    if sys.stdout is None or not text:
        return
    text = text if text.endswith("\n") else text + "\n"
    try:
        # An unbuffered stream (PYTHONUNBUFFERED) does not notice that a long write was cut short.
        for start in range(0, len(text), _PIECE):
            sys.stdout.write(text[start : start + _PIECE])
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        raise typer.Exit(ExitCode.CLOSED_PIPE) from None
    except OSError as problem:
        _drop_output()
        reason = f"standard output cannot be written: {problem.strerror}"
        raise CommandFailed(ExitCode.NO_SCHEDULE, reason) from None


def emit_json(document: Any) -> None:
    """Write one JSON value to standard output."""
    emit(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def plain_number(value: Fraction) -> int | float:
    """Return a rational as JSON has it: whole numbers stay whole."""
    return int(value) if value.denominator == 1 else float(value)


def schedule_document(schedule: "Schedule | OrbitSchedule | PatchedSchedule") -> dict[str, Any]:
    """Return what JSON says of a schedule, whether it lists all sends or one of each orbit."""
    from teccl.schedule import Schedule

    if isinstance(schedule, Schedule):
        whole = schedule.problem
        network, title, size = whole.topology.name, whole.demand.title, whole.size_bytes
        num_gpus, num_sends = whole.num_gpus, len(schedule)
    else:
        part = schedule.problem
        network, title, size = part.fabric.name, part.collective.value, part.size
        num_gpus, num_sends = part.fabric.num_gpus, schedule.num_sends
    return {
        "method": schedule.method,
        "topology": network,
        "collective": title,
        "num_gpus": num_gpus,
        "size_bytes": plain_number(size),
        "num_chunks": schedule.problem.num_chunks,
        "chunk_bytes": plain_number(schedule.problem.chunk_bytes),
        "num_sends": num_sends,
        "finish_time_s": schedule.finish_time_s,
    }


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay rows out in columns: with rules on a terminal, else plain.

    Cells are text, never markup, so a name such as ``[red]`` is printed as it is. Columns whose
    heading starts with ``>`` are set flush right; without headings there is no head.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    ruled = any(columns) and _is_terminal()
    grid = Table(
        box=box.SIMPLE_HEAD if ruled else None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=any(columns),
        header_style="bold",
    )
    for i, column in enumerate(columns):
        right = column.startswith(">")
        grid.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            style="" if any(columns) or i else "bold",
            no_wrap=not _is_terminal() or i == 0,
        )
    for row in rows:
        grid.add_row(*(Text(one_line(str(cell))) for cell in row))
    return _render(grid)


def pairs(rows: Sequence[tuple[str, object]]) -> str:
    """Lay out names and values, one pair a line."""
    return table(("", ""), rows)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _render(renderable: Any) -> str:
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    # Without a file of its own, rich takes the width from the terminal; a pipe has none.
    width = None if _is_terminal() else _PIPE_WIDTH
    console = Console(file=text, force_terminal=_is_terminal(), width=width, highlight=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush is silent."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        return
