"""The page in a real browser: what it shows is compared with the schedule itself."""

import sys
from typing import Any

import numpy as np
import pytest
from tests.browsing import keep_screenshot, serious_issues
from tests.report.schedules import solved
from tests.report.test_page import AWKWARD, awkward_schedule

from teccl.schedule.columns import Sends
from teccl.schedule.timing import send_times
from teccl.units import PICOSECONDS, display_time
from teccl.verification.rules.buffers import visits
from teccl.verification.timeline import physical_timeline
from teccl.verification.transfers import Transfers

SMALL = ["dgx1", "ndv2", "dgx2", "torus", "alltoall", "allreduce"]


def some(*quick: str, slow: str) -> list[Any]:
    """Parameters of which some are tried in the quick suite and all in the slow one."""
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow.split())]


def shown_time(ps) -> str:
    return display_time(float(ps) / PICOSECONDS)


def set_slider(page, thousandth: int) -> float:
    """Move the time slider as a user does; return the part of the finish it stands at."""
    page.locator("#time").fill(str(thousandth))
    now = page.locator("#now").inner_text()
    page.locator("#panel .facts", has_text=f"{now} now").first.wait_for()
    return thousandth / 1000


def busy_links(schedule, time_ps: float) -> set[int]:
    """Links that carry something at a moment."""
    times = send_times(schedule)
    start = schedule.sends["start_ps"]
    rows = (start <= time_ps) & (start + times.occupancy_ps > time_ps)
    return set(schedule.sends["link"][rows].tolist())


def hover(page, row_ps: float, link: int) -> str:
    """Point at a moment of a link on the timeline and return the tooltip's text."""
    page.locator("#gantt").scroll_into_view_if_needed()
    place = page.evaluate(
        """([time, link]) => {
            const {timeline} = window.teccl;
            const box = timeline.host.getBoundingClientRect();
            const axes = {xAxisIndex: 0, yAxisIndex: 0};
            const [x, y] = timeline.chart.convertToPixel(axes, [time, timeline.rows.indexOf(link)]);
            return [box.left + x, box.top + y];
        }""",
        [row_ps, link],
    )
    page.mouse.move(place[0] - 3, place[1])
    page.mouse.move(*place, steps=3)
    tip = page.locator("#gantt .tip")
    tip.wait_for()
    return tip.inner_text()


@pytest.mark.parametrize("name", some("ndv2", "allreduce", slow="dgx1 dgx2 torus alltoall"))
def test_reports_show_the_schedule(name, opened):
    """Slider, hover, load, critical path and follow-a-chunk agree with the schedule."""
    schedule = solved(name)
    topology = schedule.problem.topology
    page = opened(schedule)
    assert page.locator("h1").inner_text() == f"{schedule.problem.demand.title} on {topology.name}"
    assert page.locator("#stages .spot").count() == topology.num_nodes

    part = set_slider(page, 370)
    busy = busy_links(schedule, part * schedule.finish_ps)
    used = len(set(schedule.sends["link"].tolist()))
    facts = page.locator("#panel .facts").inner_text()
    assert f"{len(busy)} of {used} links busy" in facts
    arrived = send_times(schedule).arrival_ps <= part * schedule.finish_ps
    assert page.evaluate(
        "window.teccl.state.moment(window.teccl.plans[0]).done.reduce((a, b) => a + b, 0)"
    ) == int(arrived[window_final(schedule)].sum())
    assert page.locator("#stages .wire.lit").count() == len(
        {(topology.link_src[e], topology.link_dst[e]) for e in busy}
    )

    busiest = int(np.argmax(schedule.utilisation()))
    row = int(np.flatnonzero(schedule.sends["link"] == busiest)[0])
    link = busiest
    end = schedule.sends["start_ps"][row] + send_times(schedule).occupancy_ps[row]
    tip = hover(page, float(schedule.sends["start_ps"][row] + end) / 2, link)
    assert topology.link_name(link) in tip
    assert f"chunk {schedule.sends['chunk'][row]} (" in tip
    assert f"start {shown_time(schedule.sends['start_ps'][row])}, end {shown_time(end)}" in tip

    load = schedule.utilisation()[busiest]
    assert topology.link_name(busiest) in page.locator("#heat-note").inner_text()
    keep_screenshot(page, f"report-{name}")
    page.click("#lens-load")
    assert f"{topology.link_name(busiest)} (bottleneck)" in page.locator("#panel").inner_text()
    assert page.locator("#stages .wire.marked").count() == 1
    assert page.locator("#stages .wire-label").text_content() == f"{100 * load:.3g} %"

    path = schedule.critical_path()
    page.click("#lens-path")
    assert f"{len(path)} sends without slack" in page.locator("#panel").inner_text()
    rows = page.locator("#panel tbody tr")
    assert rows.count() == len(path[:400])
    first = rows.first.inner_text()
    assert topology.link_name(int(schedule.sends["link"][path[0]])) in first.replace("\n", " ")
    pairs = {
        (topology.link_src[schedule.sends["link"][r]], topology.link_dst[schedule.sends["link"][r]])
        for r in path
    }
    assert page.locator("#stages .wire.marked").count() == len(pairs)


def window_final(schedule) -> np.ndarray:
    from teccl.report.payload import final_rows

    return final_rows(schedule)


@pytest.mark.parametrize("name", some("dgx2", slow="ndv2 allreduce"))
def test_follow_a_chunk(name, opened):
    """The chosen chunk's sends are listed with their times, and nodes say when they have it."""
    schedule = solved(name)
    page = opened(schedule)
    page.click("#lens-chunk")
    page.select_option("[data-pick=hue]", index=1)
    chunk = int(page.locator("[data-pick=chunk]").input_value())
    rows = np.flatnonzero(schedule.sends["chunk"] == chunk)
    page.click("#panel summary")
    listed = page.locator("#panel tbody tr").all_inner_texts()
    times = send_times(schedule)
    names = [schedule.problem.topology.link_name(int(schedule.sends["link"][r])) for r in rows]
    expected = {
        (name, shown_time(schedule.sends["start_ps"][r]), shown_time(times.arrival_ps[r]))
        for name, r in zip(names, rows, strict=True)
    }
    cells = [line.split("\t") for line in listed]
    assert {(c[0], c[1], c[3]) for c in cells} == expected
    wants = schedule.problem.chunks.destinations(chunk)
    labelled = page.locator("#stages .spot .when").all_text_contents()
    assert sum(bool(text) for text in labelled) >= len(wants)
    last = times.arrival_ps[rows].max()
    assert shown_time(last) in labelled
    keep_screenshot(page, f"report-{name}-chunk")


def test_play_moves_time_to_the_end(opened):
    """Playing runs to the finish and stops with everything delivered."""
    page = opened(solved("dgx1"))
    page.select_option("#speed", "4")
    page.evaluate("window.teccl.setTime(0.9 * window.teccl.finish)")
    page.click("#play")
    page.locator("#play", has_text="Pause").wait_for()
    page.locator("#play", has_text="Play").wait_for()
    assert page.locator("#now").inner_text() == shown_time(solved("dgx1").finish_ps)
    total = len(window_final(solved("dgx1")))
    page.locator("#panel .facts", has_text=f"{total:,} of {total:,}").wait_for()


def test_keyboard_alone_suffices(opened):
    """Lenses, time, the timeline's sends and the theme are reached by keys."""
    schedule = solved("dgx1")
    page = opened(schedule)
    page.keyboard.press("3")
    assert page.get_attribute("#lens-path", "aria-selected") == "true"
    page.focus("#lens-path")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("#lens-load", "aria-selected") == "true"
    page.focus("#gantt")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    said = page.locator("#picked").inner_text()
    assert "chunk" in said
    assert "start" in said
    page.keyboard.press("ArrowDown")
    assert page.locator("#picked").inner_text() != said
    before = page.evaluate("window.teccl.timeline.window()")
    page.keyboard.press("+")
    after = page.evaluate("window.teccl.timeline.window()")
    assert after["until"] - after["from"] == pytest.approx((before["until"] - before["from"]) / 2)
    page.keyboard.press("Enter")
    assert page.get_attribute("#lens-chunk", "aria-selected") == "true"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("]")
    first = min(
        t
        for t in schedule.sends["start_ps"].tolist() + send_times(schedule).arrival_ps.tolist()
        if t > 0
    )
    assert page.locator("#now").inner_text() == shown_time(first)
    page.keyboard.press("d")
    assert page.get_attribute("html", "data-theme") == "dark"


def test_zoom_pan_and_filter(opened):
    """Zooming shows a part, dragging moves it, the filter keeps the links of one node."""
    page = opened(solved("ndv2"))
    page.click("#zoom-in")
    page.click("#zoom-in")
    zoomed = page.evaluate("window.teccl.timeline.window()")
    assert zoomed["until"] - zoomed["from"] == pytest.approx(solved("ndv2").finish_ps / 4, rel=0.01)
    page.evaluate("window.teccl.timeline.pan(0.5)")
    moved = page.evaluate("window.teccl.timeline.window()")
    assert moved["from"] > zoomed["from"]
    page.fill("#filter", "c1/gpu7")
    rows = page.evaluate(
        "window.teccl.timeline.rows.map((e) => window.teccl.plans[0].network.linkName(e))"
    )
    assert rows
    assert all("c1/gpu7" in name for name in rows)


def test_comparison_shows_both(opened):
    """Two schedules stand side by side on one time axis."""
    one, two = solved("allreduce"), solved("ring")
    page = opened(one, compare=two)
    keep_screenshot(page, "report-comparison")
    assert "times as long" in page.locator(".verdict").inner_text()
    assert page.locator("#stages .stage").count() == 2
    axes = page.evaluate("window.teccl.timeline.chart.getOption().xAxis.map((axis) => axis.max)")
    assert axes == [max(one.finish_ps, two.finish_ps)] * 2
    set_slider(page, 500)
    time = 0.5 * max(one.finish_ps, two.finish_ps)
    for panel, schedule in zip(page.locator("[data-plan]").all(), (one, two), strict=True):
        used = len(set(schedule.sends["link"].tolist()))
        expected = f"{len(busy_links(schedule, time))} of {used} links busy"
        assert expected in panel.locator(".facts").inner_text()
    drawn = page.locator("#gantt").get_attribute("data-drawn").split()
    assert all(int(number) > 0 for number in drawn)
    page.click("#lens-path")
    assert page.locator("[data-plan] .facts").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ndv2", "allreduce"])
def test_buffers_are_those_the_checker_counts(name, opened):
    """The most chunks that wait at each GPU are those of an independent count."""
    schedule = solved(name)
    page = opened(schedule)
    shown = page.evaluate(
        """() => {
            const plan = window.teccl.plans[0];
            const peaks = {};
            for (const gpu of plan.network.gpus) {
                const changes = plan.waits().filter((w) => w.node === gpu)
                    .flatMap((w) => [[w.from, 1], [w.until, -1]])
                    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
                let now = 0, most = 0;
                for (const [, change] of changes) { now += change; most = Math.max(most, now); }
                peaks[gpu] = most;
            }
            return peaks;
        }"""
    )
    assert {int(gpu): peak for gpu, peak in shown.items()} == waiting_peaks(schedule)
    most = max(waiting_peaks(schedule).values())
    assert f"At most {most} received chunk" in page.locator("#buffer-note").inner_text()


def waiting_peaks(schedule) -> dict[int, int]:
    """Most received chunks waiting at each GPU, by the checker's list of visits."""
    sends = Sends.of(schedule)
    timeline = physical_timeline(sends, Transfers.of(sends), schedule.sends["start_ps"].copy())
    seen = visits(sends, timeline)
    until: dict[int, int] = {}
    for entry in np.flatnonzero(seen.origin >= 0):
        origin = int(seen.origin[entry])
        until[origin] = max(until.get(origin, -1), int(seen.time[entry]))
    peaks = {}
    for gpu in schedule.problem.topology.gpus.tolist():
        changes = sorted(
            change
            for origin, end in until.items()
            if seen.gpu[origin] == gpu and end > seen.time[origin]
            for change in ((int(seen.time[origin]), 1), (end, -1))
        )
        now = most = 0
        for _, change in changes:
            now += change
            most = max(most, now)
        peaks[gpu] = most
    return peaks


@pytest.mark.slow
def test_groups_open(opened):
    """A large topology shows its groups, and a group its inside."""
    page = opened(solved("groups"))
    keep_screenshot(page, "report-groups")
    assert page.locator("#stages .spot").count() == 17
    page.locator("#stages .spot").nth(3).click()
    assert page.locator("#stages .spot.gpu").count() == 8
    assert page.locator("#stages figcaption").inner_text().startswith("c3")
    page.get_by_role("button", name="All groups").click()
    assert page.locator("#stages .spot").count() == 17


def test_awkward_names_are_shown_as_text(opened):
    """Markup, quotes and emoji in names are shown letter by letter and run nothing."""
    schedule = awkward_schedule()
    page = opened(schedule)
    keep_screenshot(page, "report-names")
    assert page.locator("h1").inner_text() == "allgather on <script>top</script>"
    names = page.locator("#stages .spot").evaluate_all("all => all.map((e) => e.dataset.name)")
    assert names == AWKWARD
    assert page.locator("#stages .frame-label").text_content() == '<i>"group"'
    link = int(schedule.sends["link"][0])
    tip = hover(page, float(schedule.finish_ps) / 20, link)
    assert schedule.problem.topology.link_name(link) in tip
    for lens in ("load", "path", "chunk"):
        page.click(f"#lens-{lens}")
    assert page.locator("body img").count() == 0
    assert page.locator("script").count() == 3


@pytest.mark.parametrize(("theme", "lenses"), [("light", "path chunk"), ("dark", "play")])
def test_report_is_accessible(theme, lenses, opened):
    """axe-core finds nothing serious, whatever the lens and the colours."""
    page = opened(solved("ndv2"))
    if theme == "dark":
        page.click("#theme")
    found = []
    for lens in lenses.split():
        page.click(f"#lens-{lens}")
        page.wait_for_timeout(100)
        found += serious_issues(page)
    assert found == []
    if theme == "dark":
        keep_screenshot(page, "report-dark")


@pytest.mark.slow
def test_comparison_is_accessible(opened):
    """axe-core finds nothing serious with two schedules."""
    assert serious_issues(opened(solved("allreduce"), compare=solved("ring"))) == []


@pytest.mark.slow
def test_the_report_prints(opened):
    """On paper the controls are gone and the figures are there."""
    page = opened(solved("dgx1"))
    page.emulate_media(media="print")
    assert not page.locator(".player").is_visible()
    assert page.locator("#gantt canvas").is_visible()
    assert len(page.pdf(format="A4")) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, "large"])
def test_first_paint(name, opened):
    """Something is seen within three seconds, ten for 200 000 sends."""
    schedule = solved(name)
    page = opened(schedule)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    drawn = page.evaluate("performance.now()")
    figures = f"{name}: {len(schedule)} sends, first paint {paint:.0f} ms, drawn by {drawn:.0f} ms"
    sys.stdout.write(figures + "\n")
    assert paint < (10_000 if name == "large" else 3_000)


@pytest.mark.slow
def test_two_hundred_thousand_sends(opened):
    """A very large schedule opens, is drawn in blocks, and in single sends when zoomed."""
    schedule = solved("large")
    assert len(schedule) >= 200_000
    page = opened(schedule)
    keep_screenshot(page, "report-large")
    assert int(page.locator("#gantt").get_attribute("data-drawn")) < 20_000
    set_slider(page, 400)
    used = len(set(schedule.sends["link"].tolist()))
    busy = busy_links(schedule, 0.4 * schedule.finish_ps)
    assert f"{len(busy)} of {used} links busy" in page.locator("#panel .facts").inner_text()
    for _ in range(8):
        page.click("#zoom-in")
    page.wait_for_timeout(300)
    items = page.evaluate("window.teccl.timeline.chart.getOption().series[0].data.map((d) => d[3])")
    assert items
    assert min(items) >= 0
    row = items[len(items) // 2]
    middle = float(schedule.sends["start_ps"][row] + send_times(schedule).occupancy_ps[row] // 2)
    tip = hover(page, middle, int(schedule.sends["link"][row]))
    assert f"chunk {schedule.sends['chunk'][row]} (" in tip
    keep_screenshot(page, "report-large-zoomed")
    page.click("#zoom-all")
    page.click("#lens-path")
    path = schedule.critical_path()
    assert f"{len(path):,} sends without slack" in page.locator("#panel").inner_text()
    page.click("#lens-chunk")
    assert page.locator("#panel summary").inner_text().endswith("as a table")
    assert len(page.content()) < 1_500_000 + 60 * len(schedule)
