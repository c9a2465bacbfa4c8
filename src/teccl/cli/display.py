"""Progress of a search on standard error, when that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from teccl.progress import Progress, ProgressCallback
from teccl.units import display_time


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[ProgressCallback | None]:
    """Show what a search has found until it ends; None when nobody watches."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting")
        yield lambda event: bar.update(task, description=describe(event))


def describe(event: Progress) -> str:
    """Return what is known, on one line.

    Examples
    --------
    >>> describe(Progress(phase="construct", incumbent_s=2e-5, bound_s=1.6e-5, gap=0.25))
    'construct  best 20 us  bound 16 us  gap 25 %'
    """
    parts = [event.phase]
    if event.incumbent_s is not None:
        parts.append(f"best {display_time(event.incumbent_s)}")
    if event.bound_s is not None:
        parts.append(f"bound {display_time(event.bound_s)}")
    if event.gap is not None:
        parts.append(f"gap {100 * event.gap:.3g} %")
    if event.message:
        parts.append(event.message)
    return "  ".join(parts)
