"""Schedules that make no sense are judged, not stumbled over."""

import random

import pytest
from tests.verification.generate import MODES, add_profiles, on_grid, random_demand, random_network
from tests.verification.helpers import US

from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.replay import simulate
from teccl.schedule.model import Schedule, send_array
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
