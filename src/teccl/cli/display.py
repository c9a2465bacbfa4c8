"""Progress of a search on standard error, when that is a terminal."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from teccl.progress import Progress, ProgressCallback
from teccl.units import display_time

if TYPE_CHECKING:
    from rich.console import RenderableType

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=oO#@"
_SPARK_WIDTH = 16
# Gaps below this all look closed.
_SMALL_GAP = 1e-4


@contextmanager
def progress_display(
    *, quiet: bool, request: Mapping[str, Any] | None = None
) -> Iterator[ProgressCallback | None]:
    """Show what a search has found until it ends; None when nobody watches.

    Parameters
    ----------
    quiet
        Whether to show nothing.
    request
        Keywords of the search, from which the time that is left is estimated.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    panel = ProgressPanel(is_ascii=console.options.ascii_only, limit=_limit(request or {}))
    with Live(panel, console=console, transient=True, refresh_per_second=8):
        yield panel.note


class ProgressPanel:
    """The lines that a terminal shows while a search runs.

    Parameters
    ----------
    is_ascii
        Whether the terminal knows plain characters only.
    limit
        Seconds that the search may take; None for any number.
    """

    def __init__(self, *, is_ascii: bool = False, limit: float | None = None) -> None:
        from time import monotonic

        from rich.spinner import Spinner

        self.clock = monotonic
        self.started = monotonic()
        self.limit = limit
        self.is_ascii = is_ascii
        self.event = Progress(phase="starting")
        self.gaps: list[float] = []
        self.spinner = Spinner("line" if is_ascii else "dots")

    def note(self, event: Progress) -> None:
        """Take what is news."""
        self.event = event
        if event.gap is not None:
            self.gaps.append(event.gap)

    def __rich__(self) -> "RenderableType":
        """Return the figures on one line and what is being done on the next."""
        from rich.table import Table
        from rich.text import Text

        elapsed = self.clock() - self.started
        cells = [f"{elapsed:.1f} s", *figures(self.event)]
        if len(self.gaps) > 1:
            cells.append(sparkline(self.gaps, _ASCII_BARS if self.is_ascii else _BARS))
        left = self.seconds_left(elapsed)
        if left is not None:
            cells.append(f"at most {left:.0f} s left")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        grid.add_row(self.spinner, Text("  ".join(cells)))
        doing = self.event.phase + (f": {self.event.message}" if self.event.message else "")
        grid.add_row("", Text(doing, style="dim"))
        return grid

    def seconds_left(self, elapsed: float) -> float | None:
        """Seconds until the search must end, as far as that is known."""
        return None if self.limit is None else max(0.0, self.limit - elapsed)


def figures(event: Progress) -> list[str]:
    """Return what is known of the schedule and the bound.

    Examples
    --------
    >>> figures(Progress(phase="construct", incumbent_s=2e-5, bound_s=1.6e-5, gap=0.25))
    ['best 20 us', 'bound 16 us', 'gap 25 %']
    """
    parts = []
    if event.incumbent_s is not None:
        parts.append(f"best {display_time(event.incumbent_s)}")
    if event.bound_s is not None:
        parts.append(f"bound {display_time(event.bound_s)}")
    if event.gap is not None:
        parts.append(f"gap {100 * event.gap:.3g} %")
    return parts


def sparkline(gaps: Sequence[float], bars: str = _BARS, width: int = _SPARK_WIDTH) -> str:
    """Return the gaps over time as a row of bars, on a scale of factors.

    Examples
    --------
    >>> sparkline([1.0, 0.1, 0.01, 0.0])
    '█▆▅▁'
    """
    heights = [math.log10(max(gap, _SMALL_GAP)) for gap in gaps]
    if len(heights) > width:
        heights = [heights[i * (len(heights) - 1) // (width - 1)] for i in range(width)]
    low, high = math.log10(_SMALL_GAP), max(heights)
    span = max(high - low, 1e-9)
    return "".join(bars[round((height - low) / span * (len(bars) - 1))] for height in heights)


def _limit(request: Mapping[str, Any]) -> float | None:
    """Return the seconds that a request allows, None for any number."""
    from teccl.synthesis.request import read_time_limit

    return read_time_limit(request.get("time_limit"))
