"""Chakra traces: messages on the wire, matching, dependencies, and the check that reads them."""

import json
import random
from contextlib import suppress
from math import lcm

import pytest
from tests.cli.helpers import assert_refused, run
from tests.formats.chakra.chakra_executor import Damaged, Execution, Network, read
from tests.formats.schedules import solved

import teccl
from teccl import Demand, Problem, Topology
from teccl.errors import ExportError, ExportRefused
from teccl.formats.chakra.prove import check_traces
from teccl.formats.chakra.write import make_traces
from teccl.formats.shared import chakra_messages as messages
from teccl.formats.writing import export
from teccl.schedule import Schedule, send_array


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
    schedule = solved(topology, collective, max_chunks=2)
    assert check_traces(traces_of(schedule), schedule.problem) is None


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
        (forget, "has not got yet"),
        (circle, "waits for itself"),
        (dangle, "not there"),
    ],
)
def test_the_check_finds_damage(change, words):
    """Each kind of damage is named."""
    import re

    schedule = solved("line:gpus=3", "allgather", chunks=1)
    traces = traces_of(schedule)
    traces[1] = changed(traces[1], change)
    problem = check_traces(traces, schedule.problem)
    assert problem is not None
    assert re.search(words, problem)


def test_a_sum_that_waits_for_nothing_is_found():
    """A send that carries a sum on waits for what was added, over the computation."""
    schedule = solved("ring:gpus=4", "reducescatter", chunks=1, method="ring")
    traces = traces_of(schedule)

    def forget_added(nodes):
        for node in nodes:
            if node.type == messages.COMPUTE:
                node.ClearField("data_deps")

    traces[0] = changed(traces[0], forget_added)
    problem = check_traces(traces, schedule.problem)
    assert problem is not None
    assert "sum of nothing" in problem


def test_what_is_added_twice_is_found():
    """A computation that adds one message to itself holds its data twice."""
    schedule = solved("ring:gpus=4", "reducescatter", chunks=1, method="ring")
    traces = traces_of(schedule)

    def double(nodes):
        node = next(n for n in nodes if n.type == messages.COMPUTE and n.data_deps)
        node.data_deps.append(node.data_deps[0])

    traces[0] = changed(traces[0], double)
    problem = check_traces(traces, schedule.problem)
    assert problem is not None
    assert "twice" in problem


@pytest.mark.parametrize("collective", ["allgather", "reducescatter"])
def test_what_does_not_arrive_is_found(collective):
    """Traces of a schedule that ends too early leave a rank without its data."""
    schedule = solved("ring:gpus=4", collective, chunks=1, method="ring")
    short = Schedule(problem=schedule.problem, sends=schedule.sends[:-1])
    with pytest.raises(ExportRefused, match="never has all of chunk"):
        make_traces(short)


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", b"\x05abc"])
def test_what_is_no_trace_is_refused(data):
    """Empty and cut data is named, not believed."""
    with pytest.raises(ValueError, match="not a trace"):
        messages.read_trace(data)


def test_files_and_snippet(tmp_path):
    """The system file's key names the prefix that the traces have."""
    schedule = solved("ring:gpus=4", "allgather", max_chunks=2)
    schedule.save(tmp_path / "s.json")
    target = tmp_path / "system.json"
    outcome = run("export", tmp_path / "s.json", "--to", "chakra", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document == {"all-gather-implementation-custom": [str(tmp_path / "system")]}
    traces = [(tmp_path / f"system.{rank}.et").read_bytes() for rank in range(4)]
    assert check_traces(traces, schedule.problem) is None


def test_other_collectives_are_refused(tmp_path):
    """ASTRA-sim has custom implementations of four collectives."""
    schedule = solved("ring:gpus=4", "broadcast", max_chunks=2)
    with pytest.raises(ExportError, match="no custom broadcast"):
        export(schedule, to="chakra")
    schedule.save(tmp_path / "s.json")
    assert_refused(run("export", tmp_path / "s.json", "--to", "chakra"))


def executed_ps(schedule, seed):
    """Execute the traces of a schedule, with sizes in parts of a byte that make them whole."""
    parts = lcm(*(size.denominator for size in schedule.problem.chunks.sizes))
    topology = schedule.problem.topology
    network = Network(
        topology.links[0].bandwidth, int(topology.alpha_ps[0]), topology.num_switches > 0
    )
    return Execution(make_traces(schedule, parts), network, parts, seed).run()


@pytest.mark.parametrize("collective", ["allgather", "alltoall", "reducescatter", "allreduce"])
@pytest.mark.parametrize("topology", ["ring:gpus=4", "fully-connected:gpus=4", "star:gpus=4"])
def test_traces_end_with_the_replay_whatever_is_issued_first(topology, collective):
    """An executor that issues what is ready in any order ends when `simulate` does."""
    schedule = solved(topology, collective, max_chunks=4)
    expected = teccl.simulate(schedule).finish_ps
    for seed in range(3):
        # The schedule's times of a hop are whole picoseconds, rounded up as the executor's are.
        assert executed_ps(schedule, seed) == expected


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1KB", "1MB", "64MB"])
@pytest.mark.parametrize("collective", ["allgather", "alltoall", "reducescatter", "allreduce"])
@pytest.mark.parametrize(
    "topology",
    ["ring:gpus=4", "ring:gpus=8", "fully-connected:gpus=8", "star:gpus=8", "torus:dims=4x4"],
)
def test_traces_end_with_the_replay_at_every_size(topology, collective, size):
    """The same for all sizes that the documentation states."""
    schedule = solved(topology, collective, size)
    assert executed_ps(schedule, 0) == teccl.simulate(schedule).finish_ps


def test_without_the_order_a_link_is_served_as_it_comes():
    """The executor tells: without dependencies for order, other sends go first and it ends late."""
    schedule = solved("ring:gpus=8", "alltoall", max_chunks=4)
    traces = make_traces(schedule)

    def forget_order(nodes):
        for node in nodes:
            if node.type == messages.SEND:
                node.ClearField("ctrl_deps")

    loose = [changed(data, forget_order) for data in traces]
    topology = schedule.problem.topology
    network = Network(topology.links[0].bandwidth, int(topology.alpha_ps[0]), False)
    expected = teccl.simulate(schedule).finish_ps
    assert Execution(traces, network, 1, 0).run() == expected
    assert max(Execution(loose, network, 1, seed).run() for seed in range(4)) > expected


def test_with_config_all_files_are_written(tmp_path):
    """Network, system, memory and workload stand beside the traces, and the command names them."""
    solved("ring:gpus=4", "allgather", max_chunks=2).save(tmp_path / "s.json")
    target = tmp_path / "sim.json"
    outcome = run("export", tmp_path / "s.json", "--to", "chakra", "--with-config", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    system = json.loads(target.read_text(encoding="utf-8"))
    assert system["preferred-dataset-splits"] == 1
    assert system["all-gather-implementation-custom"] == [str(tmp_path / "sim")]
    network = (tmp_path / "sim.network.yml").read_text(encoding="utf-8")
    assert network.startswith("topology: [ Ring ]\nnpus_count: [ 4 ]\n")
    assert (tmp_path / "sim.memory.json").exists()
    assert "merge" not in outcome.out
    for rank in range(4):
        (node,) = read((tmp_path / f"sim.workload.{rank}.et").read_bytes())
        assert (node.kind, node.values["comm_type"]) == (7, 2)
        assert f"--network-configuration={tmp_path / 'sim.network.yml'}" in outcome.out


def group_schedule(ranks):
    """An AllGather of two GPUs of a line of three, straight if they are neighbours."""
    demand = Demand.collective("allgather", size="1KB", ranks=ranks)
    problem = Problem(topology=Topology.parse("line:gpus=3"), demand=demand)
    if ranks == (1, 2):
        sends = send_array(chunk=[0, 1], link=[2, 3], start_ps=[0, 0])
    else:
        sends = send_array(chunk=[0, 0, 1, 1], link=[0, 2, 3, 1], start_ps=[0, 510_000] * 2)
    return Schedule(problem=problem, sends=sends)


def test_ranks_are_positions_in_the_group():
    """A collective of ranks 1 and 2 has traces 0 and 1, and a file that names the group."""
    made = export(group_schedule((1, 2)), to="chakra", with_config=True)
    by_name = {file.path.name: file.content for file in made.files}
    assert json.loads(by_name["schedule.groups.json"]) == {"1": [1, 2]}
    traces = [by_name[f"schedule.{place}.et"] for place in range(2)]
    assert "schedule.2.et" not in by_name
    assert {n.values["comm_dst"] for n in read(traces[0]) if "comm_dst" in n.values} == {1}
    assert [n.kind for n in read(by_name["schedule.workload.0.et"])] == [4]


def test_members_only_take_part():
    """A GPU outside of the group cannot pass data on."""
    with pytest.raises(ExportError, match="rank 1 passes data on"):
        export(group_schedule((0, 2)), to="chakra")


def test_very_short_transfers_are_noted():
    """The simulator counts whole nanoseconds and stops at less."""
    made = export(solved("ring:gpus=8", "alltoall", "1KB", chunks=8), to="chakra")
    assert any("less than the nanosecond" in note for note in made.notes)


def damaged(traces, state):
    """Return traces with some bytes of one of them changed."""
    found = list(traces)
    place = state.randrange(len(found))
    data = bytearray(found[place])
    for _ in range(state.choice((1, 1, 3, 40))):
        kind, spot = state.randrange(4), state.randrange(len(data))
        if kind == 0:
            data[spot] = state.randrange(256)
        elif kind == 1:
            data[spot:spot] = bytes(state.randrange(256) for _ in range(state.randrange(9)))
        elif kind == 2:
            del data[spot : spot + state.randrange(1, 30)]
        else:
            data[spot:spot] = data[max(0, spot - 200) : spot] * state.choice((1, 300))
        data = data or bytearray(b"x")
    found[place] = bytes(data[: 2**22])
    return found


def test_two_hundred_hostile_traces():
    """Damage is named on one line or does no harm; both readers end."""
    schedule = solved("ring:gpus=4", "allreduce", max_chunks=2)
    traces = make_traces(schedule)
    refused = 0
    for number in range(200):
        bad = damaged(traces, random.Random(number))
        problem = check_traces(bad, schedule.problem)
        assert problem is None or (len(problem.splitlines()) == 1 and len(problem) < 500)
        refused += problem is not None
        for data in bad:
            with suppress(Damaged):
                read(data)
    assert refused > 150
