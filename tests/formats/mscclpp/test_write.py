"""MSCCL++ plans: what is written passes the executor and respects every limit."""

import json
import random

import pytest
from tests.formats.schedules import solved
from tests.sampling import thinned

from teccl.errors import ExportError, ExportRefused
from teccl.formats.mscclpp.prove import prove_plan_text
from teccl.formats.writing import export

COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall")


def plan_of(schedule, **options):
    """Return the plan of a schedule."""
    return json.loads(export(schedule, to="mscclpp", **options).files[0].content)


def assert_limits(plan):
    """Assert the limits of the runtime, counted here anew."""
    for gpu in plan["gpus"]:
        assert gpu["input_chunks"] > 0
        assert gpu["output_chunks"] > 0
        assert len(gpu["threadblocks"]) <= 64
        assert [block["id"] for block in gpu["threadblocks"]] == list(
            range(len(gpu["threadblocks"]))
        )
        for block in gpu["threadblocks"]:
            assert len(block["ops"]) <= 64
            for entry in block["channels"]:
                assert len(entry["channel_ids"]) <= 16
            for entry in block["remote_buffer_refs"]:
                assert len(entry["remote_buffer_ids"]) <= 16
            for op in block["ops"]:
                assert len(op.get("channel_ids", [])) <= 8
                assert len(op.get("src_buff", [])) <= 10
                assert len(op.get("dst_buff", [])) <= 10


def channel_types(plan):
    """Return pairs of ranks with the types of channel between them."""
    return {
        (gpu["id"], peer, entry["channel_type"])
        for gpu in plan["gpus"]
        for entry in gpu["channels"]
        for peer in entry["connected_to"]
    }


@pytest.mark.parametrize(
    ("collective", "in_place"),
    [*((c, False) for c in COLLECTIVES), *((c, True) for c in COLLECTIVES if c != "alltoall")],
)
@pytest.mark.parametrize(
    "topology", ["ring:gpus=4", pytest.param("dgx1", marks=pytest.mark.slow), "dgx-h100"]
)
def test_plans_pass_the_executor(topology, collective, in_place):
    """Every collective, in place and not, is proven before it is written."""
    schedule = solved(topology, collective, max_chunks=4)
    plan = plan_of(schedule, in_place=in_place)
    assert plan["inplace"] is in_place
    assert_limits(plan)
    assert prove_plan_text(json.dumps(plan)).ok


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1MB", "256MB"])
@pytest.mark.parametrize("collective", COLLECTIVES[:3])
@pytest.mark.parametrize("topology", ["dgx1", "dgx-h100"])
def test_plans_of_full_searches(topology, collective, size):
    """What `auto` gives with its own number of chunks fits, too."""
    schedule = solved(topology, collective, size, effort="normal")
    for in_place in (False, True):
        plan = plan_of(schedule, in_place=in_place)
        assert_limits(plan)
        assert prove_plan_text(json.dumps(plan)).ok


@pytest.mark.parametrize("collective", thinned(COLLECTIVES, 2))
def test_ports_lead_to_other_machines(collective):
    """Two machines: memory channels inside, port channels between, the last put flushed."""
    plan = plan_of(solved("dgx-a100:chassis=2", collective, max_chunks=1))
    types = channel_types(plan)
    assert {kind for a, b, kind in types if a // 8 != b // 8} == {"port"}
    assert {kind for a, b, kind in types if a // 8 == b // 8} == {"memory"}
    names = {op["name"] for g in plan["gpus"] for t in g["threadblocks"] for op in t["ops"]}
    assert "pwsf" in names
    assert_limits(plan)


def test_a_ring_by_hand():
    """Two GPUs, one chunk each: one thread block a chunk, in which one puts and one waits."""
    plan = plan_of(solved("line:gpus=2", "allgather", chunks=1, max_chunks=None), in_place=True)
    assert [[op["name"] for op in block["ops"]] for block in plan["gpus"][0]["threadblocks"]] == [
        ["rlxwait", "nop", "put", "nop", "signal"],
        ["rlxsignal", "wait"],
    ]
    assert plan["gpus"][0]["threadblocks"][0]["ops"][2] == {
        "name": "put",
        "src_buff": [{"type": "i", "index": 0, "size": 1}],
        "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}],
        "channel_type": "memory",
    }
    assert plan["gpus"][0]["remote_buffers"] == [
        {"rank": 1, "type": "o", "access_channel_types": ["memory"]}
    ]


def test_sizes():
    """The plan serves sizes around the schedule's, or those asked for."""
    schedule = solved("ring:gpus=4", "allgather", max_chunks=4)
    assert plan_of(schedule)["min_message_size"] == 500_000
    assert plan_of(schedule)["max_message_size"] == 2_000_000
    plan = plan_of(schedule, min_bytes="1KiB", max_bytes="1GB")
    assert (plan["min_message_size"], plan["max_message_size"]) == (1024, 10**9)
    with pytest.raises(ExportError, match="above max-bytes"):
        plan_of(schedule, min_bytes="1GB", max_bytes="1KB")


def test_what_does_not_fit_is_refused_with_the_remedy():
    """Too many chunks name the limit and the number that fits, which then does."""
    schedule = solved("ring:gpus=4", "allreduce", chunks=500, method="ring")
    with pytest.raises(ExportRefused, match=r"the limit is 64 .* solve with --max-chunks \d+") as e:
        plan_of(schedule)
    fitting = int(str(e.value).rsplit(" ", 1)[1])
    assert_limits(plan_of(solved("ring:gpus=4", "allreduce", chunks=fitting, method="ring")))


@pytest.mark.parametrize(
    ("topology", "collective", "options", "export_options"),
    [
        ("ring:gpus=4", "broadcast", {}, {}),
        ("dgx1", "allgather", {"ranks": "0-3"}, {}),
        ("ring:gpus=4", "alltoall", {}, {"in_place": True}),
    ],
)
def test_what_plans_cannot_express_is_refused(topology, collective, options, export_options):
    """Other collectives, groups and an AllToAll in place are named."""
    with pytest.raises(ExportError):
        plan_of(solved(topology, collective, max_chunks=2, **options), **export_options)


def test_mutations_are_caught():
    """Dropping any nop, signal, wait or put of a plan is caught; the plan itself is right."""
    plan = plan_of(solved("ring:gpus=4", "allreduce", max_chunks=2))
    places = [
        (g, t, i)
        for g, gpu in enumerate(plan["gpus"])
        for t, block in enumerate(gpu["threadblocks"])
        for i in range(len(block["ops"]))
    ]
    for g, t, i in random.Random(1).sample(places, 40):
        ops = plan["gpus"][g]["threadblocks"][t]["ops"]
        removed = ops.pop(i)
        assert not prove_plan_text(json.dumps(plan)).ok, (g, t, i, removed)
        ops.insert(i, removed)
    assert prove_plan_text(json.dumps(plan)).ok


def test_equal_schedules_give_equal_bytes():
    """The plan is a function of the schedule."""
    schedule = solved("dgx1", "allreduce", max_chunks=4)
    first, second = (export(schedule, to="mscclpp").files[0].content for _ in range(2))
    assert first == second


def test_command_line(tmp_path):
    """The command writes the plan and says how to run it."""
    from tests.cli.helpers import run

    schedule = solved("ring:gpus=4", "allgather", max_chunks=4)
    schedule.save(tmp_path / "s.json")
    target = tmp_path / "plan.json"
    outcome = run("export", tmp_path / "s.json", "--to", "mscclpp", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    assert "mscclpp.Executor" in outcome.out
    assert prove_plan_text(target.read_text(encoding="utf-8")).ok
