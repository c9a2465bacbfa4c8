"""MSCCL and RCCL programs as schedules: by hand, and back from what was exported."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.helpers import run
from tests.formats.schedules import solved

import teccl
from teccl.errors import ScheduleError
from teccl.formats.reading import import_schedule
from teccl.formats.writing import export

DATA = Path(__file__).parents[2] / "data" / "foreign"
# A chunk of 1 MB takes 100 us at 10 GB/s, and is there after 1 us more.
RING = "ring:gpus=4,bandwidth=10GB/s,alpha=1us"


def read(name, **options):
    """Import a program of the fixtures."""
    options = {"topology": RING, "size": "4MB"} | options
    return import_schedule(DATA / name, "msccl", **options)


@pytest.mark.parametrize(
    ("name", "steps"), [("msccl_ring_allgather.xml", 3), ("msccl_ring_allreduce.xml", 6)]
)
def test_rings_by_hand(name, steps):
    """One way round a ring: every step takes 101 us."""
    imported = read(name)
    assert teccl.verify(imported.schedule) == ()
    assert len(imported.schedule) == 4 * steps
    assert imported.schedule.finish_ps == steps * 101_000_000
    assert teccl.simulate(imported.schedule).finish_ps == steps * 101_000_000


def test_rings_over_a_switch():
    """On a star the ring's hops pass the hub: two links each, 202 us a step."""
    imported = read("msccl_ring_allgather.xml", topology="star:gpus=4,bandwidth=10GB/s,alpha=1us")
    assert teccl.verify(imported.schedule) == ()
    assert len(imported.schedule) == 2 * 12
    assert imported.schedule.finish_ps == 3 * 202_000_000


def test_what_is_added_is_told_from_what_is_stored():
    """The first three steps of the ring add, the others replace."""
    schedule = read("msccl_ring_allreduce.xml").schedule
    ops = [send.op for send in schedule]
    assert ops == ["reduce"] * 12 + ["copy"] * 12


def test_an_allreduce_of_chunks_that_do_not_divide(tmp_path):
    """Two chunks on three GPUs are no part of each rank; they are imported as explicit chunks."""
    head = (
        '<algo name="x" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="3" '
        'coll="allreduce" inplace="1" outofplace="0" minBytes="0" maxBytes="8388608">'
    )
    text = [head]

    def step(number, kind, chunk, count=1):
        return (
            f'      <step s="{number}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" '
            f'dstoff="{chunk}" cnt="{count}" depid="-1" deps="-1" hasdep="0"/>'
        )

    # GPU 0 sends to 1, which adds and sends on to 2, which adds and sends the sum back.
    plans = {
        0: [(1, -1, ["s"]), (-1, 1, ["r"])],
        1: [(2, 0, ["rrcs"]), (0, 2, ["rcs"])],
        2: [(1, 1, ["rrc", "s"])],
    }
    for rank, blocks in plans.items():
        text.append(f'  <gpu id="{rank}" i_chunks="2" o_chunks="2" s_chunks="0">')
        for number, (send, recv, kinds) in enumerate(blocks):
            text.append(f'    <tb id="{number}" send="{send}" recv="{recv}" chan="0">')
            text += [step(i, kind, 0, 2) for i, kind in enumerate(kinds)]
            text.append("    </tb>")
        text.append("  </gpu>")
    text.append("</algo>")
    path = tmp_path / "line.xml"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    imported = import_schedule(
        path, "msccl", topology="line:gpus=3,bandwidth=10GB/s,alpha=1us", size="2MB"
    )
    assert teccl.verify(imported.schedule) == ()
    # The second chunk leaves 100 us after the first; four hops of 101 us.
    assert imported.schedule.finish_ps == 504_000_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace('type="rrc"', 'type="r"', 1), "wrong-result"),
        (lambda t: t.replace('coll="allreduce"', 'coll="nothing"'), "does not run"),
        (lambda t: t.replace("<algo", "<algae"), "."),
        (lambda t: t[: len(t) // 2], "."),
        (lambda t: "", "."),
    ],
)
def test_broken_programs_are_refused(change, words, tmp_path):
    """A program that would not run is not imported; the reason is named."""
    path = tmp_path / "bad.xml"
    text = (DATA / "msccl_ring_allreduce.xml").read_text(encoding="utf-8")
    path.write_text(change(text), encoding="utf-8")
    with pytest.raises(ScheduleError, match=words):
        import_schedule(path, "msccl", topology=RING, size="4MB")


def test_another_number_of_gpus_is_refused():
    """The topology must be the one the program was made for."""
    with pytest.raises(ScheduleError, match="is for 4 GPUs"):
        read("msccl_ring_allreduce.xml", topology="ring:gpus=5")


def test_command_line(tmp_path):
    """Import, verify and simulate one after the other."""
    target = tmp_path / "out.json"
    file = DATA / "msccl_ring_allreduce.xml"
    outcome = run("import", "msccl", file, "--topology", RING, "--size", "4MB", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    assert run("verify", target).code == 0
    assert json.loads(run("simulate", target, "--json").out)["finish_time_s"] == 606e-6


COLLECTIVES = ("allgather", "alltoall", "reducescatter", "allreduce", "broadcast", "reduce")


def assert_round_trip(schedule, target, tmp_path, **options):
    """Assert that a schedule comes back from a program with its finish time.

    It is the same to the picosecond, unless the export had to join transfers to fit the runtime.
    """
    path = tmp_path / "program.xml"
    made = export(schedule, to=target, path=path, **options)
    problem = schedule.problem
    imported = import_schedule(
        path, "msccl", topology=problem.topology, size=problem.size_bytes
    ).schedule
    assert teccl.verify(imported) == ()
    assert imported.problem.demand.title == problem.demand.title
    finish = teccl.simulate(imported).finish_ps
    if made.facts["keeps_order"]:
        assert finish <= schedule.finish_ps
    assert abs(finish - schedule.finish_ps) <= 0.01 * schedule.finish_ps


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("target", ["msccl", "rccl"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_round_trip(collective, target, in_place, tmp_path):
    """Export, import and replay give the same time, on a ring or on a DGX-1."""
    schedule = solved("dgx1" if in_place else "ring:gpus=4", collective, max_chunks=8)
    if collective == "alltoall" and in_place:
        in_place = None
    assert_round_trip(schedule, target, tmp_path, in_place=in_place)


def test_the_order_of_channels_comes_back(tmp_path):
    """Connections over several channels are used in the order of the schedule, as the file says."""
    schedule = solved("line:gpus=3", "allgather", size="64MB", chunks=100)
    path = tmp_path / "program.xml"
    assert export(schedule, to="rccl", path=path).facts["channels"] > 1
    text = path.read_text(encoding="utf-8")
    assert 'order="' in text
    assert_round_trip(schedule, "rccl", tmp_path)
    # Without it, or where it contradicts the blocks, any good order is as right.
    reverse = re.sub(r'order="(\d+)"', lambda found: f'order="{10**6 - int(found[1])}"', text)
    for changed in (re.sub(r' order="\d+"', "", text), reverse):
        path.write_text(changed, encoding="utf-8")
        problem = schedule.problem
        imported = import_schedule(
            path, "msccl", topology=problem.topology, size=problem.size_bytes
        ).schedule
        assert teccl.verify(imported) == ()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["msccl", "rccl"])
@pytest.mark.parametrize("size", ["1MB", "256MB"])
@pytest.mark.parametrize("collective", COLLECTIVES[:4])
@pytest.mark.parametrize("topology", ["dgx1", "ndv2:chassis=2", "torus:dims=4x4", "mi250"])
def test_round_trip_of_full_searches(topology, collective, size, target, tmp_path):
    """The same for what `auto` gives with its own number of chunks."""
    assert_round_trip(solved(topology, collective, size, effort="normal"), target, tmp_path)
