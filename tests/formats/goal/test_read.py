"""GOAL files as schedules: there and back with the same finish, and what does not fit."""

from fractions import Fraction

import pytest
from tests.cli.helpers import assert_refused, run
from tests.exporters.schedules import solved

import teccl
from teccl.errors import ScheduleError
from teccl.exporters import export
from teccl.importers import import_schedule
from teccl.topology import Link, Node, Topology


def written(schedule, folder):
    path = folder / "schedule.goal"
    export(schedule, to="goal", path=path)
    return path


@pytest.mark.parametrize(
    "collective",
    ["allgather", "alltoall", "reducescatter", "allreduce", "broadcast", "reduce", "gather"],
)
@pytest.mark.parametrize("topology", ["ring:gpus=4", "dgx1", "fully-connected:gpus=4"])
def test_there_and_back(topology, collective, tmp_path):
    """What comes back is correct and ends when the schedule did."""
    schedule = solved(topology, collective, max_chunks=2)
    path = written(schedule, tmp_path)
    back = import_schedule(path, "goal", topology=topology, size="1MB").schedule
    assert teccl.verify(back) == ()
    assert len(back) == len(schedule)
    assert teccl.simulate(back).finish_ps == teccl.simulate(schedule).finish_ps


def test_through_a_switch(tmp_path):
    """Transfers between GPUs take the way through the switch again."""
    schedule = solved("star:gpus=4", "allreduce", max_chunks=2)
    path = written(schedule, tmp_path)
    back = import_schedule(path, "goal", topology="star:gpus=4", size="1MB").schedule
    assert teccl.verify(back) == ()
    assert teccl.simulate(back).finish_ps == teccl.simulate(schedule).finish_ps


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
