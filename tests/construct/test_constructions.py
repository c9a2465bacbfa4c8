"""Whatever the constructions make on random networks is correct and no better than its bound."""

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import pytest
from tests.construct.networks import known_gap, random_problem
from tests.construct.small import plans
from tests.sampling import thinned
from tests.verification.helpers import net, task, wants

from teccl.bounds import summarise
from teccl.construct.instance import Instance
from teccl.construct.realise import realise
from teccl.demand import Demand
from teccl.problem import Problem, SwitchMode, Transit
from teccl.replay import simulate
from teccl.schedule import BoundSummary, Schedule
from teccl.timegrid import TimeGrid
from teccl.verification import verify

BATCH = 100
BATCHES = range(1, 51)
SAMPLE = 10


class Made(NamedTuple):
    """What the constructions made of a problem: lengths in epochs or picoseconds, and schedules."""

    bound: BoundSummary
    lengths: list[int]
    schedules: list[Schedule]

    @property
    def least(self) -> int:
        """The bound in the unit of the lengths."""
        found = self.bound.chunk_ps if self.bound.epochs is None else self.bound.epochs
        assert found is not None
        return found


def make(problem: Problem, grid: TimeGrid | None = None, level: str = "quick") -> Made:
    """Run the constructions on a problem; every plan on the way counts."""
    bound = summarise(problem, grid=grid, given_chunks=grid is None)
    target = bound.chunk_ps if grid is None else bound.epochs
    instance = Instance.build(problem, grid)
    found = list(plans(instance, target=target or 0, level=level))
    schedules = [realise(instance, plan, method="construct") for plan in found]
    return Made(bound, [plan.finish for plan in found], schedules)


def seeds(first: int) -> Iterator[int]:
    """Seeds from one on whose problems the constructions serve."""
    return (s for s in range(first, first + 10**6) if known_gap(random_problem(s)) is None)


@lru_cache(maxsize=4)
def made(seed: int) -> Made:
    """Run the constructions on a random problem, now on a grid and now in continuous time."""
    problem, rng = random_problem(seed), random.Random(seed)
    grid = None
    if rng.random() < 0.4:
        rule, factor = rng.choice(["fastest", "slowest"]), rng.choice([1, 1, 2])
        grid = TimeGrid.build(problem, rule, factor)
    return make(problem, grid, level=rng.choice(["quick"] * 9 + ["normal"]))


def faults(seed: int) -> list[str]:
    """What is wrong with what the constructions made of a random problem."""
    found = made(seed)
    wrong = [] if found.schedules else ["no schedule"]
    for schedule in found.schedules:
        wrong += [str(violation) for violation in verify(schedule)[:1]]
        replay = simulate(schedule)
        wrong += [f"replay: {violation}" for violation in verify(replay.schedule)[:1]]
        if replay.finish_ps > schedule.finish_ps:
            wrong.append("the replay is later")
        if replay.finish_ps < found.bound.physical_ps:
            wrong.append(f"ends at {replay.finish_ps}, physical bound {found.bound.physical_ps}")
    if min(found.lengths, default=found.least) < found.least:
        wrong.append(f"length {min(found.lengths)}, bound {found.least}")
    return wrong


SAMPLE_SEEDS = [seed for seed, _ in zip(seeds(0), range(SAMPLE), strict=False)]


@pytest.mark.parametrize("seed", thinned(SAMPLE_SEEDS, 3))
def test_random_problems_are_solved(seed):
    """Schedules verify, also when replayed, and end no earlier than the bounds."""
    assert faults(seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", BATCHES)
def test_many_random_problems_are_solved(number):
    """Schedules verify, also when replayed, and end no earlier than the bounds."""
    chosen = [s for s, _ in zip(seeds(number * 1000), range(BATCH), strict=False)]
    wrong = {seed: found for seed in chosen if (found := faults(seed))}
    assert wrong == {}


def test_lengths_only_get_shorter():
    """Each plan is better than the one before."""
    lengths = make(Problem(topology=RING, demand=Demand.collective("alltoall", size=9000))).lengths
    assert lengths == sorted(set(lengths), reverse=True)


RING = net("a b c", "a-b, b-c, c-a")
# A switch whose outputs differ: a tree to the slow one holds the fast ones longer.
UNEVEN = net("a b c | s", "a>s 1, s>a 2, b>s 2, s>b 1, c>s 2, s>c 1")
# A network card on both sides of a switch: no circuit can use it twice at a time.
CARD = net("a b | s", "a>s 1 0 /nic, s>b 1 0 /nic, a>b 1/4", {"nic": "1"})


def is_solved(problem: Problem) -> bool:
    """Whether there is a schedule and all are correct."""
    found = make(problem).schedules
    return bool(found) and not any(verify(schedule) for schedule in found)


def test_circuits_of_several_rates_copy():
    """A slow output that joins a circuit slows all of it down."""
    demand = Demand.collective("allgather", size=3000)
    assert is_solved(Problem(topology=UNEVEN, demand=demand, transit=Transit.CUT_THROUGH))


@pytest.mark.parametrize("chunk", [((0, 1), (1, 2), True), ((0,), (1, 2), True)])
def test_sums_that_several_want(chunk):
    """A sum may be wanted by any GPUs, contributors or not."""
    assert is_solved(task(RING, wants(chunk)))


def test_sums_that_several_want_beside_copies():
    """Sums and copies may be asked for together."""
    assert is_solved(task(RING, wants(((0,), (0, 1), True), ((0,), (1,)))))


@pytest.mark.parametrize(
    "options", [{"transit": Transit.CUT_THROUGH}, {"switch": SwitchMode.HYPER_EDGE}]
)
def test_circuits_use_a_shared_capacity_once(options):
    """A circuit that would need a capacity twice at a time is no way."""
    assert is_solved(task(CARD, wants(((0,), (1,))), **options))


@pytest.mark.parametrize("buffer", [0, 2])
def test_sums_in_limited_buffers(buffer):
    """Reductions keep to limits of buffers too."""
    demand = Demand.collective("reducescatter", size=3000)
    assert is_solved(Problem(topology=RING, demand=demand, buffer=buffer))


def test_sums_without_copying():
    """A tree of sums copies nothing, so that it serves where copying is forbidden."""
    demand = Demand.collective("reducescatter", size=3000)
    assert is_solved(Problem(topology=RING, demand=demand, copy=False))
