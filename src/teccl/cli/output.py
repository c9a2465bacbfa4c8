"""Standard output: JSON, tables and plain lines."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from teccl.cli.errors import CommandFailed, ExitCode, one_line

# A pipe has no width: wide enough that no cell is ever cut.
_PIPE_WIDTH = 100_000


def emit(text: str) -> None:
    """Write text and a line end to standard output, now.

    A reader that has gone (``teccl topology list | head -1``) ends the command without a word.
    """
    if sys.stdout is None or not text:
        return
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
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


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> str:
    """Lay rows out in columns: with colour and rules on a terminal, else plain.

    Cells are text, never markup, so a name such as ``[red]`` is printed as it is. Columns whose
    heading starts with ``>`` are set flush right.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout is not None and sys.stdout.isatty()
    grid = Table(
        title=title or None,
        title_justify="left",
        box=box.SIMPLE_HEAD if terminal else None,
        pad_edge=False,
        show_header=any(columns),
        header_style="bold",
    )
    for column in columns:
        right = column.startswith(">")
        grid.add_column(column.removeprefix(">"), justify="right" if right else "left")
    for row in rows:
        grid.add_row(*(Text(one_line(str(cell))) for cell in row))
    return _render(grid, terminal=terminal)


def pairs(rows: Sequence[tuple[str, object]]) -> str:
    """Lay out names and values, one pair a line."""
    return table(("", ""), rows)


def _render(renderable: Any, *, terminal: bool) -> str:
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if terminal else _PIPE_WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush is silent."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        return
