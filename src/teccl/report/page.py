"""The page: template, style, scripts and data in one file that needs no network."""

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from teccl import __version__
from teccl._files import write_atomically
from teccl.errors import ScheduleError
from teccl.report.chunk_curve import chunk_curve
from teccl.report.figures import Figures, cards, figures_of, story
from teccl.report.payload import Columns, pack, schedule_document, topology_document
from teccl.result import Attempt
from teccl.schedule import Schedule
from teccl.units import PICOSECONDS, display_time, format_size

SCRIPTS = (
    *("format", "data", "charts", "topology", "timeline", "heat", "chunk", "panels", "main"),
)


def write_report(
    schedule: Schedule,
    path: str | Path,
    *,
    compare: Schedule | None = None,
    labels: tuple[str, str] | None = None,
    solve_seconds: float | None = None,
    tried: Sequence[Attempt] = (),
) -> None:
    """Write the report of a schedule as one HTML file.

    Parameters
    ----------
    schedule
        What to explain.
    path
        Where to write it.
    compare
        Another schedule of the same problem, shown beside the first on one time axis.
    labels
        How to call the two schedules; by default by their methods.
    solve_seconds
        How long the schedule took to find; schedules do not know.
    tried
        What came of each number of chunks, to be drawn.

    Raises
    ------
    ScheduleError
        If the schedules solve different problems or the file cannot be written.
    """
    page = report_page(
        schedule, compare=compare, labels=labels, solve_seconds=solve_seconds, tried=tried
    )
    write_atomically(Path(path), page, ScheduleError)


def report_page(
    schedule: Schedule,
    *,
    compare: Schedule | None = None,
    labels: tuple[str, str] | None = None,
    solve_seconds: float | None = None,
    tried: Sequence[Attempt] = (),
) -> str:
    """Return the report of a schedule as the text of an HTML page; see `write_report`.

    Examples
    --------
    >>> import teccl
    >>> result = teccl.solve("ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1)
    >>> report_page(result.schedule).startswith("<!doctype html>")
    True
    """
    schedules = [schedule] if compare is None else [schedule, compare]
    if compare is not None:
        check_comparable(schedule, compare)
    names = labels or _labels(schedules)
    figures = [
        figures_of(each, names[i], solve_seconds if i == 0 else None)
        for i, each in enumerate(schedules)
    ]
    script = _script()
    library = asset("vendor/echarts.js")
    policy = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    problem = schedule.problem
    title = f"{problem.demand.title} on {problem.topology.name}"
    return Template(asset("page.html")).substitute(
        policy=policy,
        title=html.escape(title),
        subtitle=html.escape(
            f"{format_size(problem.size_bytes)} among {problem.num_gpus} GPUs"
            + (f" · {names[0]} and {names[1]} side by side" if compare is not None else "")
        ),
        style=asset("theme.css") + asset("page.css"),
        headline=_headline(schedules, figures) + _curve(tried, figures[0]),
        data=_data(schedules, figures),
        library=library,
        script=script,
        version=html.escape(__version__),
        library_notice=html.escape(asset("vendor/NOTICE").strip()),
    )


def check_comparable(schedule: Schedule, other: Schedule) -> None:
    """Refuse to compare schedules of different problems.

    The numbers of chunks may differ: they are a choice of the schedule, not of the problem.
    """
    for what, one, two in (
        ("topologies", schedule.problem.topology, other.problem.topology),
        ("demands", schedule.problem.demand, other.problem.demand),
    ):
        if one != two:
            raise ScheduleError(
                f"the schedules have different {what}, {one.describe()} and {two.describe()}; "
                "compare schedules of one problem"
            )


def asset(name: str) -> str:
    """Return the text of a file that the page is made of."""
    return files("teccl.report").joinpath("assets", name).read_text(encoding="utf-8")


def _labels(schedules: Sequence[Schedule]) -> tuple[str, str]:
    methods = [schedule.method for schedule in schedules]
    if len(methods) > 1 and methods[0] == methods[1]:
        return f"{methods[0]} (first)", f"{methods[1]} (second)"
    return methods[0], methods[-1]


def _script() -> str:
    """Return the page's own scripts, which share one scope, as one."""
    body = "\n".join(asset(f"js/{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}\n}})();\n'


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _data(schedules: Sequence[Schedule], figures: Sequence[Figures]) -> str:
    """Return everything the scripts read, packed."""
    topology, columns = topology_document(schedules[0].problem.topology)
    plans = []
    all_columns: Columns = dict(columns)
    for number, (schedule, known) in enumerate(zip(schedules, figures, strict=True)):
        document, own = schedule_document(schedule, known)
        plans.append(document)
        all_columns |= {f"{number}.{name}": column for name, column in own.items()}
    return pack({"topology": topology, "plans": plans}, all_columns)


def _headline(schedules: Sequence[Schedule], figures: Sequence[Figures]) -> str:
    if len(schedules) == 1:
        return _cards_html(figures[0]) + _story_html(schedules[0], figures[0])
    return _versus_html(figures) + "".join(
        f"<h3>{html.escape(known.label)}</h3>{_story_html(schedule, known)}"
        for schedule, known in zip(schedules, figures, strict=True)
    )


def _curve(tried: Sequence[Attempt], figures: Figures) -> str:
    bound_s = figures.bound_ps / PICOSECONDS if figures.bound_ps else None
    return chunk_curve(tried, figures.num_chunks, bound_s)


def _cards_html(figures: Figures) -> str:
    boxes = "".join(
        f'<div class="card"><dt>{html.escape(name)}</dt><dd>{html.escape(value)}'
        f"<small>{html.escape(remark)}</small></dd></div>"
        for name, value, remark in cards(figures)
    )
    return f'<dl class="cards">{boxes}</dl>{_bound_bar(figures)}'


def _bound_bar(figures: Figures) -> str:
    """Return a bar that shows how much of the finish time the bound explains."""
    if not figures.bound_ps or not figures.finish_ps:
        return ""
    part = min(100.0, 100 * figures.bound_ps / figures.finish_ps)
    label = f"The bound is {part:.4g} percent of the finish time"
    return (
        f'<svg class="bound" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}"><title>{label}</title>'
        f'<rect class="gap" width="100" height="1"/>'
        f'<rect class="proven" width="{part:.3f}" height="1"/></svg>'
    )


def _story_html(schedule: Schedule, figures: Figures) -> str:
    rows = "".join(
        f"<div><dt>{html.escape(head)}</dt><dd>{html.escape(text)}</dd></div>"
        for head, text in story(schedule, figures)
    )
    return f'<dl class="story">{rows}</dl>'


def _versus_html(figures: Sequence[Figures]) -> str:
    """Return the figures of two schedules as a table with their difference."""
    one, two = figures
    columns = [{name: value for name, value, _ in cards(known)} for known in figures]
    names = [name for name in columns[0] if name in columns[1]]
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(f"<td>{html.escape(column[name])}</td>" for column in columns)
        + "</tr>"
        for name in names
    )
    head = "".join(f'<th scope="col">{html.escape(known.label)}</th>' for known in figures)
    return (
        f'<p class="verdict">{html.escape(_verdict(one, two))}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Figures of both schedules">'
        f'<table class="versus"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _verdict(one: Figures, two: Figures) -> str:
    """Say in a sentence which of two schedules is faster, and by how much."""
    fast, slow = (one, two) if one.finish_ps <= two.finish_ps else (two, one)
    times = [display_time(each.finish_ps / PICOSECONDS) for each in (fast, slow)]
    if fast.finish_ps == slow.finish_ps:
        return f"{one.label} and {two.label} both take {times[0]}."
    ratio = slow.finish_ps / max(1, fast.finish_ps)
    return f"{fast.label} takes {times[0]}, {slow.label} {times[1]}: {ratio:.4g} times as long."
