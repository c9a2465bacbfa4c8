"""GOAL out of schedules: text, interfaces, parameters, and the finish that follows from them."""

import re
from itertools import product

import pytest
from tests.cli.helpers import assert_refused, run
from tests.formats.schedules import solved
from tests.sampling import thinned

import teccl
from teccl import Demand, Problem, Topology
from teccl.errors import ExportRefused
from teccl.formats.goal.prove import Parameters, finish_time
from teccl.formats.goal.prove.goal_program import parse
from teccl.formats.goal.write import to_goal
from teccl.formats.writing import export
from teccl.schedule import Schedule, send_array

COLLECTIVES = ("allgather", "alltoall", "reducescatter", "allreduce")
SMALL = ("ring:gpus=4", "line:gpus=4", "fully-connected:gpus=4", "star:gpus=4", "torus:dims=3x3")
FULL = (
    *("ring:gpus=4", "ring:gpus=8", "line:gpus=4", "line:gpus=8", "fully-connected:gpus=8"),
    *("torus:dims=4x4", "torus:dims=4x4x4", "hypercube:dimension=5", "mesh:dims=4x5"),
)


def simulated_ps(text, made):
    return finish_time(parse(text), made.parameters) * made.unit_ps


def assert_same_finish(schedule):
    """Assert that the file, executed, ends when the replay does, to the picosecond."""
    made = to_goal(schedule)
    assert made.differences == ()
    assert simulated_ps(made.text, made) == teccl.simulate(schedule).finish_ps


@pytest.mark.parametrize(("topology", "collective"), thinned(product(SMALL, COLLECTIVES), 3))
def test_execution_ends_with_the_replay(topology, collective):
    """By the model that the simulator publishes, the file ends when `simulate` says."""
    assert_same_finish(solved(topology, collective, max_chunks=2))


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1KB", "1MB", "64MB"])
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", FULL)
def test_execution_ends_with_the_replay_at_every_size(topology, collective, size):
    """The same for all networks, collectives and sizes that the documentation states."""
    assert_same_finish(solved(topology, collective, size))


def test_a_chain_by_hand():
    """A broadcast along three GPUs: the middle one's send requires its receive."""
    schedule = solved("line:gpus=3", "broadcast", "1KB", chunks=1)
    made = to_goal(schedule)
    assert made.text == (
        "// collective broadcast, chunks 1\n"
        "// LogGOPSim -L 520000 -o 0 -g 20000 -G 0 -O 0 -S 2147483647\n"
        "num_ranks 3\n"
        "rank 0 {\n"
        "s0: send 1000b to 1 tag 0 nic 0\n"
        "}\n"
        "rank 1 {\n"
        "r0: recv 1000b from 0 tag 0 nic 0\n"
        "s1: send 1000b to 2 tag 0 nic 0\n"
        "s1 requires r0\n"
        "}\n"
        "rank 2 {\n"
        "r1: recv 1000b from 1 tag 0 nic 0\n"
        "}\n"
    )


def test_sums_are_computations_of_no_time():
    """What is added is a receive and a computation that later sends require."""
    text = to_goal(solved("line:gpus=3", "reduce", "1KB", chunks=1)).text
    assert "c0: calc 0\nc0 requires r0\n" in text
    assert re.search(r"s1: send .*\ns1 requires c0\n", text)


@pytest.mark.parametrize("topology", ["torus:dims=3x3", "fully-connected:gpus=5", "dgx2"])
def test_interfaces_tell_links_apart_at_both_ends(topology):
    """No two links out of a GPU share an index, nor two into one, and both ends say the same."""
    program = parse(to_goal(solved(topology, "allgather", max_chunks=1)).text)
    out, into = {}, {}
    for rank, each in enumerate(program.ranks):
        for op in each.operations:
            table = out if op.kind == "send" else into
            table.setdefault((rank, op.nic), set()).add(op.peer)
    if topology == "dgx2":
        assert {nic for _, nic in out} == {0}
    else:
        assert all(len(peers) == 1 for peers in (*out.values(), *into.values()))


def test_sends_of_a_link_require_one_another():
    """The order on a link is part of the file, whatever a simulator does with what is ready."""
    program = parse(to_goal(solved("ring:gpus=4", "alltoall", max_chunks=2)).text)
    for rank in program.ranks:
        ties = {(d.after, d.before) for d in rank.dependencies}
        last = {}
        for position, op in enumerate(rank.operations):
            if op.kind == "send":
                if op.nic in last:
                    assert (position, last[op.nic]) in ties
                last[op.nic] = position


def test_slower_links_take_several_messages():
    """One g serves links of two rates: a transfer on the slower one is two messages."""
    schedule = solved("dgx1", "allgather", chunks=2)
    assert_same_finish(schedule)
    program = parse(to_goal(schedule).text)
    sizes = {op.amount for rank in program.ranks for op in rank.operations if op.kind == "send"}
    assert sizes == {62_500, 31_250}
    tags = [(r, op.peer, op.tag) for r, rank in enumerate(program.ranks) for op in rank.operations]
    assert len(set(tags)) == len(tags)


def test_roundings_stay_within_the_allowance():
    """Times that are no whole multiples are rounded up, which can only make the finish later."""
    schedule = solved("dgx1", "allgather", chunks=3)
    made = to_goal(schedule)
    late = simulated_ps(made.text, made) - teccl.simulate(schedule).finish_ps
    assert 0 < late <= made.allowance_ps < 1000


def test_mixed_latencies_are_said_and_make_an_upper_limit():
    """One L cannot be two: a sentence says so, and the time is too long if anything."""
    schedule = solved("ndv2:chassis=2", "allgather", chunks=2)
    made = to_goal(schedule)
    assert any("one L" in sentence for sentence in made.differences)
    assert simulated_ps(made.text, made) > teccl.simulate(schedule).finish_ps


def test_chunks_of_few_bytes_are_not_cut_into_more():
    """A message has at least one byte."""
    schedule = solved("dgx1", "allgather", "8B", chunks=1)
    with pytest.raises(ExportRefused, match="cannot be 2 messages"):
        export(schedule, to="goal")


def test_slow_links_take_a_coarser_unit():
    """Parameters are C integers; where picoseconds do not fit, the unit is larger."""
    schedule = solved("line:gpus=2,bandwidth=1MB/s", "allgather", "10MB", chunks=1)
    made = to_goal(schedule)
    assert made.unit_ps == 10_000
    assert max(made.parameters) <= 2**31 - 1
    assert simulated_ps(made.text, made) == teccl.simulate(schedule).finish_ps


def test_transfers_that_wait_behind_a_switch_are_said():
    """What the schedule holds back for a link behind a switch, the simulator does not."""
    made = to_goal(solved("dgx2", "reduce", max_chunks=2))
    assert any("start later than their data" in sentence for sentence in made.differences)


def test_chunks_that_are_not_eager_are_refused():
    """Rendezvous would hold the sender; the way out is more chunks."""
    schedule = solved("line:gpus=2", "broadcast", "3GB", chunks=1)
    with pytest.raises(ExportRefused, match="more chunks"):
        export(schedule, to="goal")


def test_demands_without_a_name_are_exported_without_a_title():
    """Uneven exchanges run in the simulator but cannot be imported again."""
    demand = Demand.collective("alltoallv", matrix=[[0, 1000], [3000, 0]])
    problem = Problem(topology=Topology.parse("line:gpus=2"), demand=demand)
    table = problem.chunks
    links = [int(table.sources(chunk)[0]) for chunk in range(len(table))]
    sends = send_array(chunk=list(range(len(table))), link=links, start_ps=[0] * len(table))
    schedule = Schedule(problem=problem, sends=sends)
    assert_same_finish(schedule)
    made = export(schedule, to="goal")
    assert "collective" not in made.files[0].content
    assert any("cannot be imported" in note for note in made.notes)


def test_too_many_interfaces_are_refused(monkeypatch):
    """An index has one byte in the binary form."""
    from teccl.formats.goal import write

    monkeypatch.setattr(write, "MAX_INDEX", 2)
    with pytest.raises(ExportRefused, match="more than 3"):
        export(solved("fully-connected:gpus=5", "allgather", max_chunks=1), to="goal")


def test_the_receiving_processor_is_why_g_is_used():
    """With G the model lets a rank take in one message at a time, and ends too late."""
    schedule = solved("fully-connected:gpus=4", "allgather", "1MB", chunks=1)
    made = to_goal(schedule)
    usual = Parameters(500_000, 0, 0, 20, 0, 2**31 - 1)
    late = finish_time(parse(made.text), usual)
    assert late > 2 * teccl.simulate(schedule).finish_ps


def test_the_command_writes_a_file_and_says_how_to_run_it(tmp_path):
    """The command line names the parameters."""
    solved("ring:gpus=4", "allgather", max_chunks=2).save(tmp_path / "s.json")
    target = tmp_path / "ring.goal"
    outcome = run("export", tmp_path / "s.json", "--to", "goal", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    assert re.search(r"LogGOPSim -f \S+ -L \d+ -o 0 -g \d+ -G 0 -O 0 -S 2147483647", outcome.out)
    assert target.read_text(encoding="utf-8").count("rank ") == 4
    assert_refused(run("export", tmp_path / "s.json", "--to", "goal", "-o", tmp_path / "x.txt"))
    assert_refused(run("export", tmp_path / "s.json", "--to", "goal", "--with-config"))
