"""Rooted schemes: Reduces added up by owners and groups are correct, and reach the root sooner."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from tests.construct.networks import random_network

from teccl import Demand, Problem, Topology
from teccl.construct.goal import Goal
from teccl.construct.mixing import mixed
from teccl.construct.rooted import grouped_for, owned_for, straight
from teccl.construct.schemes import outlook, schemes
from teccl.construct.staged import Scheme, shallow_finish, staged_schedule
from teccl.reachability import find_unreachable
from teccl.replay import simulate
from teccl.verification import verify


def random_reduce(seed: int) -> Problem:
    """Return a small Reduce among some GPUs of a random network, some of them late."""
    rng = random.Random(seed)
    while True:
        topology = random_network(rng)
        gpus = topology.num_gpus
        ranks = sorted(rng.sample(range(gpus), rng.randrange(2, gpus + 1)))
        ready = {ranks[0]: "1us"} if rng.random() < 0.2 else None
        size, root = rng.choice([256, 4096, 65536]), rng.choice(ranks)
        demand = Demand.collective("reduce", size=size, ranks=ranks, root=root, ready=ready)
        problem = Problem(topology=topology, demand=demand, num_chunks=rng.choice([1, 3, 8]))
        if gpus <= 12 and not topology.has_profiles and find_unreachable(problem) is None:
            return problem


def judged(problem: Problem, scheme: Scheme) -> int | None:
    """Return when a scheme's schedule ends, which is correct as it is and replayed.

    None where an owner or a leader is out of others' reach.
    """
    schedule = staged_schedule(problem, scheme, Goal())
    if schedule is None:
        return None
    verify(schedule, strict=True)
    replayed = simulate(schedule)
    verify(replayed.schedule, strict=True)
    return replayed.finish_ps


def check_schemes(problem: Problem) -> None:
    """Make every scheme of a problem and judge it; what goes straight to the root always can be."""
    for number, scheme in enumerate(schemes(problem)):
        finish = judged(problem, scheme)
        assert number or finish is not None
        assert finish is None or finish >= outlook(problem, scheme).floor_ps


@pytest.mark.parametrize("seed", range(8))
def test_schemes_are_correct_on_random_networks(seed: int) -> None:
    """Whatever the network, members, pieces and late ranks, every scheme is a correct Reduce."""
    check_schemes(random_reduce(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 108))
def test_schemes_are_correct_on_more_random_networks(seed: int) -> None:
    """Whatever the network, members, pieces and late ranks, every scheme is a correct Reduce."""
    check_schemes(random_reduce(seed))


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_are_correct_on_random_networks(seed: int) -> None:
    """What comes straight to the root and what others add up first make one Reduce."""
    problem = random_reduce(seed)
    for one, other in pairwise(schemes(problem)):
        scheme = mixed(dict.fromkeys((one, other), Fraction(1, 2)))
        judged(replace(problem, num_chunks=len(scheme.shares)), scheme)


def test_without_owners_the_root_adds_up_its_own_group() -> None:
    """Of six GPUs in three groups the root's neighbour sends to the root, others to a leader."""
    at_once, *_ = grouped_for([0, 0, 1, 1, 2, 2], root=1)
    near, last = at_once.shares[0]
    assert near.holds == (False, True, True, False, True, False)
    assert last.holds == (False, True, False, False, False, False)


def test_owners_add_up_the_roots_group_too() -> None:
    """What comes to the root is then one sum of each piece, and nothing of its neighbour's own."""
    _, elsewhere, anywhere = grouped_for([0, 0, 1, 1, 2, 2], root=1)
    near, far, _ = elsewhere.shares[0]
    assert near.holds == (True, True, True, False, True, False)
    assert far.classes == (0, 1, 0, 0, 0, 0)
    owners = [
        [next(m for m, holds in enumerate(share[1].holds) if holds and m != 1) for share in shares]
        for shares in (elsewhere.shares, anywhere.shares)
    ]
    assert owners == [[2, 4, 3, 5], [0, 2, 4, 3, 5]]


def test_members_of_unequal_groups_own_once() -> None:
    """Who is alone leads in every turn and owns in one; several such own in different ones."""
    _, elsewhere, *_ = grouped_for([0, 1, 1, 1, 2, 3], root=0)
    owners = [
        next(m for m, holds in enumerate(far.holds) if holds and m)
        for _, far, _ in elsewhere.shares
    ]
    assert sorted(owners) == [1, 2, 3, 4, 5]
    leaders = [
        [m for m, holds in enumerate(near.holds) if holds and m] for near, *_ in elsewhere.shares
    ]
    assert all(owner in held for owner, held in zip(owners, leaders, strict=True))
    assert {owner: held[0] for owner, held in zip(owners, leaders, strict=True)} == {
        1: 1,
        2: 2,
        3: 3,
        4: 2,
        5: 3,
    }


def test_groups_of_two_parts_have_no_owner_between_them() -> None:
    """What the only other group has added up goes to the root at once."""
    assert [scheme.num_stages for scheme in grouped_for([0, 0, 1, 1], root=0)] == [2]


def test_gpus_that_hold_one_sum_need_no_table() -> None:
    """Around a switch everybody adds up what comes and sends it on once, as old files have it."""
    demand = Demand.collective("reduce", size="16KB")
    problem = Problem(topology=Topology.parse("star:gpus=5"), demand=demand, num_chunks=8)
    schedule = staged_schedule(problem, owned_for(5, 0), Goal())
    assert schedule is not None
    assert schedule.sums is None
    verify(schedule, strict=True)


def test_owners_save_what_one_port_takes() -> None:
    """Sixteen GPUs around a switch: the root takes in one buffer from owners, fifteen without."""
    demand = Demand.collective("reduce", size="1MB")
    problem = Problem(topology=Topology.parse("star:gpus=16"), demand=demand, num_chunks=60)
    owned, alone = (shallow_finish(problem, each(16, 0)) for each in (owned_for, straight))
    assert owned is not None
    assert alone is not None
    assert 5 * owned < alone
