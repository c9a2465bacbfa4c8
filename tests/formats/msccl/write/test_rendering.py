"""Exported MSCCL and RCCL programs: proven, within limits, with notes and how to run them."""

import re
import xml.etree.ElementTree as ET
from itertools import cycle

import pytest
from tests.formats.schedules import solved

from teccl.errors import ExportError, VerificationError
from teccl.formats.msccl.prove import RUNTIMES, prove_text
from teccl.formats.msccl.write import limits as exporter_limits
from teccl.formats.writing import export
from teccl.schedule import Schedule, send_array

COLLECTIVES = ("allgather", "alltoall", "reducescatter", "allreduce", "broadcast", "reduce")
TOPOLOGIES = ("star:gpus=4", "mesh:dims=2x3")


def text_of(schedule: Schedule, to: str, **options) -> str:
    content = export(schedule, to=to, **options).files[0].content
    assert isinstance(content, str)
    return content


def proof_of(text: str, runtime: str):
    (proof,) = prove_text(text, runtime=runtime)
    return proof


@pytest.mark.parametrize("to", ["msccl", "rccl"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("collective", "topology"), list(zip(COLLECTIVES, cycle(TOPOLOGIES), strict=False))
)
def test_every_collective_is_proven(topology, collective, in_place, to):
    """Every collective, in place and out of place, becomes a program that runs."""
    if (to, in_place, collective) == ("msccl", True, "alltoall"):
        pytest.skip("the NCCL fork has no such call")
    root = 2 if collective in ("broadcast", "reduce") else None
    schedule = solved(topology, collective, chunks=2, root=root)
    text = text_of(schedule, to, in_place=in_place)
    assert proof_of(text, to).ok
    root_element = ET.fromstring(text)
    assert root_element.get("inplace") == str(int(in_place))
    assert root_element.get("outofplace") == (str(int(not in_place)) if to == "rccl" else None)


@pytest.mark.parametrize(
    ("topology", "collective", "options"),
    [
        ("hypercube:dimension=3", "allreduce", {"method": "recursive-doubling"}),
        ("ring:gpus=6", "allreduce", {"method": "ring"}),
        ("fully-connected:gpus=6", "allreduce", {"method": "double-binary-tree"}),
        ("dgx-h100:nvls=true", "reducescatter", {}),
        ("fat-tree:k=4", "allgather", {}),
        ("dgx2", "alltoall", {"switch": "no-copy"}),
        ("star:gpus=5", "allgather", {"switch": "hyper-edge"}),
        ("star:gpus=5", "allgather", {"transit": "cut-through"}),
        ("ring:gpus=6", "allgather", {"copy": False}),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_other_schedules_are_proven(topology, collective, options, in_place):
    """Exchanges, switches of all kinds and schedules without copies become programs that run."""
    if collective == "alltoall" and in_place:
        pytest.skip("the NCCL fork has no such call")
    schedule = solved(topology, collective, chunks=2, **options)
    assert proof_of(text_of(schedule, "msccl", in_place=in_place), "msccl").ok


def test_sums_that_meet_in_switches_are_refused_with_the_remedy():
    """No program adds up in a switch what then leaves it for everybody."""
    schedule = solved("dgx-h100:nvls=true", "allreduce", chunks=2)
    with pytest.raises(ExportError, match="solve without reducing switches"):
        text_of(schedule, "msccl")


def test_text_suits_the_runtimes_readers():
    """No declaration, no tabs, double quotes, one element a line."""
    text = text_of(solved("ring:gpus=4", "allgather"), "msccl")
    assert text.startswith("<algo name=")
    assert "\t" not in text
    assert "'" not in text
    assert all(line.strip().startswith("<") for line in text.splitlines())


def test_equal_schedules_give_equal_text():
    """Exporting twice gives the same bytes."""
    schedule = solved("dgx1", "allreduce", chunks=4)
    assert text_of(schedule, "rccl") == text_of(schedule, "rccl")


def test_reduce_scatter_has_two_names():
    """Each runtime has its own name for ReduceScatter."""
    schedule = solved("ring:gpus=4", "reducescatter", chunks=2)
    assert 'coll="reduce_scatter"' in text_of(schedule, "msccl")
    assert 'coll="reducescatter"' in text_of(schedule, "rccl")


def test_out_of_place_reductions_leave_the_input_alone():
    """Sums are kept in the output or in scratch."""
    text = text_of(solved("dgx1", "reducescatter", chunks=2), "msccl")
    written = [s for s in ET.fromstring(text).iter("step") if s.get("type") in ("r", "rrc")]
    assert written
    assert all(step.get("dstbuf") != "i" for step in written)


def test_dependencies_are_minimal():
    """Dropping any single dependency breaks the program."""
    text = text_of(solved("ring:gpus=4", "allreduce", chunks=2), "msccl")
    waiting = [m.start() for m in re.finditer(r'depid="\d', text)]
    assert waiting
    for at in waiting[::5]:
        line_end = text.index("\n", at)
        line = re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', text[at:line_end])
        assert not proof_of(text[:at] + line + text[line_end:], "msccl").ok


def test_neighbouring_sends_are_joined():
    """A star's root sends neighbouring chunks that wait for nothing in one step."""
    schedule = solved("line:gpus=2", "allgather", chunks=8)
    steps = list(ET.fromstring(text_of(schedule, "msccl")).iter("step"))
    assert max(int(step.get("cnt")) for step in steps) == 8


@pytest.mark.parametrize("to", ["msccl", "rccl"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_instances_share_the_work(collective, to):
    """Instances cut every chunk and run on channels of their own."""
    schedule = solved("ring:gpus=4", collective, chunks=2)
    one, two = (export(schedule, to=to, instances=n) for n in (1, 3))
    assert two.facts["chunks"] == 3 * one.facts["chunks"]
    assert two.facts["channels"] == 3 * one.facts["channels"]


def test_channels_spread_connections():
    """Every connection uses the channels that were asked for."""
    schedule = solved("ring:gpus=4", "allgather", chunks=6)
    made = export(schedule, to="rccl", channels=3)
    assert made.facts["channels"] == 3


def test_steps_go_to_more_channels_where_a_block_would_be_too_long():
    """RCCL's 64 steps per thread block are kept by using more channels."""
    schedule = solved("line:gpus=3", "allgather", size="64MB", chunks=100)
    made = export(schedule, to="rccl")
    assert made.facts["steps_per_block"] <= 64
    assert made.facts["channels"] > 1
    assert made.facts["keeps_order"]


@pytest.mark.slow
def test_many_peers_need_joined_blocks():
    """Where a gpu has more connections than thread blocks, blocks send and receive."""
    schedule = solved("star:gpus=36", "alltoall", size="36MB", chunks=1, switch="no-copy")
    made = export(schedule, to="rccl")
    assert made.facts["thread_blocks"] <= 64
    blocks = list(ET.fromstring(made.files[0].content).iter("tb"))
    assert any(int(b.get("send")) >= 0 and int(b.get("recv")) >= 0 for b in blocks)


def test_a_size_that_does_not_divide_is_said():
    """The note names a size that divides, and the command uses it."""
    schedule = solved("ring:gpus=6", "allgather", size="1MB", chunks=1)
    made = export(schedule, to="msccl", dtype="double")
    assert any("multiples of 48 bytes" in note for note in made.notes)
    size = int(re.search(r"-b (\d+)", made.command)[1])
    assert size % 48 == 0
    assert made.facts["min_bytes"] <= size < made.facts["max_bytes"]


def test_range_of_sizes():
    """The range is within a factor of two unless given."""
    schedule = solved("ring:gpus=4", "allgather", size="1MB", chunks=1)
    assert 'minBytes="500000" maxBytes="2000000"' in text_of(schedule, "msccl")
    text = text_of(schedule, "rccl", min_bytes="64KiB", max_bytes="4MiB")
    assert 'minBytes="65536" maxBytes="4194304"' in text


def test_protocols():
    """Small sizes use LL unless told otherwise."""
    small = solved("ring:gpus=4", "allgather", size="16KB", chunks=1)
    assert export(small, to="msccl").facts["protocol"] == "LL"
    assert export(small, to="msccl", protocol="ll128").facts["protocol"] == "LL128"
    large = solved("ring:gpus=4", "allgather", size="1MB", chunks=1)
    assert export(large, to="msccl").facts["protocol"] == "Simple"


def test_how_to_run():
    """Environment and command are those of the target and the collective."""
    schedule = solved("ring:gpus=4", "reduce", root=2, chunks=1)
    msccl = export(schedule, to="msccl", path=None)
    assert msccl.environment["NCCL_ALGO"] == "MSCCL,RING,TREE"
    assert "reduce_perf" in msccl.command
    assert "-r 2" in msccl.command
    assert "-np 4" in msccl.command
    assert any("root 2" in note for note in msccl.notes)
    assert export(schedule, to="rccl").environment["RCCL_MSCCL_FORCE_ENABLE"] == "1"


def test_some_ranks_make_a_communicator():
    """Ranks that take part are numbered through; relays that do not are refused."""
    schedule = solved("fully-connected:gpus=5", "allgather", ranks="4,1,3", chunks=1)
    text = text_of(schedule, "msccl")
    assert 'ngpus="3"' in text
    relayed = solved("line:gpus=3", "allgather", ranks="0,2", chunks=1)
    with pytest.raises(ExportError, match="gpu1 forwards data"):
        export(relayed, to="msccl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "mscl"}, "unknown target 'mscl'.*msccl"),
        ({"to": "msccl", "dtype": "flot"}, "unknown dtype 'flot'.*float"),
        ({"to": "msccl", "protocol": "fast"}, "unknown protocol"),
        ({"to": "msccl", "channels": 33}, "channels 33 is out of range; .* 1 to 32"),
        (
            {"to": "rccl", "channels": 100, "instances": 2},
            "channels 100 .* 2 instances use 1 to 64",
        ),
        ({"to": "msccl", "instances": 0}, "instances 0 is out of range"),
        ({"to": "msccl", "min_bytes": "2MB", "max_bytes": "1MB"}, "no size from min-bytes"),
        ({"to": "perfetto", "dtype": "float"}, "no use for dtype"),
    ],
)
def test_wrong_options_are_refused(options, message):
    """A wrong target or option is named with what would be right."""
    with pytest.raises(ExportError, match=message):
        export(solved("ring:gpus=4", "allgather"), **options)


def test_collectives_that_programs_do_not_know():
    """Scatter has no program; the message lists what has."""
    with pytest.raises(ExportError, match="no scatter; export one of allgather"):
        export(solved("ring:gpus=4", "scatter"), to="msccl")
    with pytest.raises(ExportError, match="no alltoall in place"):
        export(solved("ring:gpus=4", "alltoall"), to="msccl", in_place=True)


def test_a_wrong_schedule_is_not_exported(tmp_path):
    """A schedule that fails verification is refused and nothing is written."""
    problem = solved("ring:gpus=4", "allgather", chunks=1).problem
    wrong = Schedule(problem=problem, sends=send_array([0], [0], [0]))
    with pytest.raises(VerificationError):
        export(wrong, to="msccl", path=tmp_path / "wrong.xml")
    assert not list(tmp_path.iterdir())


def test_useless_sends_are_dropped():
    """A chunk that arrives twice is sent once."""
    schedule = solved("ring:gpus=4", "allgather", chunks=1)
    last = schedule.sends[-1:].copy()
    last["start_ps"] += 10**9
    last["transfer"] = 10**6
    import numpy as np

    doubled = Schedule(
        problem=schedule.problem, sends=np.concatenate([schedule.sends, last]), method="twice"
    )
    assert text_of(doubled, "msccl") == text_of(schedule, "msccl")


def test_exporter_and_proof_agree_on_limits():
    """Both sides state the runtimes' limits by themselves, and the same."""
    for limits in (exporter_limits.MSCCL, exporter_limits.RCCL):
        runtime = RUNTIMES[limits.target]
        assert limits.steps == runtime.max_steps
        assert limits.blocks <= min(runtime.max_blocks, runtime.max_target + 1)
        assert limits.channels == runtime.max_channels
        assert limits.elements == runtime.max_nodes
        assert limits.peers == runtime.max_peers
        assert limits.count == runtime.max_count
        assert limits.offset == runtime.max_offset
        assert set(limits.collectives.values()) == set(runtime.collectives)
