"""A browser for the tests of reports."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import watched_page

from teccl.report import write_report
from teccl.schedule import Schedule


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A function that writes a report, opens it from disk and waits until it is drawn."""
    with watched_page(browser) as page:

        def show(schedule: Schedule, **options: Any) -> Any:
            path = tmp_path / "report.html"
            write_report(schedule, path, **options)
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-complete]")
            return page

        yield show
