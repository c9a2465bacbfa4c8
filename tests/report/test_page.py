"""The page as text: figures, size, safety and what it refuses."""

import base64
import json
import re
import zlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.report.schedules import solved
from tests.verification.partial import one_shot

import teccl
from teccl.errors import ScheduleError
from teccl.report import report_page, write_report
from teccl.report.figures import cards, figures_of, story
from teccl.report.payload import CRITICAL, FINAL, final_rows, schedule_document
from teccl.report.views import MAX_DRAWN_GPUS, views_of
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times
from teccl.topology import Link, Node, Topology

AWKWARD = [
    "<script>alert(1)</script>",
    "a\"b'c&<b>",
    "gpu 🚀",
    "</script><img src=x onerror=alert(2)>",
]


def awkward_topology() -> Topology:
    """A ring whose names are made to break pages."""
    nodes = tuple(Node(name=name, group='<i>"group"') for name in AWKWARD)
    links = tuple(
        Link(src=i, dst=j, bandwidth=Fraction(10**10))
        for i in range(4)
        for j in ((i + 1) % 4, (i - 1) % 4)
    )
    return Topology(name="<script>top</script>", nodes=nodes, links=links)


def awkward_schedule() -> Schedule:
    result = teccl.solve(awkward_topology(), "allgather", size="1MB", method="ring", chunks=1)
    assert result.schedule is not None
    return result.schedule


def unpacked(page: str) -> dict:
    """The document that a page's scripts read."""
    text = re.search(r'id="data">([^<]+)<', page)[1]
    raw = zlib.decompress(base64.b64decode(text))
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size])


def test_the_headline_has_the_figures_of_the_result():
    """Finish, bound, gap and bandwidths on the page are those that solve reports."""
    result = teccl.solve("dgx1", "allgather", size="1MB", method="ring", chunks=2)
    figures = figures_of(result.schedule, "ring", result.solve_seconds)
    assert figures.finish_ps == result.finish_ps
    assert figures.algbw_gbps == result.algbw_GBps
    assert figures.busbw_gbps == result.busbw_GBps
    assert figures.gap == result.chunk_gap
    page = report_page(result.schedule, solve_seconds=result.solve_seconds)
    for _, value, _ in cards(figures):
        assert f"<dd>{value}<small>" in page
    assert "Solve time" in page


def test_the_story_names_what_binds():
    """The certificate, the busiest link and the end of the critical path are told."""
    schedule = solved("ndv2")
    told = dict(story(schedule, figures_of(schedule, "x")))
    assert told["What binds"] == schedule.bound.certificate
    busiest = int(np.argmax(schedule.utilisation()))
    assert schedule.problem.topology.link_name(busiest) in told["Busiest link"]
    assert str(len(schedule.critical_path())) in told["Critical path"]


def test_a_schedule_without_bound_has_a_page():
    """A replayed schedule has no bound; the page says so."""
    page = report_page(replace(solved("dgx1"), bound=None))
    assert "not known" in page
    assert "the schedule has none" in page


@pytest.mark.parametrize(
    "name", ["dgx1", "ndv2", "dgx2", "torus", "alltoall", "allreduce", "groups"]
)
def test_the_page_is_small(name):
    """A page stays under 1.5 MB and 60 bytes a send."""
    schedule = solved(name)
    assert len(report_page(schedule).encode()) < 1_500_000 + 60 * len(schedule)


def test_sends_that_do_not_compress_stay_below_the_limit():
    """Even random columns take fewer than 60 bytes a send."""
    document, columns = schedule_document(solved("dgx1"), figures_of(solved("dgx1"), "x"))
    per_send = sum(columns[name].itemsize for name in ("chunk", "link", "transfer", "flags"))
    per_send += sum(columns[name].itemsize for name in ("start", "busy", "arrival"))
    assert per_send * 4 / 3 < 60
    assert document["label"] == "x"


def test_the_same_schedule_gives_the_same_bytes():
    """A page depends on nothing but its schedule."""
    assert report_page(solved("dgx1")) == report_page(solved("dgx1"))


def test_nothing_is_loaded_from_elsewhere():
    """The page names no address to load from and forbids all of them."""
    page = report_page(solved("dgx1"))
    outside = page.split('id="data">')[0]
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', outside) == []
    assert "default-src 'none'" in outside


def test_names_are_escaped():
    """Markup in names is text in the page, also in what the scripts read."""
    page = report_page(awkward_schedule())
    for piece in ("<script>alert", "<script>top", "<img src=x", "<b>"):
        assert piece not in page
    assert "&lt;script&gt;top&lt;/script&gt;" in page
    assert [node["name"] for node in unpacked(page)["topology"]["nodes"]] == AWKWARD


def test_comparison_refuses_other_problems():
    """Two schedules of different problems are not shown together."""
    with pytest.raises(ScheduleError, match="different demands"):
        report_page(solved("dgx1"), compare=solved("alltoall"))
    with pytest.raises(ScheduleError, match="different topologies"):
        report_page(solved("dgx1"), compare=solved("ndv2"))


def test_comparison_says_which_is_faster():
    """The verdict names the faster schedule and the factor."""
    one, two = solved("allreduce"), solved("ring")
    page = report_page(one, compare=two, labels=("A & B", "ring"))
    ratio = two.finish_ps / one.finish_ps
    assert f"{ratio:.4g} times as long" in page
    assert "A &amp; B takes" in page


def test_the_page_is_written_whole(tmp_path):
    """The file holds the page, and a folder is refused in one line."""
    write_report(solved("dgx1"), tmp_path / "deep" / "page.html")
    assert (tmp_path / "deep" / "page.html").read_text() == report_page(solved("dgx1"))
    with pytest.raises(ScheduleError, match="cannot be written"):
        write_report(solved("dgx1"), tmp_path)


def test_final_sends_are_the_deliveries():
    """Every wanted chunk that a GPU does not hold has exactly one final send."""
    for name in ("dgx1", "alltoall", "allreduce"):
        schedule = solved(name)
        problem = schedule.problem
        wanted = sum(
            len(set(problem.chunks.destinations(c).tolist()))
            if problem.chunks.reduce[c]
            else len(set(problem.chunks.destinations(c)) - set(problem.chunks.sources(c)))
            for c in range(len(problem.chunks))
        )
        assert len(final_rows(schedule)) == wanted


def test_a_sum_is_final_with_its_last_arrival():
    """No part of a sum arrives at a destination after its final send."""
    schedule = solved("allreduce")
    arrival = send_times(schedule).arrival_ps
    destination = schedule.problem.topology.link_dst[schedule.sends["link"]]
    final = {
        (int(schedule.sends["chunk"][r]), int(destination[r])): int(arrival[r])
        for r in final_rows(schedule)
    }
    for row, chunk in enumerate(schedule.sends["chunk"].tolist()):
        assert arrival[row] <= final[chunk, int(destination[row])]


def test_critical_sends_are_flagged():
    """The flags of the sends mark the critical path and nothing else."""
    schedule = solved("ndv2")
    figures = figures_of(schedule, "x")
    _, columns = schedule_document(schedule, figures)
    assert np.flatnonzero(columns["flags"] & CRITICAL).tolist() == sorted(figures.critical)
    assert np.count_nonzero(columns["flags"] & FINAL) == len(final_rows(schedule))


@pytest.mark.parametrize(
    "preset", ["dgx1", "ndv2:chassis=4", "dgx2:chassis=2", "gb200-nvl72", "torus:dims=8x8"]
)
def test_small_topologies_have_one_view(preset):
    """Up to 72 GPUs every node has a spot and every link a wire."""
    topology = Topology.parse(preset)
    assert topology.num_gpus <= MAX_DRAWN_GPUS
    (view,) = views_of(topology)
    assert [spot["members"] for spot in view["spots"]] == [[i] for i in range(topology.num_nodes)]
    links = sorted(link for wire in view["wires"] for link in wire["links"])
    assert links == list(range(topology.num_links))


@pytest.mark.parametrize(
    "preset", ["ndv2:chassis=16", "torus:dims=12x12", "fat-tree:k=8", "ring:gpus=100"]
)
def test_large_topologies_are_drawn_by_group(preset):
    """Groups hold every node once, and each opens a view of its inside."""
    topology = Topology.parse(preset)
    overview, *inside = views_of(topology)
    members = sorted(node for spot in overview["spots"] for node in spot["members"])
    assert members == list(range(topology.num_nodes))
    assert [spot["opens"] for spot in overview["spots"]] == list(range(1, len(inside) + 1))
    for spot, view in zip(overview["spots"], inside, strict=True):
        own = [s["members"][0] for s in view["spots"] if s["opens"] is None]
        assert own == spot["members"]


def test_spots_of_a_view_stand_apart():
    """No two nodes of a drawing cover each other."""
    for preset in ("gb200-nvl72", "torus:dims=8x8", "ndv2:chassis=16"):
        for view in views_of(Topology.parse(preset)):
            at = np.array([spot["at"] for spot in view["spots"]])
            gaps = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
            assert gaps[~np.eye(len(at), dtype=bool)].min() > 30


def test_partial_sums_are_named():
    """The page knows for each send whose contributions it carries."""
    schedule = one_shot(Topology.parse("ring:gpus=4"), 1000)
    document, columns = schedule_document(schedule, figures_of(schedule, "one-shot", None))
    assert document["sums"][columns["carried"][0]].startswith("the contribution of gpu")
    assert "the contribution of gpu3" in unpacked(report_page(schedule))["plans"][0]["sums"]
