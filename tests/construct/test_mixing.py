"""Mixtures: shares of an AllReduce by different schemes are correct and keep links busy."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from tests.construct.test_staged import allreduce, random_allreduce

from teccl import Demand, Topology
from teccl.construct.goal import Goal
from teccl.construct.mixing import mixed
from teccl.construct.schemes import one_shot, owned, schemes
from teccl.construct.staged import shallow_finish, staged_schedule
from teccl.replay import simulate
from teccl.synthesis.features import Features
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.mixed import Mixed
from teccl.synthesis.strategies.staged import Staged
from teccl.verification import verify


@pytest.mark.parametrize(("part", "counts"), [("1/2", (4, 4)), ("1/3", (2, 4)), ("3/4", (9, 4))])
def test_schemes_have_their_parts_of_the_buffer(part: str, counts: tuple[int, int]) -> None:
    """Whole rounds of a scheme's shares, as few as come near the part asked for."""
    found = mixed({one_shot(4): Fraction(part), owned(4): 1 - Fraction(part)})
    alone = [len(set(share)) == 1 for share in found.shares]
    assert (alone.count(True), alone.count(False)) == counts
    assert found.num_stages == 2


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_are_correct_on_random_networks(seed: int) -> None:
    """Any two schemes make a correct AllReduce together, in one order of additions."""
    problem = random_allreduce(seed)
    known = [each for each in schemes(problem) if not each.meets]
    for pair in list(combinations(known, 2))[:: max(1, len(known) // 2)]:
        scheme = mixed(dict.fromkeys(pair, Fraction(1, 2)))
        cut = replace(problem, num_chunks=len(scheme.shares))
        schedule = staged_schedule(cut, scheme, Goal())
        if problem.topology.has_profiles and scheme.num_stages > 1:
            continue
        assert schedule is not None
        verify(schedule, strict=True)
        verify(simulate(schedule).schedule, strict=True)


def test_a_mixture_uses_ports_while_owners_wait() -> None:
    """Eight GPUs around a switch, 64 KB: half in one shot, half by owners beats either."""
    half = mixed(dict.fromkeys((one_shot(8), owned(8)), Fraction(1, 2)))
    problem = allreduce("dgx-h100", "64KB", pieces=48)
    together, *alone = (
        shallow_finish(problem, scheme) or 0 for scheme in (half, one_shot(8), owned(8))
    )
    assert 0 < 1.03 * together < min(alone)


def test_mixtures_choose_their_own_pieces() -> None:
    """Given chunks, and networks without shallow trees, are left to others."""
    request = Request(
        topology=Topology.parse("star:gpus=4"), demand=Demand.collective("allreduce", size=1000)
    )
    strategy = Mixed(is_promising=True)
    assert strategy.refusal(Features(request)) is None
    assert strategy.refusal(Features(replace(request, chunks=4))) is not None
    assert strategy.refusal(Features(replace(request, copy=False))) is not None


def test_mixtures_come_before_halves_where_links_wait() -> None:
    """Nine GPUs under three leaves, 32 KB: what is mixed ends sooner than any scheme alone."""
    request = Request(
        topology=Topology.parse("two-tier:leaves=3,gpus=3"),
        demand=Demand.collective("allreduce", size=32_000),
    )
    search = Search(request=request, started=0.0)
    search.bound = search.prove(request.problem(1), narrow=False)
    for _ in Staged(is_promising=True).attempts(search):
        continue
    alone = search.incumbents.fastest
    assert list(Mixed(is_promising=False).attempts(search)) == []
    assert search.incumbents.fastest == alone
    assert list(Mixed(is_promising=True).attempts(search)) != []
    assert search.incumbents.fastest < 0.95 * alone
