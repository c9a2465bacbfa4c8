"""Exports of schedules with several partial sums: proven programs, with scratch."""

import numpy as np
import pytest
from tests.verification.partial import exchange, one_shot, packed, random_partial
from tests.verification.test_partial_sums import line, through_reducing_switch

import teccl
from teccl.errors import ExportError, TecclError
from teccl.exporters.model import Export
from teccl.schedule import Schedule
from teccl.topology import Topology

TARGETS = ["msccl", "rccl", "mscclpp"]


def exported(schedule: Schedule, to: str, **options) -> Export:
    """Export without writing; what is returned was proven."""
    return teccl.export(schedule, to=to, **options)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("spec", ["ring:gpus=5", "dgx-h100"])
def test_one_shot_is_proven(spec, in_place, to):
    """Relays keep contributions in scratch, and results come out in the output."""
    schedule = one_shot(Topology.parse(spec), 1008)
    made = exported(schedule, to, in_place=in_place)
    text = made.files[0].content
    assert '"re"' in text or 'type="rrc"' in text
    proof = made.facts.get("verified", made.facts.get("proven"))
    assert proof is True


@pytest.mark.slow
@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("size", [1024, 16384, 65536])
@pytest.mark.parametrize(
    "spec", ["dgx1", "ndv2:chassis=2", "torus:dims=4x4", "dgx-h100", "dgx-h100:chassis=2"]
)
def test_one_shot_is_proven_on_machines(spec, size, to):
    """One-shot AllReduces of machines are written for every target."""
    assert exported(one_shot(Topology.parse(spec), size), to).files


@pytest.mark.parametrize("to", TARGETS)
def test_exchanges_are_combined_as_they_come(to):
    """A sum that only one addition reads needs no step of its own."""
    made = exported(exchange(3, 1024), to)
    if to != "mscclpp":
        assert 'type="re"' not in made.files[0].content
        assert 'type="rrc"' in made.files[0].content


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("seed", range(4))
def test_random_schedules_are_proven(seed, to):
    """Slots that are used again, several pieces and switches make no difference."""
    exported(random_partial(seed), to)


@pytest.mark.parametrize("to", TARGETS)
def test_accumulators_and_partial_sums_are_one_program(to):
    """Chunks of both kinds stand in one program."""
    apart = line()
    two = teccl.Problem(
        topology=Topology.parse("line:gpus=2"),
        demand=teccl.Demand.collective("allreduce", size=2000),
        num_chunks=2,
        whole_buffer=True,
    )
    rows = np.concatenate([apart.sends, apart.sends])
    rows["chunk"][2:], rows["transfer"][2:] = 1, [2, 3]
    rows["start_ps"][2:] += int(two.transmission_ps[0, 0])
    rows["reduce"][2:], rows["carries"][2:], rows["becomes"][2:] = True, -1, -1
    exported(Schedule(problem=two, sends=rows, sums=apart.sums), to)


def test_several_instances_share_the_work():
    """Copies of a program work on shares of every chunk, with scratch of their own."""
    schedule = packed(one_shot(Topology.parse("ring:gpus=4"), 4096))
    one, two = (exported(schedule, "msccl", instances=n).facts["steps"] for n in (1, 2))
    assert two == 2 * one


def test_channels_are_obeyed():
    """A number of channels spreads what one connection carries."""
    schedule = one_shot(Topology.parse("ring:gpus=4"), 4096, 4)
    assert exported(schedule, "msccl", channels=2).facts["channels"] == 2


def test_programs_that_do_not_fit_are_refused_with_the_limit():
    """More steps than thread blocks hold are named, with the remedy."""
    schedule = one_shot(Topology.parse("line:gpus=3"), 10**6, 900)
    with pytest.raises(TecclError, match="--max-chunks") as caught:
        exported(schedule, "mscclpp")
    assert "\n" not in str(caught.value)


def test_traces_are_checked():
    """Chakra traces have a computation for each addition."""
    schedule = one_shot(Topology.parse("ring:gpus=4"), 1000)
    made = exported(schedule, "chakra")
    assert made.facts["traces"] == 4
    assert made.facts["checked"]


def test_timelines_are_written():
    """Perfetto timelines take such schedules, too."""
    assert exported(one_shot(Topology.parse("star:gpus=4"), 1000), "perfetto").files


def test_merging_switches_are_refused():
    """Partial sums that a switch merges have no program; the message says what to do."""
    schedule = through_reducing_switch()
    for to in TARGETS:
        with pytest.raises(ExportError, match="switch"):
            exported(schedule, to)
