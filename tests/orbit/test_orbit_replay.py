"""Replaying orbits: the same order, never later, still correct, as replaying all images."""

import random
from dataclasses import replace

import numpy as np
from tests.orbit.drawing import draw_problem, draw_schedule

from teccl.orbit import expand, parse_fabric, solve_orbit, verify_orbit
from teccl.orbit.ranks import rank_program
from teccl.orbit.replay import replayed
from teccl.replay import simulate


def test_the_replay_is_that_of_all_images():
    """Finish times equal those of the general replay of the expanded schedule."""
    for seed in range(30):
        rng = random.Random(seed)
        schedule = draw_schedule(rng, draw_problem(rng))
        if verify_orbit(schedule):
            continue
        slow = schedule.sends.copy()
        slow["start_ps"] += 12345
        late = replace(schedule, sends=slow, claimed_finish_ps=None)
        replay = replayed(late)
        assert verify_orbit(replay) == ()
        assert replay.finish_ps == simulate(expand(late)).finish_ps
        assert replay.finish_ps <= schedule.finish_ps


def test_programs_of_all_ranks_fit_together():
    """Every send of a rank is an arrival at its peer, and all demand arrives."""
    for seed in range(12):
        rng = random.Random(seed)
        schedule = draw_schedule(rng, draw_problem(rng))
        ranks = range(schedule.fabric.num_gpus)
        programs = {rank: list(rank_program(schedule, rank)) for rank in ranks}
        sent = sorted(
            (rank, s.peer, s.owner, s.target or 0, s.piece)
            for rank in ranks
            for s in programs[rank]
            if s.action == "send"
        )
        come = sorted(
            (s.peer, rank, s.owner, s.target or 0, s.piece)
            for rank in ranks
            for s in programs[rank]
            if s.action != "send"
        )
        assert sent == come
        for steps in programs.values():
            assert np.all(np.diff([step.time_ps for step in steps]) >= 0)


def test_a_rank_of_a_cluster_gets_every_chunk():
    """The program of one GPU of an AllGather has one arrival for each other rank."""
    schedule = solve_orbit(parse_fabric("dgx-h100:chassis=4"), "allgather", size="1MB", chunks=1)
    steps = list(rank_program(schedule.schedule, 13))
    assert sorted(s.owner for s in steps if s.action == "copy") == [r for r in range(32) if r != 13]
