"""No bound exceeds what can be reached: exact optima, fluid limits, and schedules of any chunking.

Small networks are checked on every cut and partition. A seeded sample runs always; `make test-slow`
runs the full counts.
"""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.bounds.clock import Clock
from tests.bounds.evaluate import (
    best_bound,
    best_coverage_bound,
    best_first_passage_bound,
    best_handed_on_bound,
    best_joint_bound,
    best_length_bound,
    best_partition_bound,
)
from tests.bounds.fluid import allreduce_seconds, can_finish, transposed
from tests.bounds.instances import (
    UNIT,
    random_allreduce,
    random_epoch,
    random_leaves,
    random_mixture,
    random_problem,
    random_sum,
    scaled,
    with_profiles,
)
from tests.bounds.mixture import most_by
from tests.bounds.oracle import Oracle, OutOfTimeError
from tests.construct.small import plans
from tests.sampling import counts

from teccl.bounds import all_bounds, summarise
from teccl.construct.baselines import build_baseline, serving_baselines
from teccl.construct.instance import Instance
from teccl.construct.realise import realise
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.replay import simulate
from teccl.timegrid import TimeGrid
from teccl.verification import verify

UNIT_PS = int(UNIT * 10**12)
SECONDS = 30.0
# No problem here takes longer, so that a bound beyond is wrong without asking the oracle.
MAX_HORIZON = 200
# Seeds of a batch; the sample's stay clear of them.
BATCH = 50
BATCHES = range(100, 140)
SAMPLE = range(6)


def batch(number: int) -> range:
    return range(number * BATCH, (number + 1) * BATCH)


def reachable(problem: Problem, unit: Fraction, horizon: int, *, exact: bool) -> bool | None:
    """Whether some schedule ends within a horizon, None if that was not decided in time."""
    assert horizon < MAX_HORIZON
    try:
        return (
            Oracle(Clock(problem, unit, exact=exact), seconds=SECONDS).starts(horizon) is not None
        )
    except OutOfTimeError:
        return None


def grid_verdict(seed: int) -> bool | None:
    """Whether a schedule with fewer epochs than the grid bound exists."""
    problem = random_problem(seed)
    grid = TimeGrid(problem=problem, epoch=random_epoch(seed, problem))
    bound = best_bound(problem, grid=grid).value
    assert bound >= (summarise(problem, grid=grid).epochs or 0) > 0
    return reachable(problem, grid.epoch, bound - 1, exact=False)


def chunk_verdict(seed: int) -> bool | None:
    """Whether a schedule of whole chunks that ends before the bound for them exists."""
    problem = random_problem(seed)
    bound = best_bound(problem, fluid=False).value
    summary = summarise(problem, given_chunks=True).chunk_ps or 0
    units = -(-max(bound, summary) // UNIT_PS)
    return reachable(problem, UNIT, units - 1, exact=True)


def fluid_verdict(seed: int) -> bool:
    """Whether fluid data can be delivered before the physical bound, in steps of half a unit."""
    problem = random_problem(seed)
    bound = max(
        best_bound(problem).value,
        best_handed_on_bound(problem, seed),
        best_first_passage_bound(problem, seed),
    )
    if problem.has_reductions:
        table = problem.chunks
        one_goal = all(len(table.destinations(m)) == 1 for m in range(len(table)))
        if not (table.reduce.all() and one_goal and len(table.sizes) == 1):
            return False
        if problem.demand.has_ready_times:
            return False
        problem = transposed(problem)
    steps = -(-bound * 2 // UNIT_PS)
    assert steps < MAX_HORIZON
    return steps > 0 and can_finish(problem, UNIT / 2, steps - 1)


def undercut(verdicts: dict[int, bool | None]) -> list[int]:
    """Seeds whose bound was undercut; nearly all must have been decided."""
    undecided = [seed for seed, verdict in verdicts.items() if verdict is None]
    assert len(undecided) <= len(verdicts) // 20, undecided
    return [seed for seed, verdict in verdicts.items() if verdict]


def test_grid_bounds_hold_on_a_sample():
    """No schedule needs fewer epochs than the grid bound."""
    assert undercut({seed: grid_verdict(seed) for seed in SAMPLE}) == []


def test_chunk_bounds_hold_on_a_sample():
    """No schedule of the given whole chunks ends before the bound for them."""
    assert undercut({seed: chunk_verdict(seed) for seed in SAMPLE}) == []


def test_physical_bounds_hold_against_fluid_on_a_sample():
    """Fluid data cannot be delivered before the physical bound."""
    assert [seed for seed in SAMPLE if fluid_verdict(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", BATCHES)
def test_grid_bounds_hold(number):
    """No schedule needs fewer epochs than the grid bound."""
    assert undercut({seed: grid_verdict(seed) for seed in batch(number)}) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", BATCHES)
def test_chunk_bounds_hold(number):
    """No schedule of the given whole chunks ends before the bound for them."""
    assert undercut({seed: chunk_verdict(seed) for seed in batch(number)}) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", BATCHES)
def test_physical_bounds_hold_against_fluid(number):
    """Fluid data cannot be delivered before the physical bound."""
    assert [seed for seed in batch(number) if fluid_verdict(seed)] == []


def allreduce_excess(seed: int) -> bool:
    """Whether a bound of an AllReduce without latency exceeds the best mixture of trees."""
    problem = random_allreduce(seed)
    bound = max(best_bound(problem).value, best_partition_bound(problem))
    return bound > allreduce_seconds(problem) * 1e12 * (1 + 1e-9) + 1


def test_allreduce_bounds_hold_against_trees_on_a_sample():
    """No partition or cut bound exceeds the time of the best trees to and from roots."""
    assert [seed for seed in range(4) if allreduce_excess(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_allreduce_bounds_hold_against_trees(number):
    """No partition or cut bound exceeds the time of the best trees to and from roots."""
    assert [seed for seed in batch(number) if allreduce_excess(seed)] == []


def fluid_excess(problem: Problem, seed: int) -> float | None:
    """By how much a bound exceeds the horizon that fluid data just needs; None if none is served.

    The data is as much as the best mixture of patterns serves by the horizon.
    """
    soonest = next(b.value for b in all_bounds(problem) if b.kind == "pair")
    horizon = -(-soonest // UNIT_PS) + random.Random(seed).choice([1, 1, 2, 2, 3, 4, 6])
    factor = most_by(problem, UNIT, horizon)
    if factor <= 0:
        return None
    # The linear program is exact to some nine digits.
    problem = scaled(problem, Fraction(factor) * (1 - Fraction(1, 10**6)))
    bounds = [
        best_bound(problem).value,
        best_coverage_bound(problem),
        best_joint_bound(problem),
        best_handed_on_bound(problem, seed),
        best_first_passage_bound(problem, seed),
        best_partition_bound(problem),
        best_length_bound(problem, seed),
    ]
    return max(bounds) / (horizon * UNIT_PS) - 1


def check_fluid(problems: dict[int, Problem]) -> None:
    """Check the bounds of fluid data: none is above the optimum, and most are near it."""
    excess = {seed: fluid_excess(problem, seed) for seed, problem in problems.items()}
    served = {seed: value for seed, value in excess.items() if value is not None}
    assert {seed: value for seed, value in served.items() if value > 0} == {}
    assert len(served) > len(problems) * 3 / 4
    assert sorted(served.values())[len(served) // 2] > -0.1


def test_bounds_hold_against_free_partial_sums_on_a_sample():
    """No bound exceeds the optimum of fluid sums among two or three GPUs."""
    check_fluid({seed: random_sum(seed) for seed in range(4)})


def leaves_excess(seed: int, name: str = "allreduce") -> float | None:
    """By how much joint coverage exceeds the horizon that sums of two groups just need."""
    problem = random_leaves(seed, name)
    soonest = next(b.value for b in all_bounds(problem) if b.kind == "pair")
    horizon = -(-soonest // UNIT_PS) + random.Random(seed).choice([1, 1, 2, 2, 3])
    factor = most_by(problem, UNIT, horizon)
    if not 0 < factor < float("inf"):
        return None
    problem = scaled(problem, Fraction(factor) * (1 - Fraction(1, 10**6)))
    return best_joint_bound(problem) / (horizon * UNIT_PS) - 1


@pytest.mark.parametrize("seed", [44, 47, 52])
def test_joint_coverage_holds_among_two_groups_on_a_sample(seed):
    """What crosses between groups of GPUs is not bounded beyond the optimum of free sums."""
    excess = leaves_excess(seed)
    assert excess is not None
    assert excess <= 0


@pytest.mark.parametrize(("name", "seed"), [("reduce", 3), ("reducescatter", 5)])
def test_joint_coverage_holds_for_single_destinations_on_a_sample(name, seed):
    """What enters a set of nodes is not bounded too high where each sum is wanted by one GPU."""
    excess = leaves_excess(seed, name)
    assert excess is not None
    assert excess <= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reduce", "reducescatter"])
@pytest.mark.parametrize("number", range(4))
def test_joint_coverage_holds_for_single_destinations(name, number):
    """What enters a set of nodes is not bounded too high where each sum is wanted by one GPU."""
    excess = {seed: leaves_excess(seed, name) for seed in batch(number)}
    assert {seed: value for seed, value in excess.items() if value is not None and value > 0} == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_joint_coverage_holds_among_two_groups(number):
    """What crosses between groups of GPUs is not bounded beyond the optimum of free sums."""
    excess = {seed: leaves_excess(seed) for seed in batch(number)}
    assert {seed: value for seed, value in excess.items() if value is not None and value > 0} == {}


@pytest.mark.parametrize("count", counts(2, 6))
def test_bounds_hold_against_fluid_tenants_on_a_sample(count):
    """No bound exceeds the optimum of fluid copies and sums of several tenants together."""
    check_fluid({seed: random_mixture(seed) for seed in range(count)})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20, 30))
def test_bounds_hold_against_free_partial_sums(number):
    """No bound exceeds the optimum of fluid sums among two or three GPUs."""
    check_fluid({seed: random_sum(seed) for seed in batch(number)})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20, 30))
def test_bounds_hold_against_fluid_tenants(number):
    """No bound exceeds the optimum of fluid copies and sums of several tenants together."""
    check_fluid({seed: random_mixture(seed) for seed in batch(number)})


@pytest.mark.slow
def test_bounds_hold_against_free_partial_sums_of_four():
    """No bound exceeds the optimum of fluid sums among up to four GPUs."""
    check_fluid({seed: random_sum(seed, 4) for seed in range(3000, 3040)})


def best_finish_ps(problem: Problem) -> int | None:
    """Earliest end of the verified schedules that constructions and baselines make."""
    instance = Instance.build(problem)
    found = [
        realise(instance, plan, method="construct")
        for plan in plans(instance, target=0, level="quick")
    ]
    for name in serving_baselines(problem):
        try:
            found.append(build_baseline(name, problem))
        except MethodError:
            continue
    ends = [simulate(schedule).finish_ps for schedule in found if not verify(schedule)]
    return min(ends, default=None)


def shortfalls(problem: Problem, counts: tuple[int, ...]) -> tuple[list[str], int]:
    """Chunk counts whose schedules end before a bound, and the number of schedules looked at."""
    physical = best_bound(problem).value
    wrong, seen = [], 0
    for count in counts:
        cut = replace(problem, num_chunks=count)
        if len(cut.chunks) > 100:
            continue
        end = best_finish_ps(cut)
        if end is None:
            continue
        seen += 1
        whole = summarise(cut, given_chunks=True)
        if end < physical or end < (whole.chunk_ps or 0):
            wrong.append(f"{count} chunks end at {end} ps")
    return wrong, seen


def check_schedules(seeds: range, counts: tuple[int, ...]) -> None:
    """Check bounds against schedules; every third problem has bandwidths that change."""
    wrong, seen = {}, 0
    for seed in seeds:
        problem = random_problem(seed)
        if seed % 3 == 0:
            problem = with_profiles(problem, random.Random(seed))
        late, count = shortfalls(problem, counts)
        seen += count
        if late:
            wrong[seed] = late
    assert wrong == {}
    assert seen > len(seeds)


def test_physical_bounds_hold_at_any_number_of_chunks_on_a_sample():
    """No verified schedule ends before the physical bound, however finely data is cut."""
    check_schedules(range(1000, 1003), (1, 4, 16))


@pytest.mark.slow
@pytest.mark.parametrize("number", BATCHES)
def test_physical_bounds_hold_at_any_number_of_chunks(number):
    """No verified schedule ends before the physical bound, however finely data is cut."""
    check_schedules(batch(number), (1, 2, 3, 4, 8, 16))
