"""The checker is tested by breaking correct schedules: every break is found, no other change is."""

import random
from collections import Counter

import pytest
from tests.verification.generate import random_schedule
from tests.verification.helpers import kinds
from tests.verification.mutate import BREAKING, HARMLESS, Scene

from teccl.verification import verify

SAMPLE = 600
FULL = 5000


def mutations(count: int, first_seed: int):
    """Yield `count` breaks of random schedules, each way as often as schedules allow."""
    done = Counter()
    seed = first_seed
    while done.total() < count:
        seed += 1
        rng = random.Random(seed)
        scene = Scene(random_schedule(seed))
        # The ways that few schedules offer come first, two of them to a schedule.
        ways = sorted(BREAKING, key=lambda way: (done[way.__name__], rng.random()))
        broken = 0
        for way in ways:
            result = way(scene, rng)
            if result is None:
                continue
            done[way.__name__] += 1
            yield seed, way.__name__, *result
            broken += 1
            if broken == 2 or done.total() == count:
                break


def check_mutations(count: int, first_seed: int) -> None:
    """Assert that every break shows its kind, that all ways occur, and how many kinds there are."""
    ways, found = Counter(), set()
    for seed, way, schedule, kind in mutations(count, first_seed):
        shown = kinds(schedule)
        assert kind in shown, f"seed {seed}: {way} shows {shown or 'nothing'}, not {kind}"
        ways[way] += 1
        found.add(kind)
    assert ways.total() == count
    assert set(ways) == {way.__name__ for way in BREAKING}
    assert min(ways.values()) >= count // 100
    assert len(found) >= 20


def test_breaks_are_found():
    """A sample of breaks of all ways, each with its own kind of violation."""
    check_mutations(SAMPLE, first_seed=0)


@pytest.mark.slow
def test_all_breaks_are_found():
    """The full count of breaks."""
    check_mutations(FULL, first_seed=10**6)


def check_harmless(schedules: int, first_seed: int) -> None:
    """Assert that changes that keep the meaning keep the verdict."""
    done = Counter()
    for seed in range(first_seed, first_seed + schedules):
        rng = random.Random(seed)
        scene = Scene(random_schedule(seed))
        assert verify(scene.schedule) == (), f"seed {seed}"
        for way in HARMLESS:
            changed = way(scene, rng)
            if changed is not None:
                assert verify(changed) == (), f"seed {seed}: {way.__name__}"
                done[way.__name__] += 1
    assert set(done) == {way.__name__ for way in HARMLESS}


def test_harmless_changes_pass():
    """Relabelled transfers, reordered rows, later starts, useless sends, a true finish."""
    check_harmless(120, first_seed=0)


@pytest.mark.slow
def test_all_harmless_changes_pass():
    """The full count of harmless changes."""
    check_harmless(1200, first_seed=10**6)
