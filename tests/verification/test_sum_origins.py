"""The rules of partial sums, each broken once by hand, and what keeps them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.verification.helpers import kinds
from tests.verification.partial import Ledger, exchange, one_shot, packed

import teccl
from teccl.problem import Problem, SwitchMode, Transit
from teccl.replay import simulate
from teccl.schedule import Schedule
from teccl.topology import Topology
from teccl.verification import has_same_order, verify


def line(**options) -> Schedule:
    """Two GPUs that exchange their contributions."""
    demand = options.pop("demand", teccl.Demand.collective("allreduce", size=1000))
    problem = Problem(
        topology=Topology.parse("line:gpus=2"), demand=demand, whole_buffer=True, **options
    )
    ledger = Ledger()
    own = [ledger.row(0, 0), ledger.row(0, 1)]
    arrived = [ledger.row(0, 0), ledger.row(0, 1)]
    ledger.results = {ledger.row(0, gpu, own[gpu], arrived[gpu]) for gpu in (0, 1)}
    start = max((int(t * 10**12) for t in demand.tenants[0].ready.values()), default=0)
    ledger.sends = [(0, 0, start, 0, own[0], arrived[1]), (0, 1, 0, 1, own[1], arrived[0])]
    return ledger.schedule(problem)


@pytest.mark.parametrize("spec", ["ring:gpus=6", "dgx1", "dgx-h100", "torus:dims=3x3", "star"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_one_shot_is_correct(spec, pieces):
    """Relays pass contributions on beside their own sums, directly and through switches."""
    schedule = one_shot(Topology.parse(spec), 1000, pieces)
    assert verify(schedule) == ()
    assert verify(packed(schedule)) == ()
    assert simulate(schedule).finish_ps <= schedule.finish_ps


def test_exchanges_are_correct():
    """Sums of sums need no more than rows that add what came."""
    assert verify(exchange(4, 1000)) == ()


def test_a_late_rank_is_waited_for():
    """An own contribution that is sent before it is ready is found."""
    demand = teccl.Demand.collective("allreduce", size=1000, ready={0: "1us"})
    schedule = line(demand=demand)
    assert verify(schedule) == ()
    early = schedule.sends.copy()
    early["start_ps"] = 0
    assert kinds(replace(schedule, sends=early)) == {"not-ready", "unmet-demand"}


def test_contributions_that_nobody_makes_are_found():
    """A partial sum at a GPU that takes no part holds nothing."""
    topology = Topology.parse("line:gpus=3")
    demand = teccl.Demand.collective("allreduce", size=1000, ranks=[0, 1])
    problem = Problem(topology=topology, demand=demand, whole_buffer=True)
    ledger = Ledger()
    rows = [ledger.row(0, 2), ledger.row(0, 1)]
    ledger.sends = [(0, 3, 0, 0, rows[0], rows[1])]
    found = kinds(ledger.schedule(problem))
    assert "wrong-sum" in found
    assert "not-held" in found


def test_a_chunk_keeps_to_one_way():
    """A send of a chunk with partial sums that names none is found."""
    schedule = line()
    sends = schedule.sends.copy()
    sends["carries"][0] = -1
    assert "wrong-sum" in kinds(replace(schedule, sends=sends))


def test_copied_chunks_have_no_partial_sums():
    """Rows of a chunk that is no sum are found."""
    demand = teccl.Demand.collective("allgather", size=1000)
    problem = Problem(topology=Topology.parse("line:gpus=2"), demand=demand)
    schedule = line()
    assert "wrong-sum" in kinds(replace(schedule, problem=problem))


def test_accumulators_and_partial_sums_go_together():
    """A schedule may hold some chunks in accumulators and others in partial sums."""
    two = Problem(
        topology=Topology.parse("line:gpus=2"),
        demand=teccl.Demand.collective("allreduce", size=2000),
        num_chunks=2,
        whole_buffer=True,
    )
    apart = line()
    step = int(apart.sends["start_ps"].max()) + int(two.transmission_ps[0, 0])
    rows = np.concatenate([apart.sends, apart.sends])
    rows["chunk"][2:], rows["transfer"][2:] = 1, [2, 3]
    rows["start_ps"][2:] += step
    rows["reduce"][2:], rows["carries"][2:], rows["becomes"][2:] = True, -1, -1
    both = Schedule(problem=two, sends=rows, sums=apart.sums, same_order=True)
    assert verify(both) == ()
    assert simulate(both).finish_ps == both.finish_ps
    rows["chunk"][3] = 0
    assert "unmet-demand" in kinds(replace(both, sends=rows))


def through_reducing_switch() -> Schedule:
    """Eight GPUs whose contributions a switch merges and sends to all."""
    topology = Topology.parse("dgx-h100:nvls=true")
    demand = teccl.Demand.collective("allreduce", size=900)
    problem = Problem(topology=topology, demand=demand, whole_buffer=True)
    switch = next(i for i, node in enumerate(topology.nodes) if node.is_switch)
    links = {
        (int(s), int(d)): i
        for i, (s, d) in enumerate(zip(topology.link_src, topology.link_dst, strict=True))
    }
    ledger, gpus = Ledger(), topology.gpus.tolist()
    own = {gpu: ledger.row(0, gpu) for gpu in gpus}
    total = {gpu: ledger.row(0, gpu) for gpu in gpus}
    ledger.results = set(total.values())
    up = links[gpus[0], switch]
    through = int(problem.transmission_ps[up, 0] + topology.alpha_ps[up])
    for gpu in gpus:
        ledger.sends.append((0, links[gpu, switch], 0, 0, own[gpu], -1))
        ledger.sends.append((0, links[switch, gpu], through, 0, -1, total[gpu]))
    schedule = ledger.schedule(problem, same_order=True)
    sends = schedule.sends.copy()
    sends["reduce"] = True
    return replace(schedule, sends=sends)


def test_a_reducing_switch_merges_partial_sums():
    """Arrivals of one instant leave a reducing switch as one, with all contributions in it."""
    schedule = through_reducing_switch()
    assert verify(schedule) == ()
    assert simulate(schedule).finish_ps == schedule.finish_ps


@pytest.mark.parametrize(
    "options", [{"switch": SwitchMode.HYPER_EDGE}, {"transit": Transit.CUT_THROUGH}]
)
def test_modes_without_switches_are_all_the_same(options):
    """Where there are no switches, every mode judges alike."""
    assert verify(line(**options)) == ()


def test_buffers_count_forwarded_partial_sums():
    """What a relay keeps to send it later is in its buffer, what it adds for itself is not."""
    schedule = one_shot(Topology.parse("line:gpus=3"), 1000)
    prompt = replace(schedule, problem=replace(schedule.problem, buffer=0))
    assert verify(prompt) == ()
    assert verify(simulate(prompt).schedule) == ()
    sends = schedule.sends.copy()
    sends["start_ps"][sends["start_ps"] > 0] += 10**6
    late = replace(prompt, sends=sends)
    assert kinds(late) == {"buffer-exceeded"}
    assert verify(replace(late, problem=schedule.problem)) == ()


def test_the_order_of_additions_is_compared():
    """Own contribution first means another tree at every rank, rank order one and the same."""
    ring = Topology.parse("ring:gpus=4")
    mine_first = one_shot(ring, 1000, same_order=False)
    assert not has_same_order(mine_first)
    assert kinds(replace(mine_first, same_order=True)) == {"unequal-order"}
    assert has_same_order(one_shot(ring, 1000))


@pytest.mark.parametrize("method", ["ring", "recursive-doubling", "construct"])
def test_the_order_in_accumulators_is_known(method):
    """Two halves and exchanges of accumulators evaluate one tree each."""
    schedule = teccl.solve(
        "hypercube:dimension=2", "allreduce", size="1MB", method=method, chunks=1
    ).schedule
    assert has_same_order(schedule)
    assert verify(replace(schedule, same_order=True)) == ()


def test_merges_of_one_instant_have_no_order():
    """Two arrivals that reach an accumulator together are not said to be added in any order."""
    problem = Problem(
        topology=Topology.parse("fully-connected:gpus=3"),
        demand=teccl.Demand.collective("allreduce", size=Fraction(1000)),
        whole_buffer=True,
    )
    links = range(problem.topology.num_links)
    sends = teccl.schedule.send_array([0] * 6, links, [0] * 6, reduce=True)
    schedule = Schedule(problem=problem, sends=sends)
    assert verify(schedule) == ()
    assert not has_same_order(schedule)
    assert kinds(replace(schedule, same_order=True)) == {"unequal-order"}


def test_replays_on_other_rates_stay_correct():
    """Slots that are taken again are free on slower links, too."""
    schedule = packed(one_shot(Topology.parse("mesh:dims=2x3"), 60000, 2))
    topology = schedule.problem.topology
    links = tuple(
        replace(link, bandwidth=link.bandwidth / (1 + i % 3), alpha=link.alpha * (i % 2 + 1))
        for i, link in enumerate(topology.links)
    )
    replay = simulate(schedule, topology=replace(topology, links=links))
    assert verify(replay.schedule) == ()
