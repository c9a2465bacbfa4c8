"""Traces for Perfetto: slices, tracks, arrows and counters."""

import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from tests.cli.helpers import run
from tests.formats.schedules import solved

from teccl.formats.writing import export

CASES = [
    ("ring:gpus=4", "allgather", {}),
    ("dgx1", "allreduce", {}),
    ("dgx2", "broadcast", {}),
    ("star:gpus=4", "alltoall", {"transit": "cut-through"}),
    ("ndv2:chassis=2", "allgather", {"grid": True, "method": "construct"}),
]


def trace_of(topology, collective, options):
    """Return a schedule and its trace's events."""
    schedule = solved(
        topology, collective, max_chunks=None if {"grid", "chunks"} & set(options) else 4, **options
    )
    document = json.loads(export(schedule, to="perfetto").files[0].content)
    return schedule, document["traceEvents"]


def slices_by_track(events):
    """Return slices by process and thread, as (start, end) in nanoseconds."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    return tracks


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_slices_never_overlap_on_a_track(case):
    """Viewers stack what overlaps, so nothing on a track does."""
    _, events = trace_of(*case)
    for spans in slices_by_track(events).values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_send_has_a_slice_on_its_links_track(case):
    """One slice a send, on a track named after the link's far end, at the send's time."""
    schedule, events = trace_of(*case)
    topology = schedule.problem.topology
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    found = Counter()
    for event in events:
        if event["ph"] == "X" and event["cat"] in ("copy", "reduce"):
            to = threads[event["pid"], event["tid"]].removeprefix("to ").split(" (")[0]
            found[processes[event["pid"]].split(" ")[1], to, event["args"]["start_ps"]] += 1
            assert round(event["ts"] * 1000) == event["args"]["start_ps"] // 1000
    wanted = Counter(
        (
            topology.nodes[topology.links[send.link].src].name,
            topology.nodes[topology.links[send.link].dst].name,
            send.start_ps,
        )
        for send in schedule
    )
    assert found == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_arrows_bind_to_slices(case):
    """Each arrow has one start and one end, each inside a slice of its track, in order of time."""
    _, events = trace_of(*case)
    tracks = slices_by_track(events)
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            moment = round(event["ts"] * 1000)
            spans = tracks[event["pid"], event["tid"]]
            assert any(start <= moment <= end for start, end in spans)
            arrows[event["id"]].append((event["ph"], moment))
    assert arrows
    for ends in arrows.values():
        assert [phase for phase, _ in ends] == ["s", "f"]
        assert ends[0][1] <= ends[1][1]


def test_arrows_of_a_ring_by_hand():
    """An AllGather of one chunk on a one-way ring of three: each chunk is carried on once."""
    schedule, events = trace_of("line:gpus=3", "broadcast", {"chunks": 1})
    assert len(schedule) == 2
    names = [e["name"] for e in events if e["ph"] == "X" and e["cat"] == "copy"]
    assert names == ["chunk 0", "chunk 0"]
    assert len([e for e in events if e["ph"] == "s"]) == 1
    held = [(e["pid"], e["args"]["chunks"]) for e in events if e["ph"] == "C"]
    assert held == [(1, 1), (2, 0), (3, 0), (2, 1), (3, 1)]
    busy = [(e["pid"], e["name"]) for e in events if e["ph"] == "X" and e["cat"] == "node"]
    assert (1, "1 out, 0 in") in busy
    assert (3, "0 out, 1 in") in busy


def test_command_line(tmp_path):
    """The command writes plain or compressed JSON."""
    solved("ring:gpus=4", "allgather", max_chunks=4).save(tmp_path / "s.json")
    for name in ("trace.json", "trace.json.gz"):
        outcome = run("export", tmp_path / "s.json", "--to", "perfetto", "-o", tmp_path / name)
        assert (outcome.code, outcome.err) == (0, "")
        assert "ui.perfetto.dev" in outcome.out
    text = gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()
    assert text == (tmp_path / "trace.json").read_text(encoding="utf-8")
