"""The app in a real browser, from the choice of a problem to the download."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.browsing import keep_screenshot, serious_issues, watched_page
from tests.web.conftest import Server

import teccl
from teccl.units import display_time

BAD = (
    "schema_version: 1\nname: mine\nnodes: 2\nlinks:\n- {src: gpu0, dst: gpu7, bandwidth: 1GB/s}\n"
)
GOOD = """schema_version: 1
name: "<b>mine</b>"
nodes: 4
links:
- {src: gpu0, dst: gpu1, bandwidth: 10GB/s, alpha: 1us, bidirectional: true}
- {src: gpu1, dst: gpu2, bandwidth: 10GB/s, alpha: 1us, bidirectional: true}
- {src: gpu2, dst: gpu3, bandwidth: 10GB/s, alpha: 1us, bidirectional: true}
- {src: gpu3, dst: gpu0, bandwidth: 10GB/s, alpha: 1us, bidirectional: true}
"""


@pytest.fixture
def page(server: Server, browser: Any) -> Iterator[Any]:
    """The app's page, opened by the printed address."""
    # Chromium's console lists requests that the server refuses, as some of these tests want it to.
    with watched_page(browser, expected="status of 400") as opened:
        opened.goto(server.address)
        opened.wait_for_selector("html[data-ready]")
        assert opened.url == f"{server.root}/"
        yield opened


def solve(page: Any, preset: str, **fields: str) -> None:
    """Fill the form and press solve."""
    page.select_option("#preset", preset)
    for name, value in fields.items():
        if page.locator(f"#{name}").evaluate("e => e.tagName") == "SELECT":
            page.select_option(f"#{name}", value)
        else:
            page.fill(f"#{name}", value)
    page.click("#solve")


def test_solve_watch_and_look(page: Any, tmp_path: Path) -> None:
    """The figures move while it solves, then result, report and downloads are there."""
    solve(page, "dgx1", collective="allgather", size="1MB", effort="quick", chunks="4")
    page.locator("#result").wait_for()
    expected = teccl.solve("dgx1", "allgather", size="1MB", effort="quick", chunks=4)
    finish = display_time(expected.finish_time_s)
    assert page.locator("#incumbent").inner_text() == finish
    assert page.locator("#bound").inner_text() == display_time(expected.physical_bound_s)
    points = page.evaluate("state.points.filter((point) => point[1] !== null).map((p) => p[1])")
    assert points
    assert points == sorted(points, reverse=True)
    assert expected.certificate in page.locator("#figures").inner_text()
    frame = page.frame_locator("#frame")
    frame.locator("html[data-complete]").wait_for()
    assert frame.locator("h1").inner_text() == "allgather on dgx1"
    assert finish in frame.locator(".cards").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Schedule").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert teccl.Schedule.load(path).finish_time_s == expected.finish_time_s
    assert teccl.verify(teccl.Schedule.load(path)) == ()
    keep_screenshot(page, "app-result")
    assert serious_issues(page) == []


def test_xml_is_downloaded(page: Any, tmp_path: Path) -> None:
    """The MSCCL file that the button gives is XML."""
    pytest.importorskip("teccl.formats.msccl.write")
    solve(page, "ring", collective="allgather", size="1MB", method="ring", chunks="1")
    page.locator("#result").wait_for()
    with page.expect_download() as download:
        page.locator("[data-export=msccl]").click()
    assert download.value.suggested_filename == "schedule.xml"
    download.value.save_as(tmp_path / "schedule.xml")
    assert ElementTree.parse(tmp_path / "schedule.xml").getroot().tag == "algo"


@pytest.mark.slow
def test_cancel_keeps_the_best(page: Any) -> None:
    """A search is stopped from the page and its best schedule shown."""
    solve(page, "torus", parameters="dims=8x8", collective="alltoall", effort="thorough", chunks="")
    page.locator("#state", has_text="running").wait_for()
    page.locator("#incumbent", has_text="us").wait_for()
    assert page.locator("#gap").inner_text().endswith("%")
    keep_screenshot(page, "app-live")
    page.click("#cancel")
    page.locator("#result").wait_for()
    assert "interrupted" in page.locator("#figures").inner_text()
    assert not page.locator("#cancel").is_visible()


def test_uploads(page: Any, tmp_path: Path) -> None:
    """A bad file is refused in words, a good one is drawn, named as text and solved."""
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "good.yaml").write_text(GOOD)
    page.set_input_files("#file", tmp_path / "bad.yaml")
    page.locator("#problem").wait_for()
    said = page.locator("#problem").inner_text()
    assert "bad.yaml" in said
    assert "gpu7" in said
    keep_screenshot(page, "app-bad-file")
    page.set_input_files("#file", tmp_path / "good.yaml")
    page.locator("#upload", has_text="4 GPUs").wait_for()
    assert "<b>mine</b>" in page.locator("#upload").inner_text()
    page.locator("#problem").wait_for(state="hidden")
    page.fill("#chunks", "1")
    page.select_option("#method", "ring")
    page.click("#solve")
    page.locator("#result").wait_for()
    assert page.locator("#live-title").inner_text() == "allgather 1MB on good.yaml by ring"


@pytest.mark.slow
def test_comparison_with_baselines(page: Any) -> None:
    """Baselines are listed with their times, and one is shown side by side."""
    solve(page, "ring", parameters="gpus=4", collective="allreduce", effort="quick", chunks="2")
    page.locator("#result").wait_for()
    page.click("#compare")
    page.locator("#compare-note", has_text="solving").wait_for(state="hidden")
    table = page.locator("#baseline-table").inner_text()
    assert "this schedule" in table
    assert "ring" in table
    expected = teccl.solve("ring:gpus=4", "allreduce", size="1MB", method="ring")
    assert display_time(expected.finish_time_s) in table
    page.get_by_role("button", name="Side by side").first.click()
    frame = page.frame_locator("#frame")
    frame.locator("html[data-complete]").wait_for()
    assert frame.locator(".stage").count() == 2
    keep_screenshot(page, "app-baselines")


@pytest.mark.slow
def test_wrong_values_are_answered(page: Any) -> None:
    """A wrong size is answered by the job, a wrong preset parameter at once."""
    solve(page, "ring", parameters="gpus=4", collective="allgather", size="lots")
    page.locator("#failure").wait_for()
    assert "give a unit, for example" in page.locator("#failure").inner_text()


@pytest.mark.slow
def test_app_is_accessible(page: Any) -> None:
    """axe-core finds nothing serious on the empty page, light and dark."""
    assert serious_issues(page) == []
    page.click("#theme")
    assert serious_issues(page) == []
    keep_screenshot(page, "app-dark")
