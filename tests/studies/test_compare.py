"""Comparisons: every competitor is verified and replayed alike."""

import json

import pytest
from tests.cli.helpers import assert_refused, run

import teccl
from teccl import Demand, Topology, verify
from teccl.errors import InputError, MethodError
from teccl.studies.comparison import compare
from teccl.studies.rivals import RIVALS

QUICK = "auto,ring,recursive-doubling,shortest-path,sccl-like,taccl-like"


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize(
    ("spec", "collective"),
    [
        ("dgx1", "allgather"),
        ("dgx1", "allreduce"),
        ("dgx1", "alltoall"),
        ("star:gpus=4", "reducescatter"),
        ("ndv2:chassis=2", "broadcast"),
        ("star:gpus=3", "gather"),
    ],
)
def test_rivals_make_correct_schedules(name, spec, collective):
    """Models of other tools serve all collectives, and no bound lies above them."""
    demand = Demand.collective(collective, size="1MB")
    result = RIVALS[name].solve(Topology.parse(spec), demand)
    assert verify(result.schedule) == ()
    assert result.physical_bound_s <= result.finish_time_s


@pytest.mark.parametrize("switch", ["hyper-edge", "no-copy"])
def test_rivals_know_the_ways_of_switches(switch):
    """Reversed passages keep together under every rule for switches."""
    demand = Demand.collective("allreduce", size="1MB")
    for rival in RIVALS.values():
        assert rival.solve(Topology.parse("star:gpus=4"), demand, switch=switch).verified


def test_barriers_hold_in_the_steps_of_sccl():
    """No send begins before all of the step before have arrived."""
    from teccl.bounds import summarise
    from teccl.problem import Problem
    from teccl.schedule.timing import send_times
    from teccl.studies.rivals.sccl import build

    problem = Problem(
        topology=Topology.parse("ndv2:chassis=2"),
        demand=Demand.collective("allgather", size="1MB"),
    )
    schedule = build(problem, summarise(problem), 0).schedule
    assert verify(schedule) == ()
    times, starts = send_times(schedule), schedule.sends["start_ps"]
    slowest = problem.transmission_ps.max()
    for start in sorted(set(starts.tolist())):
        running = times.arrival_ps[starts < start]
        # Within a step, chunks follow each other on fast links while slow ones carry one.
        assert (
            (running <= start).all()
            or start < starts[starts < start].min() + slowest
            or (start - starts[starts < start].max() < slowest)
        )


def test_rivals_refuse_what_they_do_not_know():
    """Buffers and late ranks are no part of the models."""
    topology = Topology.parse("ring:gpus=4")
    late = Demand.collective("allgather", size="1MB", ready={0: "1us"})
    for rival in RIVALS.values():
        with pytest.raises(MethodError):
            rival.solve(topology, late)
        with pytest.raises(MethodError):
            rival.solve(topology, Demand.collective("allgather", size="1MB"), buffer=1)


def test_auto_comes_first(here):
    """On the paper's machine nothing beats auto, and ratios say by how much."""
    found = compare("ndv2:chassis=2", "allgather", size="1MB", methods=QUICK, place=here)
    assert found.competitors[0].name == "auto"
    assert all(result.verified for result in found.results)
    assert min(found.ratio(c.name) for c in found.competitors[1:]) > 1
    named = {c.name: c for c in found.competitors}
    assert named["sccl-like"].own_time_s > named["sccl-like"].result.finish_time_s


def test_schedule_files_are_judged_too(here, tmp_path):
    """A file takes part if it verifies, and a wrong one is named with its violation."""
    result = teccl.solve("ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1)
    result.schedule.save(tmp_path / "good.json")
    document = json.loads((tmp_path / "good.json").read_text())
    document["sends"] = document["sends"][:-1]
    (tmp_path / "bad.json").write_text(json.dumps(document))
    files = [tmp_path / "good.json", tmp_path / "bad.json"]
    found = compare(
        "ring:gpus=4", "allgather", size="1MB", methods="auto", schedules=files, place=here
    )
    named = {c.name: c for c in found.competitors}
    assert named["good.json"].result.finish_ps == result.finish_ps
    assert named["bad.json"].result is None
    assert "fails verification" in named["bad.json"].note


def test_schedule_files_of_another_demand_are_refused(here, tmp_path):
    """Chunks may differ, but not who has and wants the data, nor when it is there."""
    wanted = Demand.collective("broadcast", size="1KB", root=0)

    def judged(demand, **options):
        path = tmp_path / "given.json"
        teccl.solve("ring:gpus=4", demand=demand, method="shortest-path", **options).schedule.save(
            path
        )
        return compare("ring:gpus=4", demand=wanted, methods="auto", schedules=[path], place=here)

    for chunks in (1, 4):
        found = judged(wanted, chunks=chunks)
        assert {c.name for c in found.competitors if c.result} == {"auto", "given.json"}
    others = [{"root": 1}, {"root": 0, "ready": {0: "1us"}}, {"root": 0, "ranks": [0, 1, 2]}]
    for other in others:
        with pytest.raises(InputError, match="other ranks have or want its data"):
            judged(Demand.collective("broadcast", size="1KB", **other))


def test_exchanges_of_as_many_bytes_are_told_apart(here, tmp_path):
    """Matrices with equal sums are different demands."""
    one = Demand.collective("alltoallv", matrix=[[0, 5, 1], [1, 0, 5], [5, 1, 0]])
    other = Demand.collective("alltoallv", matrix=[[0, 1, 5], [5, 0, 1], [1, 5, 0]])
    teccl.solve("ring:gpus=3", demand=other).schedule.save(tmp_path / "other.json")
    with pytest.raises(InputError, match="other ranks have or want its data"):
        compare(
            "ring:gpus=3",
            demand=one,
            methods="auto",
            schedules=[tmp_path / "other.json"],
            place=here,
        )


def test_the_command_prints_ratios():
    """Table, ratios and JSON."""
    arguments = ("compare", "dgx1", "allgather", "--size", "1MB", "--methods", QUICK, "--jobs", 1)
    outcome = run(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    for name in ("ring", "sccl-like", "taccl-like"):
        assert f"times as fast as {name}" in outcome.out
    results = json.loads(run(*arguments, "--json").out)
    assert results[0]["requested_method"] == "auto"


def test_a_missing_size_is_refused():
    """The library's own message is passed on."""
    assert_refused(run("compare", "dgx1", "allgather"))


def test_chunk_tolerance_is_for_what_chooses_chunks():
    """With half as much time again auto takes one chunk; a model takes what it is given."""
    words = ("compare", "ring:gpus=4", "allgather", "--size", "1MB", "--no-store", "--jobs", "1")
    words += ("--methods", "auto,milp,sccl-like", "--json")
    exact, loose = (
        {each["requested_method"]: each["num_chunks"] for each in json.loads(run(*call).out)}
        for call in (words, (*words, "--chunk-tolerance", "50%"))
    )
    assert (exact["auto"], loose["auto"]) == (2, 1)
    assert loose["milp"] == exact["milp"]


def test_the_scheme_that_serves_is_named():
    """Of auto the table says by what it was made; one-shot serves small sizes on connected GPUs."""
    call = ("compare", "fully-connected:gpus=4", "allreduce", "--size", "256B", "--no-store")
    lines = run(*call, "--methods", "auto,ring", "--jobs", "1").out.splitlines()
    assert next(line for line in lines if line.startswith("auto")).endswith("by one-shot")
    assert "by ring" not in next(line for line in lines if line.startswith("ring"))
