"""Bounds where transfers cost more than their bytes: none exceeds an exact optimum or a schedule.

A seeded sample runs always; `make test-slow` runs the full counts.
"""

import random
from dataclasses import replace

import pytest
from tests.bounds.clock import Clock
from tests.bounds.evaluate import best_bound, best_coverage_bound, best_partition_bound
from tests.bounds.instances import (
    UNIT,
    random_buffer,
    random_epoch,
    random_problem,
    random_star,
    random_sum,
    with_overheads,
    with_profiles,
)
from tests.bounds.oracle import Oracle, OutOfTimeError, to_schedule
from tests.bounds.test_validity import UNIT_PS, reachable, shortfalls, undercut
from tests.sampling import counts

from teccl.bounds import all_bounds, summarise
from teccl.bounds.departures import departure_bounds
from teccl.bounds.first_departures import first_departure_bounds
from teccl.bounds.network import Network
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.replay import simulate
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.verification import verify

BATCHES = range(20)
SAMPLE = range(7000, 7003)
# Chunks up to which the exact program is decided at once.
FEW = 4
# Stars that the exact program decides at once: those of three GPUs.
STARS = [seed for seed in range(20) if random_star(seed, 1).topology.num_gpus == 3]


def batch(number: int) -> range:
    return range(7000 + number * 50, 7000 + (number + 1) * 50)


def costly_problem(seed: int) -> Problem:
    return with_overheads(random_problem(seed), random.Random(seed))


def chunk_verdict(seed: int) -> bool | None:
    """Whether a schedule of whole chunks ends before the bound for them or for any chunking."""
    problem = costly_problem(seed)
    summary = summarise(problem, given_chunks=True).chunk_ps or 0
    values = [best_bound(problem, fluid=False).value, best_bound(problem).value, summary]
    values += [best_partition_bound(problem), best_coverage_bound(problem)]
    return reachable(problem, UNIT, -(-max(values) // UNIT_PS) - 1, exact=True)


def grid_verdict(seed: int) -> bool | None:
    """Whether a schedule with fewer epochs than the grid bound exists."""
    problem = costly_problem(seed)
    grid = TimeGrid(problem=problem, epoch=random_epoch(seed, problem))
    return reachable(problem, grid.epoch, best_bound(problem, grid=grid).value - 1, exact=False)


def piece_verdict(seed: int) -> bool | None:
    """Whether two or three pieces of each chunk end before the bound for any chunking."""
    problem = costly_problem(seed)
    bound = best_bound(problem).value
    for pieces in (2, 3):
        finer = replace(problem, num_chunks=problem.num_chunks * pieces)
        if len(finer.chunks) > FEW or problem.has_reductions:
            continue
        unit = UNIT / pieces
        # A third of a unit is no whole number of picoseconds.
        units = -(-bound // (unit * 10**12))
        verdict = reachable(finer, unit, units - 1, exact=True) if units < 60 else False
        if verdict is not False:
            return verdict
    return False


def buffer_verdict(seed: int) -> bool | None:
    """Whether a buffer that is summed up whole, or in two pieces, ends before a bound."""
    for pieces in (1, 2):
        problem = random_buffer(seed, pieces)
        values = [best_coverage_bound(problem), best_partition_bound(problem)]
        units = -(-max(*values, best_bound(problem).value) // UNIT_PS)
        verdict = reachable(problem, UNIT, units - 1, exact=True)
        if verdict is not False:
            return verdict
    return False


def star_verdict(seed: int) -> bool | None:
    """Whether a sum around a switch, whole or in two pieces, ends before what departures say."""
    for pieces in (1, 2):
        problem = random_star(seed, pieces)
        bounds = departure_bounds(Network.build(problem, fluid=True), 0)
        bounds += first_departure_bounds(Network.build(problem))
        values = [bound.value for bound in bounds]
        units = -(-max(values, default=0) // UNIT_PS)
        verdict = reachable(problem, UNIT, units - 1, exact=True) if units else False
        if verdict is not False:
            return verdict
    return False


def number_verdict(seed: int) -> bool | None:
    """Whether some number of chunks around a switch ends before the bound for any number."""
    problem = random_star(seed, 1)
    value = max(bound.value for bound in all_bounds(problem))
    for pieces in (1, 2, 3):
        finer = replace(problem, num_chunks=pieces)
        if len(finer.chunks) > FEW:
            continue
        unit = UNIT / pieces
        # A third of a unit is no whole number of picoseconds.
        verdict = reachable(finer, unit, int(-(-value // (unit * 10**12))) - 1, exact=True)
        if verdict is not False:
            return verdict
    return False


def profiled_shortfalls(seed: int) -> list[str]:
    """Numbers of chunks whose schedules, at rates that change, end before a bound."""
    rng = random.Random(seed)
    return shortfalls(with_overheads(with_profiles(random_problem(seed), rng), rng), (1, 2, 4))[0]


def test_whole_chunks_cannot_beat_a_bound():
    """No exact optimum of whole chunks lies below the bound for them or for any chunking."""
    assert undercut({seed: chunk_verdict(seed) for seed in SAMPLE}) == []


def test_epochs_cannot_beat_the_grid_bound():
    """No schedule needs fewer epochs than the grid bound."""
    assert undercut({seed: grid_verdict(seed) for seed in SAMPLE}) == []


def test_pieces_cannot_beat_the_bound_for_any_chunking():
    """Cutting chunks into two or three does not beat the bound for any chunking."""
    assert undercut({seed: piece_verdict(seed) for seed in range(7000, 7004)}) == []


@pytest.mark.parametrize("count", counts(2, 8))
def test_buffers_in_pieces_cannot_beat_the_bounds_for_sums(count):
    """No exact optimum of an AllReduce, its buffer whole or halved, lies below a bound."""
    assert undercut({seed: buffer_verdict(seed) for seed in range(7000, 7000 + count)}) == []


def test_sums_around_a_switch_cannot_beat_the_bound_of_departures():
    """No exact optimum of a sum whose messages cost lies below what must depart early."""
    assert undercut({seed: star_verdict(seed) for seed in STARS[:3]}) == []


@pytest.mark.parametrize("count", counts(2, 8))
def test_no_number_of_chunks_beats_the_bound_for_any(count):
    """No exact optimum with one, two or three chunks of a block lies below the bound for any."""
    assert undercut({seed: number_verdict(seed) for seed in STARS[:count]}) == []


def test_schedules_cannot_beat_bounds_where_rates_change():
    """No verified schedule ends before a bound, with overheads and profiles together."""
    assert {s: late for s in range(7000, 7002) if (late := profiled_shortfalls(s))} == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", BATCHES)
def test_bounds_hold(number):
    """No exact optimum and no schedule lies below any bound."""
    seeds = batch(number)
    assert undercut({seed: chunk_verdict(seed) for seed in seeds}) == []
    assert undercut({seed: grid_verdict(seed) for seed in seeds}) == []
    assert undercut({seed: piece_verdict(seed) for seed in seeds}) == []
    assert undercut({seed: buffer_verdict(seed) for seed in seeds}) == []
    assert undercut({seed: star_verdict(seed) for seed in seeds}) == []
    assert undercut({seed: number_verdict(seed) for seed in seeds}) == []
    assert {s: late for s in seeds if (late := profiled_shortfalls(s))} == {}


def test_bounds_of_sums_hold_for_schedules():
    """No verified schedule of a sum ends before the bound for any chunking."""
    for seed in range(7000, 7003):
        problem = with_overheads(random_sum(seed), random.Random(seed))
        assert shortfalls(problem, (1, 2, 4))[0] == []


def test_exact_optima_are_schedules_that_verify_and_replay_accept():
    """What the rules written a second time allow, the checker and the replay time alike."""
    seen = 0
    for seed in range(7000, 7012):
        problem = costly_problem(seed)
        table = problem.chunks
        if any(table.reduce[m] and len(table.destinations(m)) > 1 for m in range(len(table))):
            continue
        oracle = Oracle(Clock(problem, UNIT, exact=True), seconds=30)
        try:
            best = oracle.optimum(start=summarise(problem).physical_ps // UNIT_PS)
        except OutOfTimeError:
            continue
        if best is None:
            continue
        schedule = to_schedule(oracle, oracle.starts(best) or [])
        assert verify(schedule) == ()
        assert simulate(schedule).finish_ps == best * UNIT_PS
        seen += 1
        if seen == 5:
            break
    assert seen == 5


def test_a_hop_costs_latency_and_overhead_whatever_the_chunks():
    """The bound for any chunking of one hop is its latency, its overhead and its bytes."""
    topology = "line:gpus=2,alpha=1us,overhead=2us,bandwidth=1GB/s"
    demand = Demand.collective("broadcast", size="3KB")
    problem = Problem(topology=Topology.parse(topology), demand=demand)
    assert all_bounds(problem)[0].value == 6_000_000
