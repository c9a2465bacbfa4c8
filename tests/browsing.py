"""A real browser for tests of pages: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCREENSHOTS = Path(__file__).parents[1] / "out" / "screenshots"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str:
    """Return the browser's program, or skip the test."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium; install the package: apt-get install chromium (or: make browser)")
    return found


@contextmanager
def running_browser() -> Iterator[Any]:
    """Start a headless browser that ends with the block."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium_path()
    # Chromium's sandbox refuses to run as root, as one often is in containers.
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@contextmanager
def watched_page(browser: Any, *, expected: str | None = None, **options: Any) -> Iterator[Any]:
    """Open a page that must not complain: console errors and exceptions fail the test.

    Complaints that contain `expected` are what the test is about.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 950}, **options)
    page = context.new_page()
    # Compiled kernels may have to be compiled first.
    page.set_default_timeout(120_000)
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
    yield page
    context.close()
    assert [text for text in complaints if expected is None or expected not in text] == []


def keep_screenshot(page: Any, name: str) -> None:
    """Keep a picture of the whole page for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def serious_issues(page: Any) -> list[str]:
    """Return what axe-core finds of serious or critical impact."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{issue['id']}: {node['html'][:120]}"
        for issue in found
        if issue["impact"] in ("serious", "critical")
        for node in issue["nodes"]
    ]
