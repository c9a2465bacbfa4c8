"""GOAL files as schedules: there and back with the same finish, and what does not fit."""

from fractions import Fraction

import pytest
from tests.cli.helpers import assert_refused, run
from tests.formats.goal.test_write import COLLECTIVES, FULL
from tests.formats.msccl.write.test_lowered_sums import both_kinds
from tests.formats.schedules import solved
from tests.verification.partial import one_shot, packed

import teccl
from teccl.errors import ScheduleError
from teccl.formats.reading import import_schedule
from teccl.formats.writing import export
from teccl.topology import Link, Node, Topology


def written(schedule, folder):
    path = folder / "schedule.goal"
    export(schedule, to="goal", path=path)
    return path


def assert_comes_back(schedule, topology, size, folder):
    """Assert that the file of a schedule is read as a correct one that ends when it did."""
    path = written(schedule, folder)
    back = import_schedule(path, "goal", topology=topology, size=size).schedule
    assert teccl.verify(back) == ()
    assert teccl.simulate(back).finish_ps == teccl.simulate(schedule).finish_ps
    return back


@pytest.mark.parametrize(
    "collective",
    ["allgather", "alltoall", "reducescatter", "allreduce", "broadcast", "reduce", "gather"],
)
@pytest.mark.parametrize("topology", ["ring:gpus=4", "dgx1", "fully-connected:gpus=4"])
def test_there_and_back(topology, collective, tmp_path):
    """What comes back is correct and ends when the schedule did."""
    schedule = solved(topology, collective, max_chunks=2)
    back = assert_comes_back(schedule, topology, "1MB", tmp_path)
    assert len(back) == len(schedule)


def test_through_a_switch(tmp_path):
    """Transfers between GPUs take the way through the switch again."""
    schedule = solved("star:gpus=4", "allreduce", max_chunks=2)
    assert_comes_back(schedule, "star:gpus=4", "1MB", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1KB", "1MB", "64MB"])
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", FULL)
def test_there_and_back_at_every_size(topology, collective, size, tmp_path):
    """The same for all networks, collectives and sizes that the documentation states."""
    assert_comes_back(solved(topology, collective, size), topology, size, tmp_path)


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("spec", ["ring:gpus=5", "mesh:dims=2x3", "fully-connected:gpus=4"])
def test_partial_sums_there_and_back(spec, pieces, tmp_path):
    """Sums that ranks keep apart, in slots of their own or not, come back as such."""
    schedule = one_shot(Topology.parse(spec), 1000, pieces, same_order=False)
    for each in (schedule, packed(schedule)):
        assert assert_comes_back(each, spec, "1KB", tmp_path).sums is not None


def test_both_kinds_of_sums_there_and_back(tmp_path):
    """Accumulators beside partial sums come back as partial sums."""
    assert_comes_back(both_kinds(), "line:gpus=2", "2KB", tmp_path)


APART = """// collective allreduce, chunks 1, whole buffer, partial sums
num_ranks 2
rank 0 {
s: send 1000b to 1 tag 0
r: recv 1000b from 1 tag 0
c: calc 0
c requires r
}
rank 1 {
s: send 1000b to 0 tag 0
r: recv 1000b from 0 tag 0
c: calc 0
c requires r
}
"""


def test_an_exchange_by_hand(tmp_path):
    """A computation that requires one message adds it to the rank's own data."""
    path = tmp_path / "hand.goal"
    path.write_text(APART, encoding="utf-8")
    back = import_schedule(path, "goal", topology="line:gpus=2", size="1KB").schedule
    assert teccl.verify(back) == ()
    path.write_text(APART.replace("c: calc 0\nc requires r\n}\nrank 1", "}\nrank 1"))
    back = import_schedule(path, "goal", topology="line:gpus=2", size="1KB").schedule
    assert [v.kind for v in teccl.verify(back)] == ["unmet-demand"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("allreduce, chunks 1, whole buffer", "allgather, chunks 2", "has no partial sums"),
        ("allreduce", "alltoall", "comment is wrong"),
    ],
)
def test_comments_that_cannot_be_are_refused(old, new, words, tmp_path):
    """Only sums can be kept apart, and only an AllReduce's buffer is cut as a whole."""
    path = tmp_path / "hand.goal"
    path.write_text(APART.replace(old, new), encoding="utf-8")
    with pytest.raises(ScheduleError, match=words):
        import_schedule(path, "goal", topology="line:gpus=2", size="1KB")


def test_parallel_links_are_told_apart_by_interface(tmp_path):
    """Two links between two GPUs carry what they carried."""
    wires = [Link(src=a, dst=b, bandwidth=Fraction(10**10)) for a, b in ((0, 1), (0, 1), (1, 0))]
    nodes = (Node(name="a"), Node(name="b"))
    topology = tmp_path / "two.json"
    Topology(name="two", nodes=nodes, links=tuple(wires)).save(topology)
    schedule = solved(str(topology), "broadcast", chunks=3)
    back = import_schedule(
        written(schedule, tmp_path), "goal", topology=str(topology), size="1MB"
    ).schedule
    assert teccl.simulate(back).finish_ps == teccl.simulate(schedule).finish_ps
    assert sorted(back.sends["link"].tolist()) == sorted(schedule.sends["link"].tolist())


HAND = """// collective allgather, chunks 1
num_ranks 2
rank 0 {
s: send 500b to 1 tag 0
r: recv 500b from 1 tag 1
}
rank 1 {
s: send 500b to 0 tag 1
r: recv 500b from 0 tag 0
}
"""


def test_a_file_by_hand(tmp_path):
    """Any file with the comment can be imported."""
    path = tmp_path / "hand.goal"
    path.write_text(HAND, encoding="utf-8")
    back = import_schedule(path, "goal", topology="line:gpus=2", size="1KB")
    assert teccl.verify(back.schedule) == ()
    assert teccl.simulate(back.schedule).finish_ps == 510_000


@pytest.mark.parametrize(
    ("old", "new", "options", "words"),
    [
        ("collective", "a collection", {}, "does not say"),
        ("allgather", "allgahter", {}, "comment is wrong"),
        ("chunks 1", "chunks 900000", {}, "more than operations"),
        ("", "", {"topology": "line:gpus=3"}, "2 ranks, but line has 3"),
        ("", "", {"size": "2KB"}, "but a chunk has 1000"),
        ("r: recv 500b from 1 tag 1\n", "", {}, "every message needs both"),
    ],
)
def test_what_does_not_fit_is_named(old, new, options, words, tmp_path):
    """The comment, the topology, the size, the messages."""
    path = tmp_path / "hand.goal"
    path.write_text(HAND.replace(old, new), encoding="utf-8")
    given = {"topology": "line:gpus=2", "size": "1KB", **options}
    with pytest.raises(ScheduleError, match=words):
        import_schedule(path, "goal", **given)


def test_the_command_imports_and_verifies(tmp_path):
    """Exit code 0 for a correct file, 3 for one that leaves something out."""
    path = tmp_path / "hand.goal"
    path.write_text(HAND, encoding="utf-8")
    options = ("--topology", "line:gpus=2", "--size", "1KB")
    outcome = run("import", "goal", path, *options, "-o", tmp_path / "s.json")
    assert (outcome.code, outcome.err) == (0, "")
    assert run("verify", tmp_path / "s.json").code == 0
    less = "\n".join(line for line in HAND.splitlines() if "tag 1" not in line) + "\n"
    path.write_text(less, encoding="utf-8")
    assert_refused(run("import", "goal", path, *options), (3,))
