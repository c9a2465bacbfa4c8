"""Schedules that make no sense are judged, not stumbled over."""

import random

import numpy as np
import pytest
from tests.verification.generate import MODES, add_profiles, on_grid, random_demand, random_network
from tests.verification.helpers import US

from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.replay import simulate
from teccl.schedule import SUM_SEND_DTYPE, sum_array
from teccl.schedule.sends import Schedule, send_array
from teccl.verification import verify


def garbage(seed: int) -> Schedule:
    """Random chunks on random links at random times under few transfer ids."""
    rng = random.Random(seed)
    topology = random_network(rng, reduce=rng.random() < 0.5)
    mode = rng.choice(list(MODES.values()))
    if not mode and rng.random() < 0.5:
        topology = add_profiles(topology, rng)
    reduce, several = rng.random() < 0.5, rng.random() < 0.3
    demand = random_demand(rng, topology.num_gpus, reduce=reduce, several=several)
    options = {"copy": rng.random() < 0.7, "buffer": rng.choice([None, 0, 1]), **mode}
    problem = Problem(topology=topology, demand=demand, **options)
    ids, rows = rng.choice([1, 3, 20]), range(rng.randrange(30))
    sends = send_array(
        [rng.randrange(len(problem.chunks)) for _ in rows],
        [rng.randrange(topology.num_links) for _ in rows],
        [rng.randrange(20) * US for _ in rows],
        transfer=[rng.randrange(ids) for _ in rows],
        reduce=[rng.random() < 0.5 for _ in rows],
    )
    schedule = Schedule(problem=problem, sends=sends)
    return on_grid(schedule) if rng.random() < 0.5 else schedule


def with_garbage_sums(schedule: Schedule, seed: int) -> Schedule:
    """Let random sends carry random partial sums."""
    rng, problem = random.Random(seed), schedule.problem
    rows = range(rng.randrange(1, 20))
    pairs = [
        (rng.randrange(i), rng.randrange(i)) if i and rng.random() < 0.5 else (-1, -1) for i in rows
    ]
    sums = sum_array(
        [rng.randrange(len(problem.chunks)) for _ in rows],
        [rng.randrange(problem.topology.num_nodes) for _ in rows],
        left=[left for left, _ in pairs],
        right=[right for _, right in pairs],
        result=[rng.random() < 0.3 for _ in rows],
        slot=[rng.randrange(len(rows)) for _ in rows],
    )
    sends = np.full(len(schedule), -1, dtype=SUM_SEND_DTYPE)
    for name in schedule.sends.dtype.names:
        sends[name] = schedule.sends[name]
    for name in ("carries", "becomes"):
        sends[name] = [rng.randrange(-1, len(rows)) for _ in sends]
    return Schedule(problem=problem, sends=sends, sums=sums, same_order=rng.random() < 0.5)


def test_garbage_sums_are_refused_without_a_crash():
    """Partial sums that make no sense are judged and refused in the same way."""
    refused = 0
    for seed in range(150):
        schedule = with_garbage_sums(garbage(seed), seed)
        assert verify(schedule), f"seed {seed}"
        try:
            simulate(schedule)
        except ScheduleError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("block", range(4))
def test_garbage_is_refused_without_a_crash(block):
    """Verify lists violations in one line each; simulate refuses what has none of the order."""
    refused = 0
    for seed in range(100 * block, 100 * block + 100):
        schedule = garbage(seed)
        found = verify(schedule)
        assert found, f"seed {seed}"
        assert all("\n" not in str(violation) for violation in found)
        try:
            simulate(schedule)
        except ScheduleError:
            refused += 1
    assert refused > 50
