"""What the commands for studies share: workers, the store, progress, lists."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import CommandFailed, ExitCode, UsageError
from teccl.cli.options import flag, option
from teccl.errors import InputError
from teccl.progress import CancelToken

if TYPE_CHECKING:
    from teccl.studies.running import OnOutcome, Workplace

_WORK = "Workers and store"

WORK = {
    "jobs": option("--jobs", "N", _WORK, "Local processes (one for each processor)."),
    "dask": option(
        "--dask", "ADDRESS|local", _WORK, "Run on a Dask cluster, or a local one of N jobs."
    ),
    "mpi": option(
        "--mpi", "", _WORK, "Run on the ranks of python -m mpi4py.futures (found by itself)."
    ),
    "store": option(
        "--store", "FILE", _WORK, "Where results are kept (the user's cache, $TECCL_STORE)."
    ),
    "no_store": option("--no-store", "", _WORK, "Neither use nor keep earlier results."),
}
JsonListOption = Annotated[bool, flag("--json", help_text="Print one JSON value.")]
TimeLimitOption = Annotated[
    str | None,
    option("--time-limit", "DURATION", "Method", "For each request; keep the best by then."),
]


@contextmanager
def workplace(given: Mapping[str, Any], *, quiet: bool, what: str) -> Iterator["Workplace"]:
    """Yield where to work, with progress on a terminal and Ctrl-C that keeps what is done."""
    from teccl.cli.interrupt import PATIENCE_S, stopping_on_interrupt
    from teccl.studies.running import Workplace
    from teccl.synthesis.request import read_whole

    jobs, dask, mpi, store, no_store = (given[name] for name in WORK)
    if dask is not None and mpi:
        raise UsageError("both --dask and --mpi; give one of them")
    if store is not None and no_store:
        raise UsageError("both --store and --no-store; give one of them")
    token = CancelToken(patience_s=PATIENCE_S)
    with stopping_on_interrupt(token), _progress_bar(what, quiet=quiet) as on_outcome:
        place = Workplace(
            jobs=None if jobs is None else read_whole(jobs, "jobs", low=1, high=4096),
            dask=dask,
            mpi=True if mpi else None,
            store=False if no_store else store,
            on_outcome=on_outcome,
            cancel=token,
        )
        try:
            yield place
        except InputError as reason:
            if token.is_cancelled:
                # What a study lacks then is no fault of what was given.
                raise without_schedule(place, f"interrupted: {reason}") from None
            raise


def without_schedule(place: "Workplace", reason: str) -> CommandFailed:
    """Return how a study ends that has nothing to show: because of Ctrl-C, or by itself."""
    is_stopped = place.cancel is not None and place.cancel.is_cancelled
    return CommandFailed(ExitCode.INTERRUPTED if is_stopped else ExitCode.NO_SCHEDULE, reason)


@contextmanager
def _progress_bar(what: str, *, quiet: bool) -> "Iterator[OnOutcome | None]":
    """Show how many requests are done; None when nobody watches."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True) as bar:
        number = bar.add_task(what, total=None, last="")

        def note(outcome: Any, done: int, total: int) -> None:
            bar.update(number, completed=done, total=total, last=outcome.task.label)

        yield note


def save_figure(path: Path, draw: Callable[[], Any]) -> None:
    """Draw a figure and write it to a file, all or nothing."""
    import io

    from teccl._files import write_atomically

    try:
        import matplotlib as mpl
    except ImportError:
        raise InputError("figures need matplotlib; pip install 'teccl[plot]'") from None
    mpl.use("agg")
    axes = draw()
    figure = axes.figure
    data = io.BytesIO()
    # Without a date the same figure gives the same bytes.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(
        data, format=path.suffix.removeprefix("."), bbox_inches="tight", dpi=150, metadata=metadata
    )
    from matplotlib import pyplot

    pyplot.close(figure)
    write_atomically(path, data.getvalue(), InputError)


def path_option(name: str, metavar: str, help_text: str) -> Any:
    """Return an option of the output that names a file or folder."""
    return typer.Option(
        name, metavar=metavar, help=help_text, show_default=False, rich_help_panel="Output"
    )


FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
