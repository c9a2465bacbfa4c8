"""Make the pictures of the README and of the page about looking at schedules, into `img/`.

Run as ``python docs/make_pictures.py``. Every picture shows a schedule that is solved for it. The
pictures of pages need Chromium; without it those that are there stay.
"""

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

import teccl
from teccl.plotting import plot_gantt, plot_sweep, plot_topology, plot_utilisation
from teccl.report import write_report

FOLDER = Path(__file__).parent / "img"
SIZES = ("1KB", "4KB", "16KB", "64KB", "256KB", "1MB", "4MB", "16MB", "64MB", "256MB", "1GB")


def main() -> None:
    """Make all pictures."""
    mpl.use("agg")
    # The same input gives the same bytes.
    mpl.rcParams["svg.hashsalt"] = "teccl"
    cluster = solved("ndv2:chassis=2", "allgather", size="1MB")
    ring = solved("dgx1", "allreduce", size="1MB", method="ring")
    best = solved("dgx1", "allreduce", size="1MB")
    figure("gantt", lambda: plot_gantt(solved("dgx1", "allgather", size="1MB", chunks=2)))
    figure("utilisation", lambda: plot_utilisation(cluster, max_links=24))
    topology = cluster.problem.topology
    figure("load", lambda: plot_topology(topology, values=cluster.utilisation()))
    figure("sweep", lambda: plot_sweep(sweep()))
    photograph(
        [
            ("report", cluster, None, "play"),
            ("report-comparison", best, ring, "play"),
        ]
    )


def solved(topology: str, collective: str, **options: Any) -> teccl.Schedule:
    """Return the schedule of a request."""
    schedule = teccl.solve(topology, collective, **options).schedule
    assert schedule is not None
    return schedule


def sweep() -> list[teccl.Result]:
    """Solve an AllGather on a DGX-1 for many sizes, by construction and by the ring."""
    return [
        teccl.solve("dgx1", "allgather", size=size, **options)
        for options in ({"effort": "quick"}, {"method": "ring"})
        for size in SIZES
    ]


def figure(name: str, draw: Callable[[], Any]) -> None:
    """Save one figure as SVG, the text as text."""
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        ax = draw()
        ax.figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    mpl.pyplot.close(ax.figure)


def photograph(pages: list[tuple[str, teccl.Schedule, teccl.Schedule | None, str]]) -> None:
    """Take pictures of reports: headline, network and timeline through a lens."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.stderr.write("no Chromium: the pictures of pages stay as they are\n")
        return
    from PIL import Image
    from playwright.sync_api import sync_playwright

    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=options)
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        for name, schedule, other, lens in pages:
            path = Path(folder) / "report.html"
            write_report(schedule, path, compare=other)
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-complete]")
            page.locator("#time").fill("330")
            page.click(f"#lens-{lens}")
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(800)
            box = page.locator("#timeline").bounding_box()
            area = {"x": 0, "y": 0, "width": 1280, "height": box["y"] + box["height"] + 8}
            shot = page.screenshot(full_page=True, clip=area)
            # A palette of 256 colours makes the file a third as large and looks the same.
            picture = Image.open(io.BytesIO(shot)).convert("RGB").quantize(256)
            picture.save(FOLDER / f"{name}.png", optimize=True)
        chromium.close()


if __name__ == "__main__":
    main()
