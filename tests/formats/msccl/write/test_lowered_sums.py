"""Exports of schedules with several partial sums: proven programs, with scratch."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import lcm

import numpy as np
import pytest
from tests.construct.staging import KINDS, MACHINES, SIZES, staged_allreduce
from tests.formats.chakra.chakra_executor import Execution, Network
from tests.verification.partial import exchange, one_shot, packed, random_partial
from tests.verification.test_sum_origins import line, through_reducing_switch

import teccl
from teccl.errors import ExportError, ExportRefused, TecclError
from teccl.formats.chakra.prove import check_traces
from teccl.formats.chakra.write import make_traces
from teccl.formats.shared import chakra_messages as messages
from teccl.formats.shared.exports import Export
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


def verdicts(spec: str, sizes: tuple[str, ...]) -> Counter[str]:
    """Export AllReduces of all kinds for all targets; count what is tried and written."""
    counts: Counter[str] = Counter()
    for size, kind in product(sizes, KINDS):
        schedule = staged_allreduce(spec, size, kind)
        for to in TARGETS:
            with suppress(ExportRefused):
                counts["written"] += bool(exported(schedule, to).files)
            counts["tried"] += 1
    return counts


def test_schemes_of_a_machine_are_proven():
    """One-shot, an exchange and shares of both are written for every target."""
    assert verdicts("dgx1", ("1KB",)) == {"tried": 9, "written": 9}


@pytest.mark.slow
@pytest.mark.parametrize("spec", MACHINES)
def test_schemes_of_machines_are_proven(spec):
    """At least four fifths of all sizes, kinds and targets are written, the others refused."""
    counts = verdicts(spec, SIZES)
    assert counts["written"] >= 4 * counts["tried"] / 5
    assert counts["tried"] == len(SIZES) * len(KINDS) * len(TARGETS)


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


def both_kinds() -> Schedule:
    """Return an AllReduce of two pieces on a line, one by partial sums, one by accumulators."""
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
    return Schedule(problem=two, sends=rows, sums=apart.sums)


@pytest.mark.parametrize("to", TARGETS)
def test_accumulators_and_partial_sums_are_one_program(to):
    """Chunks of both kinds stand in one program."""
    exported(both_kinds(), to)


def test_several_instances_share_the_work():
    """Copies of a program work on shares of every chunk, with scratch of their own."""
    schedule = packed(one_shot(Topology.parse("ring:gpus=4"), 4096))
    one, two = (exported(schedule, "msccl", instances=n).facts["steps"] for n in (1, 2))
    assert two == 2 * one


def test_channels_are_obeyed():
    """A number of channels spreads what one connection carries."""
    schedule = one_shot(Topology.parse("ring:gpus=4"), 4096, 4)
    assert exported(schedule, "msccl", channels=2).facts["channels"] == 2


@pytest.mark.parametrize("to", ["msccl", "rccl"])
def test_many_additions_are_spread_over_thread_blocks(to):
    """More additions in a row than a block may fuse go to several blocks without peers."""
    schedule = staged_allreduce("torus:dims=4x4", "1KB", "mixed")
    assert exported(schedule, to).facts["verified"]


def test_programs_that_do_not_fit_are_refused_with_the_limit():
    """More steps than thread blocks hold are named, with the remedy."""
    schedule = one_shot(Topology.parse("line:gpus=3"), 10**6, 900)
    with pytest.raises(TecclError, match="--max-chunks") as caught:
        exported(schedule, "mscclpp")
    assert "\n" not in str(caught.value)


def additions(traces: list[bytes]) -> list[int]:
    """Return how many computations of each rank add data."""
    nodes = [messages.read_trace(data)[1] for data in traces]
    return [sum(n.type == messages.COMPUTE and bool(n.data_deps) for n in each) for each in nodes]


@pytest.mark.parametrize("seed", range(6))
def test_traces_end_with_the_replay(seed):
    """Executed by ASTRA-sim's rules, whatever is issued first, they end when `simulate` does."""
    schedule = random_partial(seed)
    topology = schedule.problem.topology
    parts = lcm(*(size.denominator for size in schedule.problem.chunks.sizes))
    traces = make_traces(schedule, parts)
    rate, alpha_ps = topology.links[0].bandwidth, int(topology.alpha_ps[0])
    network = Network(rate, alpha_ps, topology.num_switches > 0)
    expected = teccl.simulate(schedule).finish_ps
    assert {Execution(traces, network, parts, order).run() for order in range(3)} == {expected}


@pytest.mark.parametrize("pieces", [1, 3])
def test_traces_have_a_computation_for_each_addition(pieces):
    """Every rank adds what the three others contribute to each piece."""
    traces = make_traces(one_shot(Topology.parse("ring:gpus=4"), 1200, pieces))
    assert additions(traces) == [3 * pieces] * 4
    traces = make_traces(exchange(3, 1024))
    assert additions(traces) == [3] * 8


def test_traces_of_both_kinds_of_sums():
    """Accumulators and partial sums of one schedule each depend on what they add."""
    schedule = both_kinds()
    traces = make_traces(schedule)
    assert additions(traces) == [2, 2]
    assert check_traces(traces, schedule.problem) is None


def test_a_missing_addition_is_found():
    """A result that lacks a contribution is refused."""
    schedule = exchange(2, 1024)
    last = schedule.sums.copy()
    last["result"] = False
    last["result"][:4] = True
    with pytest.raises(ExportRefused, match="never has all of chunk 0"):
        make_traces(replace(schedule, sums=last))


def test_timelines_are_written():
    """Perfetto timelines take such schedules, too."""
    assert exported(one_shot(Topology.parse("star:gpus=4"), 1000), "perfetto").files


def test_merging_switches_are_refused():
    """Partial sums that a switch merges have no program; the message says what to do."""
    schedule = through_reducing_switch()
    for to in TARGETS:
        with pytest.raises(ExportError, match="switch"):
            exported(schedule, to)
