"""Pipelines: pieces follow each other along trees that never wait, and never meet."""

import random
from dataclasses import replace

import pytest
from tests.construct.small import make_instance, random_fabric, verified

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import NEVER
from teccl.construct.pipelines import _first_phase, _free_period, may_be_piped, pipelined_plans
from teccl.construct.plan import Plan
from teccl.keywords import SwitchMode
from teccl.synthesis import solve
from teccl.verification import verify


def piped(instance: Instance) -> list[Plan]:
    return list(pipelined_plans(instance, Goal(target=1, allowance=10**9)))


def check_random(seeds: range, buffer: int) -> int:
    """Check all plans of random problems; returns how many problems had one."""
    served = 0
    for seed in seeds:
        instance = random_fabric(seed)
        if instance is None:
            continue
        limited = replace(instance, problem=replace(instance.problem, buffer=buffer))
        plans = piped(limited) if may_be_piped(limited) else []
        for plan in plans:
            assert verified(limited, plan).finish_ps == plan.finish, seed
        served += bool(plans)
    return served


def test_random_problems_keep_to_their_buffers() -> None:
    """Nothing ever waits in a GPU, whatever the network."""
    assert check_random(range(60), 0) > 3


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [0, 1])
def test_many_random_problems_keep_to_their_buffers(buffer: int) -> None:
    """Nothing ever waits in a GPU, whatever the network."""
    assert check_random(range(100, 600), buffer) > 30


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_a_chain_through_a_switch_is_always_busy(collective: str) -> None:
    """Three hops of two links each for the first piece, then one piece after another."""
    instance = make_instance(
        "star:gpus=4,bandwidth=50GB/s,alpha=0",
        collective,
        "1MB",
        num_chunks=10,
        buffer=0,
        switch=SwitchMode.NO_COPY,
    )
    # A piece of 100 KB takes 2 us on a link.
    assert min(plan.finish for plan in piped(instance)) == (3 * 2 + 9) * 2_000_000


def test_sums_a_lap_ahead_of_copies_share_ports_with_them() -> None:
    """Around a switch sums go the way of the copies, so that a port serves both in turns."""
    instance = make_instance(
        "star:gpus=8,bandwidth=50GB/s,alpha=0",
        "allreduce",
        "8MB",
        num_chunks=8,
        buffer=0,
        switch=SwitchMode.NO_COPY,
    )
    plans = piped(instance)
    for plan in plans:
        verified(instance, plan)
    # Two passages of 125 KB by each port for each of 64 pieces, and at most 15 hops around.
    piece = 2_500_000
    assert min(plan.finish for plan in plans) <= (64 * 2 + 2 * 15) * piece * 1.1


def test_periods_are_the_least() -> None:
    """Two holds of a link meet their images with every shorter period."""

    def meets(distance: int, first: int, second: int, period: int) -> bool:
        behind = distance % period
        return behind < first or period - behind < second

    draw = random.Random(7)
    for _ in range(300):
        first, second = draw.randint(1, 9), draw.randint(1, 9)
        distance = first + draw.randint(0, 60)
        least = first + second + draw.randint(0, 20)
        found = _free_period(distance, first, second, least)
        expected = next(p for p in range(least, NEVER) if not meets(distance, first, second, p))
        assert found == expected


def test_phases_meet_nothing_that_is_booked() -> None:
    """A piece begins at the first moment at which all that it holds is free, or nowhere."""

    def meets(begin: int, entries: list[tuple[int, int, int]]) -> bool:
        return any(
            (begin + offset + k) % period in busy[r]
            for r, offset, hold in entries
            for k in range(hold)
        )

    draw = random.Random(11)
    for _ in range(300):
        period = draw.randint(8, 40)
        booked: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        busy: dict[int, set[int]] = {0: set(), 1: set()}
        for r in (0, 0, 0, 1, 1):
            since, hold = draw.randrange(period), draw.randint(1, 4)
            times = {(since + k) % period for k in range(hold)}
            if not times & busy[r]:
                booked[r].append((since, hold))
                busy[r] |= times
        entries = [(r, draw.randint(0, 60), draw.randint(1, 4)) for r in (0, 1)]
        expected = next((b for b in range(period) if not meets(b, entries)), None)
        assert _first_phase(entries, booked, period) == expected


@pytest.mark.parametrize("gpus", [6, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("buffer", [2, "none"])
def test_large_sums_on_sparse_networks_keep_to_their_buffers(gpus: int, buffer: int | str) -> None:
    """Every link of a tree carries each byte once in and once out, which is what a leaf must do."""
    result = solve(f"random:gpus={gpus},degree=3,seed=4", "allreduce", size="64MB", buffer=buffer)
    assert verify(result.schedule) == ()
