"""Progress on the terminal, and what the doctor finds."""

import io
import json

import pytest
from rich.console import Console
from tests.cli.helpers import run

from teccl import __version__
from teccl.cli.display import ProgressPanel, _limit, progress_display, sparkline
from teccl.cli.doctor import LIBRARIES
from teccl.progress import Progress


def drawn(panel: ProgressPanel, width: int = 100) -> list[str]:
    """Lines that a terminal of some width shows."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False)
    console.print(panel)
    return console.file.getvalue().rstrip("\n").split("\n")


def news(incumbent: float, gap: float) -> Progress:
    return Progress(phase="construct", incumbent_s=incumbent, bound_s=1e-5, gap=gap, message="m")


def test_the_panel_shows_what_is_known():
    """Best, bound, gap, the gap's course and the phase are on two lines."""
    panel = ProgressPanel()
    for gap in (1.0, 0.1, 0.01):
        panel.note(news(1e-5 * (1 + gap), gap))
    first, second = drawn(panel)
    assert "best 10.1 us  bound 10 us  gap 1 %" in first
    assert "█" in first
    assert second.strip() == "construct: m"


def test_the_panel_fits_narrow_terminals():
    """Lines are cut, not wrapped."""
    panel = ProgressPanel()
    panel.note(news(2e-5, 1.0))
    panel.note(news(2e-5, 0.5))
    lines = drawn(panel, width=40)
    assert len(lines) == 2
    assert all(len(line) <= 40 for line in lines)


def test_the_panel_is_plain_where_it_must_be():
    """A terminal without Unicode gets plain characters."""
    panel = ProgressPanel(is_ascii=True)
    panel.note(news(2e-5, 1.0))
    panel.note(news(2e-5, 0.5))
    assert "\n".join(drawn(panel)).isascii()


def test_time_left_counts_from_the_start():
    """A time limit is all that ends a search by the clock."""
    panel = ProgressPanel(limit=10.0)
    assert panel.seconds_left(1.0) == 9.0
    assert panel.seconds_left(40.0) == 0.0
    assert ProgressPanel().seconds_left(1.0) is None


def test_limit_is_that_of_the_request():
    """Only what the user says limits a search in seconds."""
    assert _limit({}) is None
    assert _limit({"effort": "quick", "time_limit": "1min"}) == 60.0


def test_sparkline_samples_long_courses():
    """However long the course, the line is as wide as it may be and ends with its end."""
    line = sparkline([10 ** (-4 * i / 999) for i in range(1000)])
    assert len(line) == 16
    assert (line[0], line[-1]) == ("█", "▁")


@pytest.mark.parametrize("quiet", [True, False])
def test_nobody_watches_a_pipe(quiet, monkeypatch):
    """Without a terminal, or when quiet, nothing is shown."""
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress_display(quiet=quiet) as progress:
        assert progress is None


def test_doctor_lists_what_a_report_needs():
    """Versions, solvers, MPI, browser and threads are told, in words and as JSON."""
    outcome = run("doctor")
    assert outcome.code == 0
    for word in (f"teccl         {__version__}", "python", "solver", "mpi", "browser", "threads"):
        assert word in outcome.out
    found = json.loads(run("doctor", "--json").out)
    assert found["teccl"] == __version__
    assert set(found["solvers"]) == {"highs", "cpsat", "gurobi"}
    assert found["threads"] >= 1
    assert list(found["libraries"]) == list(LIBRARIES)
    assert found["libraries"]["numpy"][0].isdigit()
