"""How many chunks auto takes: the fewest nearly as good as the best, and how that is shown."""

import json

import pytest
from tests.cli.helpers import assert_refused, run

import teccl
from teccl.construct.instance import Instance
from teccl.demand import Demand
from teccl.demand.tenants import MAX_CHUNKS
from teccl.report import report_page
from teccl.report.chunk_curve import chunk_curve
from teccl.result import Attempt
from teccl.synthesis.chunks import Tune, finest, ladder, most_chunks
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.topology import Topology

PIPELINE = {"collective": "broadcast", "size": "1MB", "effort": "quick"}


def chosen(topology: str, **options) -> teccl.Result:
    return teccl.solve(topology, **PIPELINE, **options)


def test_a_tolerance_takes_fewer_chunks():
    """With half the finish time to give away, one with fewer chunks is taken."""
    exact, loose = (chosen("line:gpus=4", chunk_tolerance=part) for part in (0, "50%"))
    assert loose.num_chunks < exact.num_chunks
    assert exact.finish_time_s <= loose.finish_time_s <= 1.5 * exact.finish_time_s


@pytest.mark.parametrize(("overhead", "tolerance"), [("0", 0.001), ("1us", 0.01)])
def test_auto_takes_the_fewest_within_its_tolerance(overhead, tolerance):
    """A per mille without overheads, a per cent with them."""
    result = chosen("line:gpus=4", overhead=overhead)
    best = min(attempt.finish_time_s for attempt in result.tried)
    near = [a.num_chunks for a in result.tried if a.finish_time_s <= best * (1 + tolerance)]
    assert result.num_chunks == min(near)


def test_an_overhead_makes_many_chunks_too_dear():
    """A message of 1 us on an H100 leaves few chunks, and no other number is a per cent better."""
    common = {"collective": "allgather", "size": "1MB", "effort": "quick"}
    result = teccl.solve("dgx-h100:overhead=1us", **common)
    assert result.num_chunks <= 8
    for count in (1, 2, 4, 8):
        given = teccl.solve("dgx-h100:overhead=1us", chunks=count, method="construct", **common)
        assert result.finish_time_s <= 1.01 * given.finish_time_s


def test_results_show_what_each_number_of_chunks_takes():
    """Table and JSON have the finish time over the chunks tried."""
    result = chosen("line:gpus=4", overhead="1us")
    assert "chunks tried" in result.summary()
    assert f"{result.num_chunks}: " in result.summary()
    assert [a["num_chunks"] for a in result.to_dict()["tried"]] == [
        attempt.num_chunks for attempt in result.tried
    ]


def test_the_report_plots_finish_over_chunks():
    """Every number tried is a point of the curve; without a choice there is none."""
    result = chosen("line:gpus=4", overhead="1us")
    page = report_page(result.schedule, tried=result.tried)
    assert page.count('<figure class="chunk-curve">') == 1
    assert chunk_curve(result.tried, 1).count("<circle") == len(
        {attempt.num_chunks for attempt in result.tried}
    )
    assert chunk_curve([Attempt(1, "ring", 1e-6)], 1) == ""
    assert 'class="chunk-curve"' not in report_page(result.schedule)


def test_view_draws_the_chunks_of_a_result(tmp_path, monkeypatch):
    """What solve --json printed brings the curve into the page."""
    monkeypatch.chdir(tmp_path)
    options = ("--size", "1MB", "--effort", "quick", "--overhead", "1us", "--json", "-o", "s.json")
    outcome = run("solve", "line:gpus=4", "broadcast", *options)
    (tmp_path / "result.json").write_text(outcome.out)
    assert run("view", "s.json", "--result", "result.json", "-o", "page.html").code == 0
    assert 'class="chunk-curve"' in (tmp_path / "page.html").read_text()
    document = {**json.loads(outcome.out), "tried": [{"num_chunks": "two"}]}
    (tmp_path / "result.json").write_text(json.dumps(document))
    assert_refused(run("view", "s.json", "--result", "result.json", "-o", "other.html"))
    assert not (tmp_path / "other.html").exists()


@pytest.mark.parametrize("tolerance", ["-1%", "soon", "nan"])
def test_a_wrong_tolerance_is_refused(tolerance):
    """It is a part of the best finish."""
    outcome = run(
        *("solve", "ring:gpus=4", "allgather", "--size", "1KB", "--chunk-tolerance", tolerance)
    )
    assert_refused(outcome)
    assert "chunk tolerance" in outcome.err


@pytest.mark.slow
def test_no_number_of_chunks_is_much_better_on_an_h100():
    """At full effort auto takes at most 8 chunks and is within 1 % of the best of 1 to 64."""
    result = teccl.solve("dgx-h100:overhead=1us", "allgather", size="1MB")
    given = [
        teccl.solve("dgx-h100:overhead=1us", "allgather", size="1MB", chunks=c).finish_time_s
        for c in (1, 2, 4, 8, 16, 32, 64)
    ]
    assert result.num_chunks <= 8
    assert result.finish_time_s <= 1.01 * min(given)


def numbers_tried(ends: list[float], first: int = 1) -> list[int]:
    """Numbers of chunks on the ladder if they end at such multiples of the best schedule known."""
    demand = Demand.collective("allreduce", size="1MB")
    request = Request(topology=Topology.parse("ring:gpus=4"), demand=demand)
    search = Search(request=request, started=0.0)
    search.bound = search.prove(request.problem(1), narrow=False)
    search.offer(teccl.solve("ring:gpus=4", demand=demand, method="ring", chunks=1).schedule)
    known = search.incumbents.get(1)
    assert known is not None
    assert not search.is_within(1 / 2)
    tried = []
    for count, end in zip(ladder(search, lambda _: 0, first=first), ends, strict=False):
        tried.append(count)
        search.incumbents.by_chunks[False, count] = known
        search.latest = round(end * known.finish_ps)
    return tried


def test_chunks_that_cannot_catch_up_are_left_out():
    """Gains that are halved again and again end above what is known, or reach it."""
    assert numbers_tried([2.0, 1.8, 1.7, 1.65, 1.6]) == [1, 2, 4]
    assert numbers_tried([2.0, 1.4, 1.1, 0.95, 0.9]) == [1, 2, 4, 8, 16]


def test_a_ladder_may_begin_higher():
    """Who needs several pieces anyway tries no fewer."""
    assert numbers_tried([2.0, 1.8, 1.7, 1.65, 1.6], first=4) == [4, 8, 16]


def tune_of(topology: str) -> Tune:
    demand = Demand.collective("reduce", size="1MB")
    problem = teccl.Problem(topology=Topology.parse(topology), demand=demand, num_chunks=4)
    return Tune.of(Instance.build(problem))


def test_ways_differ_by_whole_transfers():
    """Uplinks at half rate take 10 us for a quarter of 1 MB; far ways have 1 us of latency more.

    The rest by which far ways are longer is two transfers on an uplink, so that only the latency
    counts: a tenth of a transfer on an uplink for each of four shares, a whole one with ten pieces.
    """
    tune = tune_of("two-tier:leaves=3,gpus=2,spines=2")
    assert tune.by_latency.tolist() == pytest.approx([0, 0.1])
    assert tune.by_length.tolist() == pytest.approx([0, 2])
    assert [tune.nearest(range(n, 2 * n)) for n in (1, 2, 4, 8, 16)] == [1, 2, 7, 10, 20]


def test_equal_ways_are_in_tune_with_any_number():
    """Around one switch the least number is as good as any."""
    assert tune_of("star:gpus=5").nearest(range(8, 16)) == 8


def test_no_more_chunks_are_tried_than_a_problem_may_have():
    """An exchange of many ranks has millions of blocks' pieces before it has thousands each."""
    request = Request(
        topology=Topology.parse("two-tier:leaves=8,gpus=16,spines=2"),
        demand=Demand.collective("alltoall", size="4GB"),
    )
    search = Search(request=request, started=0.0)
    blocks = len(request.problem(1).chunks)
    assert blocks == 128 * 127
    assert MAX_CHUNKS < finest(search, 4096) * 2 * blocks <= 2 * MAX_CHUNKS
    assert most_chunks(search) == finest(search, 4096)
