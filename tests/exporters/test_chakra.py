"""Chakra traces: messages on the wire, matching, dependencies, and the check that reads them."""

import json

import pytest
from tests.cli.helpers import assert_refused, run
from tests.exporters.schedules import solved

from teccl.errors import ExportError
from teccl.exporters import chakra_messages as messages
from teccl.exporters import export
from teccl.exporters.chakra_check import check_traces


def traces_of(schedule):
    """Return the traces of a schedule, by rank."""
    return [file.content for file in export(schedule, to="chakra").files[1:]]


def attributes(node):
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


def changed(data, change):
    """Return a trace whose nodes a function has changed."""
    metadata, nodes = messages.read_trace(data)
    nodes = change(nodes) or nodes
    return messages.delimited([metadata, *nodes])


@pytest.mark.parametrize("collective", ["allgather", "alltoall", "reducescatter", "allreduce"])
@pytest.mark.parametrize("topology", ["ring:gpus=4", "dgx1", "dgx-h100"])
def test_traces_pass_their_check(topology, collective):
    """All collectives, with and without switches."""
    assert check_traces(traces_of(solved(topology, collective, max_chunks=2))) is None


def test_bytes_on_the_wire():
    """A send of 500 bytes with tag 0 to rank 1 looks as Chakra's schema has it."""
    schedule = solved("line:gpus=2", "allgather", "1KB", chunks=1)
    data = traces_of(schedule)[0]
    metadata = b"\x0a\x050.0.4"
    assert data.startswith(bytes([len(metadata)]) + metadata)
    name = b"send chunk 0 to rank 1"
    node = b"\x12" + bytes([len(name)]) + name + b"\x18\x05"
    for key, value in (
        (b"comm_type", b"\x48\x05"),
        (b"comm_size", b"\x48\xf4\x03"),
        (b"comm_dst", b"\x38\x01"),
        (b"comm_tag", b"\x38\x00"),
    ):
        entry = b"\x0a" + bytes([len(key)]) + key + value
        node += b"\x52" + bytes([len(entry)]) + entry
    first = 1 + len(metadata)
    assert data[first : first + 1 + len(node)] == bytes([len(node)]) + node


def test_a_chain_by_hand():
    """A broadcast-like AllGather on a line: the middle rank's send waits for its receive."""
    schedule = solved("line:gpus=3", "allgather", "3KB", chunks=1)
    _, nodes = messages.read_trace(traces_of(schedule)[1])
    by_id = {node.id: node for node in nodes}
    assert sorted(by_id) == list(range(len(nodes)))
    forwards = [n for n in nodes if n.type == messages.SEND and n.data_deps]
    assert sorted(n.name for n in forwards) == [
        "send chunk 0 to rank 2",
        "send chunk 2 to rank 0",
    ]
    for node in forwards:
        (dep,) = node.data_deps
        assert by_id[dep].type == messages.RECEIVE
        assert attributes(node)["comm_size"] == 1000


def test_reductions_are_a_receive_and_a_computation():
    """What is added has a node that takes no time and that later sends depend on."""
    schedule = solved("ring:gpus=4", "reducescatter", chunks=1, method="ring")
    _, nodes = messages.read_trace(traces_of(schedule)[0])
    sums = {node.id: node for node in nodes if node.type == messages.COMPUTE}
    assert sums
    assert all(node.duration_micros == 0 for node in sums.values())
    used = {dep for node in nodes if node.type == messages.SEND for dep in node.data_deps}
    assert used <= set(sums)


def drop_first(kind):
    def change(nodes):
        place = next(i for i, node in enumerate(nodes) if node.type == kind)
        return nodes[:place] + nodes[place + 1 :]

    return change


def resize(nodes):
    nodes[0].attr[1].int64_val += 1


def retag(nodes):
    nodes[0].attr[3].int32_val += 1000


def forget(nodes):
    next(node for node in nodes if node.data_deps).ClearField("data_deps")


def circle(nodes):
    node = next(node for node in nodes if node.data_deps)
    other = next(n for n in nodes if n.id == node.data_deps[0])
    other.data_deps.append(node.id)


def dangle(nodes):
    nodes[0].data_deps.append(999_999)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_first(messages.SEND), "no counterpart"),
        (drop_first(messages.RECEIVE), "no counterpart|not there"),
        (resize, "differ in size"),
        (retag, "no counterpart"),
        (forget, "begins on ranks"),
        (circle, "waits for itself"),
        (dangle, "not there"),
    ],
)
def test_the_check_finds_damage(change, words):
    """Each kind of damage is named."""
    import re

    traces = traces_of(solved("line:gpus=3", "allgather", chunks=1))
    traces[1] = changed(traces[1], change)
    problem = check_traces(traces)
    assert problem is not None
    assert re.search(words, problem)


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", b"\x05abc"])
def test_what_is_no_trace_is_refused(data):
    """Empty and cut data is named, not believed."""
    with pytest.raises(ValueError, match="not a trace"):
        messages.read_trace(data)


def test_files_and_snippet(tmp_path):
    """The system file's key names the prefix that the traces have."""
    solved("ring:gpus=4", "allgather", max_chunks=2).save(tmp_path / "s.json")
    target = tmp_path / "system.json"
    outcome = run("export", tmp_path / "s.json", "--to", "chakra", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document == {"all-gather-implementation-custom": [str(tmp_path / "system")]}
    traces = [(tmp_path / f"system.{rank}.et").read_bytes() for rank in range(4)]
    assert check_traces(traces) is None


def test_other_collectives_are_refused(tmp_path):
    """ASTRA-sim has custom implementations of four collectives."""
    schedule = solved("ring:gpus=4", "broadcast", max_chunks=2)
    with pytest.raises(ExportError, match="no custom broadcast"):
        export(schedule, to="chakra")
    schedule.save(tmp_path / "s.json")
    assert_refused(run("export", tmp_path / "s.json", "--to", "chakra"))
