"""Schedules with several partial sums: every break is found, and no change of names only."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.verification.helpers import kinds
from tests.verification.mutate_sums import BREAKING, HARMLESS, Scene
from tests.verification.partial import random_partial

from teccl.replay import simulate
from teccl.verification import verify

SAMPLE = 190
FULL = 2000


def check_mutations(count: int, first_seed: int) -> None:
    """Assert that breaks of all ways show one of the kinds that they may."""
    done, seed = Counter(), first_seed
    while done.total() < count:
        seed += 1
        rng = random.Random(seed)
        scene = Scene(random_partial(seed))
        for way in sorted(BREAKING, key=lambda way: (done[way.__name__], rng.random()))[:8]:
            result = way(scene, rng)
            if result is None or done.total() == count:
                continue
            schedule, expected = result
            shown = set(kinds(schedule))
            assert shown & expected, f"seed {seed}: {way.__name__} shows {shown or 'nothing'}"
            done[way.__name__] += 1
    assert set(done) == {way.__name__ for way in BREAKING}
    assert min(done.values()) >= count // 200


def test_breaks_are_found():
    """A sample of breaks of all ways."""
    check_mutations(SAMPLE, first_seed=0)


@pytest.mark.slow
def test_all_breaks_are_found():
    """The full count of breaks."""
    check_mutations(FULL, first_seed=10**6)


def check_harmless(schedules: int, first_seed: int) -> None:
    """Assert that changes that keep the meaning keep the verdict."""
    for seed in range(first_seed, first_seed + schedules):
        scene = Scene(random_partial(seed))
        assert verify(scene.schedule) == (), f"seed {seed}"
        for way in HARMLESS:
            changed = way(scene, random.Random(seed))
            assert verify(changed) == (), f"seed {seed}: {way.__name__}"


def test_harmless_changes_pass():
    """Summands exchanged, rows and slots renumbered, later starts, no claim."""
    check_harmless(15, first_seed=0)


@pytest.mark.slow
def test_all_harmless_changes_pass():
    """The full count of harmless changes."""
    check_harmless(300, first_seed=10**6)


@pytest.mark.parametrize("seed", range(12))
def test_replays_are_correct_and_no_later(seed):
    """A schedule with pauses is replayed to one that is correct again and ends no later."""
    quick = random_partial(seed)
    sends = quick.sends.copy()
    # Each transfer moves as a whole, so that passages through switches stay as they are.
    begin = np.full(int(sends["transfer"].max()) + 1, 2**62)
    np.minimum.at(begin, sends["transfer"], sends["start_ps"])
    sends["start_ps"] += begin[sends["transfer"]] + 7
    slow = replace(quick, sends=sends)
    assert verify(slow) == ()
    replay = simulate(slow)
    assert verify(replay.schedule) == ()
    assert replay.finish_ps <= quick.finish_ps
    assert simulate(replay.schedule).finish_ps == replay.finish_ps
