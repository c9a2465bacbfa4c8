"""Faults: read, applied, grouped by symmetry and planned for."""

import json

import pytest
from tests.cli.helpers import assert_refused, run

from teccl import Demand, Topology, verify
from teccl.errors import InputError
from teccl.studies.contingency import stale_finish, whatif
from teccl.studies.faults import read_fault, single_faults


def counts(spec, what="links", demand=None):
    topology = Topology.parse(spec)
    demand = demand or Demand.collective("allgather", size="1MB")
    return [fault.count for fault in single_faults(topology, demand, what)]


def test_cables_of_a_ring_are_alike():
    """A ring has one kind of cable and one kind of GPU, a line of four has two."""
    assert counts("ring:gpus=6") == [6]
    assert counts("ring:gpus=6", "gpus") == [6]
    assert sorted(counts("line:gpus=4")) == [1, 2]


def test_a_torus_with_unequal_sides_has_two_kinds():
    """Cables along different axes are different, and all are counted."""
    assert sorted(counts("torus:dims=3x5")) == [15, 15]


def test_a_root_breaks_the_symmetry():
    """With a root, cables of a ring differ by their distance from it."""
    demand = Demand.collective("broadcast", size="1MB", root=0)
    assert sorted(counts("ring:gpus=6", demand=demand)) == [2, 2, 2]


def test_lone_directions_are_their_own():
    """Cables count once, the two one-way links between chassis once each, as one kind."""
    faults = single_faults(
        Topology.parse("ndv2:chassis=2"), Demand.collective("allgather", size="1MB"), "links"
    )
    assert sum(fault.count for fault in faults) == 34
    (lone,) = [fault for fault in faults if ">" in fault.name]
    assert (len(lone.links), lone.count) == (1, 2)


def test_fatal_links_are_reported(here):
    """Without its only way between chassis a machine has no schedule, and the study goes on."""
    found = whatif(
        "ndv2:chassis=2",
        "allgather",
        size="1MB",
        effort="quick",
        place=here,
        faults=["link c0/gpu0>c1/gpu1", "link 0:1"],
    )
    fatal, other = found.contingencies
    assert fatal.is_fatal
    assert "no path" in fatal.reason
    assert verify(other.result.schedule) == ()


def test_every_kind_of_fault_is_planned_for(here):
    """Each has a verified plan; old plans fail where something is gone, else they are slower."""
    faults = [
        "link 0:1",
        "slow 0:1=50%",
        "load 0:1=30%",
        "gpu 3",
        "late 3=20us",
        "slow 0:1=50% + late 3=20us",
    ]
    found = whatif("dgx1", "allgather", size="1MB", faults=faults, effort="quick", place=here)
    by_name = {c.fault.name: c for c in found.contingencies}
    for contingency in found.contingencies:
        assert verify(contingency.result.schedule) == ()
    assert by_name["link 0:1"].stale_ps is None
    assert by_name["gpu 3"].stale_ps is None
    assert by_name["gpu 3"].result.num_gpus == 7
    assert by_name["slow 0:1=50%"].stale_ps > found.healthy.finish_ps
    late = by_name["late 3=20us"]
    assert 20_000_000 < late.result.finish_ps <= late.stale_ps


def test_a_late_rank_keeps_the_old_order():
    """On a line the last rank's delay is added where its data is first needed."""
    import teccl

    result = teccl.solve("line:gpus=2", "allgather", size="1MB", method="ring", chunks=1)
    late = Demand.collective("allgather", size="1MB", ready={1: "100us"})
    stale = stale_finish(result.schedule, result.problem.topology, late)
    assert stale == result.finish_ps + 100_000_000


def test_switches_can_fail(here):
    """A star without its switch is cut."""
    found = whatif("star:gpus=4", "allgather", size="1MB", n_minus_1="switches", place=here)
    assert [c.is_fatal for c in found.contingencies] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "link",
        "lnk 0:1",
        "slow 0:1",
        "slow 0:1=0%",
        "load 0:1=100%",
        "gpu 99",
        "late 0=x",
        "switch gpu0",
        "slow 0:1=200%",
    ],
)
def test_bad_faults_are_refused(text):
    """Each is named in the error."""
    topology, demand = Topology.parse("dgx1"), Demand.collective("allgather", size="1MB")
    with pytest.raises(InputError):
        read_fault(text).apply(topology, demand)


def test_the_command_prints_losses_and_fatal_links(tmp_path):
    """Table, list of fatal links, JSON and saved schedules."""
    (tmp_path / "faults.txt").write_text("# cables\nlink 1:2\n")
    arguments = ("whatif", "line:gpus=3", "allgather", "--size", "1MB", "--jobs", 1)
    outcome = run(
        *arguments,
        "--n-minus-1",
        "links",
        "--fault",
        "slow 0:1=50%",
        "--faults",
        tmp_path / "faults.txt",
        "--save",
        tmp_path / "plans",
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert "3 fatal: link 1:2, link gpu0:gpu1, link gpu1:gpu2" in outcome.out
    assert [path.name for path in (tmp_path / "plans").iterdir()] == ["slow-0-1-50.json.gz"]
    document = json.loads(run(*arguments, "--fault", "link 0:1", "--json").out)
    assert document["faults"][0]["fatal"]


def test_every_fault_has_a_file_of_its_own(tmp_path):
    """Faults whose names differ in signs only do not overwrite each other."""
    faults = [
        f"--fault={fault}" for fault in ("link 0:1", "link 0>1", "slow 0:1=50%", "link 0 : 1")
    ]
    arguments = ("whatif", "ring:gpus=4", "allgather", "--size", "1MB", "--jobs", 1)
    outcome = run(*arguments, *faults, "--effort", "quick", "--save", tmp_path / "plans")
    assert outcome.code == 0
    names = {path.name.removesuffix(".json.gz") for path in (tmp_path / "plans").iterdir()}
    assert names == {"link-0-1", "link-0-to-1", "slow-0-1-50", "link-0-1-2"}
    assert f"4 schedules saved to {tmp_path / 'plans'}" in outcome.out


def test_no_fault_is_refused():
    """Without a fault there is nothing to study."""
    assert_refused(run("whatif", "dgx1", "allgather", "--size", "1MB"))
