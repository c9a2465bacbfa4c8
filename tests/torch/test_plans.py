"""Plans and options as a group reads them, without ranks."""

import json

import pytest
from tests.torch.ranks import needs_torch
from tests.torch.schedules import solved, write_plan

import teccl
from teccl.demand import Collective, Demand
from teccl.errors import InputError

pytestmark = needs_torch()


@pytest.fixture(scope="module")
def made():
    """Schedules for small and large buffers."""
    return [solved("ring:gpus=4", "allreduce", size=size) for size in (1000, 10**6)]


@pytest.fixture
def folder(tmp_path, made):
    """A plan for four ranks in two ranges."""
    return write_plan(tmp_path / "plan", [(0, 5000, made[0]), (5000, 2_000_000, made[1])])


def find(entries, size, *, collective=Collective.ALLREDUCE, ranks=(0, 1, 2, 3), root=None):
    from teccl.torch.plans import find_entry

    return find_entry(entries, collective, size, ranks=ranks, root=root)


def test_ranges_are_half_open(folder):
    """A size at an edge belongs to the range above it."""
    from teccl.torch.plans import read_plans

    entries = read_plans([folder]).entries
    assert find(entries, 4999).entry.name == "schedule0.json.gz"
    assert find(entries, 5000).entry.name == "schedule1.json.gz"
    assert find(entries, 2_000_000).reason == "2000000 bytes are outside the plan's 0 to 1999999"


def test_what_a_plan_does_not_cover_has_a_reason(folder):
    """Another collective, other ranks."""
    from teccl.torch.plans import read_plans

    entries = read_plans([folder]).entries
    assert find(entries, 10, collective=Collective.ALLGATHER).reason == "no plan for allgather"
    assert "among these ranks" in find(entries, 10, ranks=(0, 1)).reason


def test_a_schedule_that_forwards_through_others_is_no_group_s_own(tmp_path):
    """A sub-group cannot use ranks that do not make the call."""
    from teccl.torch.plans import read_plans

    demand = Demand.collective("allreduce", size=1000, ranks=(0, 2))
    schedule = teccl.solve("line:gpus=3", demand=demand, effort="quick").schedule
    entries = read_plans([write_plan(tmp_path / "plan", [(0, 5000, schedule)])]).entries
    assert "forwards through rank 1" in find(entries, 10, ranks=(0, 2)).reason


def test_folders_of_plans_are_read_like_plans(folder):
    """`plans/allreduce` and `plans` give the same; the digest follows every file."""
    from teccl.torch.plans import read_plans

    inside, outside = read_plans([folder]), read_plans([folder.parent])
    assert inside.digest == outside.digest
    solved("ring:gpus=4", "allreduce", size=2000).save(folder / "schedule0.json.gz")
    assert read_plans([folder]).digest != inside.digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "is no plan of teccl"),
        ({"schema_version": 9}, "has version 9, this teccl reads 1"),
        ({"ranges": 3}, "plan"),
        ({"ranges": [7]}, "a range is an object"),
        ({"ranges": [{"minBytes": -1, "maxBytes": 3, "schedule": "a"}]}, "minBytes"),
        ({"ranges": [{"minBytes": 0, "maxBytes": 3, "schedule": "/etc/a"}]}, "no plain file name"),
    ],
)
def test_plans_that_are_none_are_refused(folder, change, said):
    """One line names the file and the remedy."""
    from teccl.torch.plans import read_plans

    document = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(InputError, match=said) as refusal:
        read_plans([folder])
    assert "\n" not in str(refusal.value)


def test_options_come_from_the_environment():
    """Folders as PATH has them, a topology, and whether to be strict."""
    from pathlib import Path

    from teccl.torch.options import options_from

    given = {"TECCL_PLAN": "a:b", "TECCL_TOPOLOGY": "dgx1", "TECCL_STRICT": "1"}
    options = options_from(given)
    assert options.folders == (Path("a"), Path("b"))
    assert (options.topology, options.strict) == ("dgx1", True)
    assert options_from({}).folders == ()
    with pytest.raises(InputError, match="neither 1 nor 0"):
        options_from({"TECCL_STRICT": "perhaps"})


def test_part_of_a_topology_keeps_its_links():
    """Two GPUs of a star keep the switch between them, in the order of the group."""
    from teccl.torch.first_use import among

    part = among(teccl.Topology.parse("star:gpus=4"), (3, 1))
    assert (part.num_gpus, part.num_switches, part.num_links) == (2, 1, 4)
    with pytest.raises(InputError, match="has no GPU for rank 7"):
        among(teccl.Topology.parse("ring:gpus=4"), (1, 7))


def test_a_synthesis_that_fails_is_a_reason_for_all_ranks(monkeypatch, tmp_path):
    """The other ranks wait for an answer, whatever went wrong on the first."""
    from datetime import timedelta

    import torch.distributed as dist

    from teccl.torch import first_use as synthesis

    def fail(_task):
        raise MemoryError("no memory")

    monkeypatch.setenv("TECCL_STORE", str(tmp_path / "studies.sqlite"))
    monkeypatch.setattr(synthesis, "carry_out", fail)
    shared, wait = dist.HashStore(), timedelta(seconds=30)
    topology = teccl.Topology.parse("ring:gpus=2")
    for rank in (0, 1):
        made = synthesis.Synthesis(topology, (0, 1), rank, shared, effort="quick", timeout=wait)
        found = made.find(Collective.ALLREDUCE, 1000, None)
        assert found.entry is None
        assert found.reason == "the synthesis failed (MemoryError: no memory)"
