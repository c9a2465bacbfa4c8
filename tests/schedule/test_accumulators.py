"""Accumulators spelled out as partial sums mean the same."""

from dataclasses import replace

import numpy as np
import pytest
from tests.verification.generate import random_schedule
from tests.verification.partial import one_shot

import teccl
from teccl.errors import ScheduleError
from teccl.schedule.accumulators import spelled_out
from teccl.topology import Topology


def is_merged(transfer: np.ndarray, is_switch: np.ndarray, src: np.ndarray) -> bool:
    """Whether some transfer leaves several GPUs."""
    return np.bincount(transfer[~is_switch[src]]).max() > 1


def test_random_sums_stay_correct():
    """Merges, replacements, late ranks and tenants give partial sums that are judged correct."""
    judged = 0
    for seed in range(150):
        schedule = replace(random_schedule(seed), grid=None)
        if not schedule.problem.has_reductions or schedule.problem.buffer is not None:
            continue
        roots = (schedule.sends["transfer"], schedule.problem.topology.is_switch)
        if is_merged(*roots, schedule.problem.topology.link_src[schedule.sends["link"]]):
            with pytest.raises(ScheduleError, match="added up in a switch"):
                spelled_out(schedule)
            continue
        spelled = spelled_out(schedule)
        assert teccl.verify(spelled) == (), f"seed {seed}"
        assert spelled.finish_ps == schedule.finish_ps
        judged += 1
    assert judged > 20


@pytest.mark.parametrize("method", ["ring", "recursive-doubling", "double-binary-tree"])
def test_baselines_stay_correct(method):
    """Two halves and exchanges have one row for each contribution and each addition."""
    schedule = teccl.solve(
        "fully-connected:gpus=4", "allreduce", size="1KB", method=method
    ).schedule
    spelled = spelled_out(schedule)
    assert teccl.verify(spelled) == ()
    assert np.count_nonzero(spelled.sums["result"]) == 4 * len(schedule.problem.chunks)


def test_what_is_apart_already_stays():
    """A schedule of partial sums only is returned as it is."""
    schedule = one_shot(Topology.parse("ring:gpus=4"), 1000)
    assert spelled_out(schedule) is schedule
