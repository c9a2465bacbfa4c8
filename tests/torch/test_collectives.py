"""Every collective and call form gives what gloo gives, whatever schedule runs it."""

import random
from pathlib import Path

import pytest
from tests.torch.ranks import ROOT, needs_torch, run_ranks
from tests.torch.schedules import COLLECTIVES, has_root, one_shot, random_schedule, solved
from tests.torch.schedules import write_plan as write

pytestmark = needs_torch()
CASES = ROOT / "tests" / "torch" / "programs" / "cases.py"
# Sizes at which plans change from one schedule to the next.
EDGES = (0, 300, 5_000, 70_000, 2**25)


def write_plans(folder: Path, gpus: int, seed: int) -> None:
    """Plans for all collectives: one-shot, ring or the best, and random ones on random networks."""
    rng = random.Random(seed)
    for collective in COLLECTIVES:
        # Two roots have plans, the others are left to the inner group.
        roots = rng.sample(range(gpus), 2) if has_root(collective) else [None]
        for root in roots:
            made = [
                one_shot(gpus, collective, root=root),
                solved(f"fully-connected:gpus={gpus}", collective, root=root),
                solved(f"ring:gpus={gpus}", collective, root=root),
                random_schedule(rng, gpus, collective, root),
            ]
            rng.shuffle(made)
            ranges = zip(EDGES, EDGES[1:], made, strict=False)
            write(folder / "plans" / f"{collective}-{root}", [(a, b, s) for a, b, s in ranges])


def counts(ranks) -> dict[str, int]:
    """What the first rank counted."""
    lines = [line.split() for line in ranks[0].out.splitlines()]
    return {line[0]: int(line[1]) for line in lines if line[0] in ("schedule", "inner")}


def test_a_sample_of_calls_equals_gloo(tmp_path):
    """Random calls on three ranks, by messages and by rounds matched in order alone."""
    write_plans(tmp_path, 3, seed=1)
    found = counts(run_ranks(CASES, 3, tmp_path, "0", "16"))
    assert found["schedule"] > 8
    assert found["inner"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
def test_many_calls_equal_gloo(gpus, tmp_path):
    """A hundred and twenty-five random calls for each number of ranks, by messages and rounds."""
    write_plans(tmp_path, gpus, seed=gpus)
    ranks = run_ranks(CASES, gpus, tmp_path, str(1000 * gpus), str(1000 * gpus + 125))
    assert counts(ranks)["schedule"] > 100
