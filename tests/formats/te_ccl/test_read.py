"""TE-CCL's output files: imported, verified and timed against hand-computed figures."""

import json
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run

import teccl
from teccl.errors import ScheduleError
from teccl.formats.reading import import_schedule
from teccl.topology.topology_files import topology_from_dict

DATA = Path(__file__).parents[2] / "data" / "foreign"
# A chunk of 1 MB takes 100 us at 10 GB/s, and is there after 1 us more.
RING = "ring:gpus=4,bandwidth=10GB/s,alpha=1us"


def star(switch_first=True):
    """Return three GPUs around a switch, which TE-CCL numbers first."""
    nodes = [{"name": f"gpu{i}"} for i in range(3)]
    nodes.insert(0 if switch_first else 3, {"name": "hub", "kind": "switch"})
    links = [
        {
            "src": f"gpu{i}",
            "dst": "hub",
            "bandwidth": "10GB/s",
            "alpha": "1us",
            "bidirectional": True,
        }
        for i in range(3)
    ]
    return topology_from_dict({"name": "star", "nodes": nodes, "links": links})


def test_allgather_on_a_ring():
    """Own data both ways, 101 us; one neighbour's is passed on, another 101 us."""
    imported = import_schedule(
        DATA / "te_ccl_ring_allgather.json", "te-ccl", topology=RING, size="4MB"
    )
    schedule = imported.schedule
    assert teccl.verify(schedule) == ()
    assert schedule.finish_ps == 202_000_000
    assert teccl.simulate(schedule).finish_ps == 202_000_000
    assert any("0.0004 s" in note for note in imported.notes)


def test_alltoall_with_halves():
    """A link carries a neighbour's chunk, 100 us, then half of its own far chunk until 150 us.

    The half is there at 151 us, goes on until 201 us and has arrived at 202 us.
    """
    imported = import_schedule(
        DATA / "te_ccl_ring_alltoall.json", "te-ccl", topology=RING, size="4MB"
    )
    assert imported.schedule.problem.num_chunks == 2
    assert teccl.verify(imported.schedule) == ()
    assert teccl.simulate(imported.schedule).finish_ps == 202_000_000


@pytest.mark.parametrize("name", ["te_ccl_star.json", "te_ccl_star_rounds.json"])
def test_copies_in_a_switch(name):
    """Whole ways or hops listed apart: each GPU's chunk enters the switch once and leaves twice.

    A copy leaves by both ports at one instant, and any two chunks share a port: 101 us to the hub,
    then three chunks of 100 us one after the other, and 1 us more.
    """
    imported = import_schedule(DATA / name, "te-ccl", topology=star(), size="3MB")
    assert len(imported.schedule) == 9
    assert teccl.verify(imported.schedule) == ()
    assert teccl.simulate(imported.schedule).finish_ps == 402_000_000


def test_a_gpu_that_the_file_takes_for_a_switch():
    """TE-CCL takes GPU 0 of two NDv2 chassis for a switch; what passes it is relayed."""
    flows = [
        f"Chunk 0 from {s} traveled over {s}->{d} in epoch 0 via switches 0"
        for s, d in ((1, 3), (3, 1))
    ]
    path = Path("flows.json")
    document = {"7-Flows": flows}
    topology = teccl.Topology.parse(RING)
    imported = _import(document, topology, size="2MB", path=path)
    assert teccl.verify(imported.schedule) == ()
    assert imported.schedule.problem.num_gpus == 2
    assert imported.schedule.finish_ps == 202_000_000
    assert any("2 of 4 GPUs have data" in note for note in imported.notes)


def _import(document, topology, *, size, path, folder=None):
    """Import a document from a file in a temporary folder."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        file = Path(folder or place) / path
        file.write_text(json.dumps(document), encoding="utf-8")
        return import_schedule(file, "te-ccl", topology=topology, size=size)


def flow(text):
    return {"7-Flows": [text]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "no key"),
        ({"7-Flows": []}, "no flows"),
        ({"7-Flows": {}}, "give a list"),
        (flow("Chunk 0 flies from 1 to 2"), "must read like"),
        (flow("Chunk 0 from 0 traveled over 0->9 in epoch 0"), "names node 9"),
        (flow("Chunk 0 from 0 traveled over 0->1 in epoch 0"), "only one node has data"),
        (
            {
                "7-Flows": [
                    "Chunk 0 from 0 traveled over 0->2 in epoch 0",
                    "Chunk 0 from 1 traveled over 1->2 in epoch 0",
                ]
            },
            "does not have",
        ),
        (
            {
                "7-Flows": [
                    "Chunk 0 from 0 traveled over 1->2 in epoch 0",
                    "Chunk 0 from 1 traveled over 1->2 in epoch 0",
                ]
            },
            "never reaches it",
        ),
        (
            {
                "7-Flows": [
                    "Chunk 999999 from 0 traveled over 0->1 in epoch 0",
                    "Chunk 0 from 1 traveled over 1->2 in epoch 0",
                ]
            },
            "incomplete",
        ),
        (flow("Chunk 0 from 0 traveled over 0->1 with volume 0.5 in epoch 0"), "Chunk paths"),
        (
            {
                "6-Flows": ["Chunk 1 from 0 traveled over 0->1 with volume 0.5 in epoch 0"],
                "7-Chunk paths": {
                    "Demand at 1 for chunk 1 from 0 met by epoch 0": [
                        [[0, "0->1 with volume 0.5 in epoch 0"]]
                    ]
                },
            },
            "add to 0.5",
        ),
    ],
)
def test_damaged_files_are_refused(document, words, tmp_path):
    """What is wrong is named, with the file."""
    with pytest.raises(ScheduleError, match=words) as error:
        _import(document, RING, size="4MB", path="bad.json", folder=tmp_path)
    assert "bad.json" in str(error.value)


def test_a_wrong_topology_is_refused():
    """Ranks of another topology are switches of this one."""
    with pytest.raises(ScheduleError, match="is the switch hub"):
        import_schedule(
            DATA / "te_ccl_star.json", "te-ccl", topology=star(switch_first=False), size="3MB"
        )


def test_an_incomplete_schedule_is_imported_and_judged(tmp_path):
    """A file that forgets a GPU is imported, and the exit code says that it is wrong."""
    document = json.loads((DATA / "te_ccl_ring_allgather.json").read_text(encoding="utf-8"))
    document["7-Flows"].pop()
    path = tmp_path / "partial.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    target = tmp_path / "out.json"
    arguments = ("te-ccl", path, "--topology", RING, "--size", "4MB", "-o", target)
    outcome = run("import", *arguments)
    assert outcome.code == 3
    assert "unmet-demand" in outcome.err
    assert run("verify", target).code == 3


def test_command_line(tmp_path):
    """Import, verify and simulate one after the other."""
    target = tmp_path / "out.json"
    file = DATA / "te_ccl_ring_allgather.json"
    arguments = ("import", "te-ccl", file, "--topology", RING, "--size", "4MB")
    outcome = run(*arguments, "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    assert run("verify", target).code == 0
    replay = json.loads(run("simulate", target, "--json").out)
    assert replay["finish_time_s"] == pytest.approx(202e-6)
    document = json.loads(run(*arguments, "--json").out)
    assert document["verified"] is True
    assert document["num_sends"] == 12


@pytest.mark.parametrize(
    "arguments",
    [
        ("te-ccl", DATA / "te_ccl_ring_allgather.json"),
        ("te-ccl", DATA / "te_ccl_ring_allgather.json", "--topology", RING),
        ("te-ccl", DATA / "te_ccl_ring_allgather.json", "--size", "1MB"),
        ("te-ccl", DATA / "te_ccl_ring_allgather.json", "--topology", RING, "--size", "0B"),
        ("te-ccl", DATA / "te_ccl_ring_allgather.json", "--topology", "rng", "--size", "1MB"),
        ("teccl", DATA / "te_ccl_ring_allgather.json", "--topology", RING, "--size", "1MB"),
        ("msccl", DATA / "te_ccl_ring_allgather.json", "--topology", RING, "--size", "1MB"),
        ("te-ccl", "missing.json", "--topology", RING, "--size", "1MB"),
    ],
)
def test_wrong_requests_are_refused(arguments):
    """One line on what is wrong, exit code 2."""
    assert_refused(run("import", *arguments))
