"""Tenants planned apart: in turn, side by side, and the important ones first."""

from fractions import Fraction

import pytest
from tests.construct.small import make_instance

from teccl.construct.goal import Goal
from teccl.construct.realise import realise
from teccl.construct.tenants_apart import alone, apart_plans
from teccl.demand import Collective, Demand, Tenant
from teccl.synthesis import solve
from teccl.verification import verify

PAIRS = [("allgather", "alltoall"), ("allreduce", "broadcast"), ("reducescatter", "alltoall")]


def together(first: str, second: str, weights: tuple[int, int] = (1, 1)) -> Demand:
    """Return two collectives at once, whose pieces do not divide each other's."""
    names = {"name": "left"}, {"name": "right"}
    tenants = (
        Tenant(collective=Collective(each), size=Fraction(size), priority=Fraction(weight), **name)
        for each, size, weight, name in zip(
            (first, second), (1_000_000, 700_000), weights, names, strict=True
        )
    )
    return Demand(tenants=tuple(tenants))


@pytest.mark.parametrize("pair", PAIRS)
def test_plans_of_tenants_are_correct_together(pair: tuple[str, str]) -> None:
    """Whatever the order of the tenants, nothing overlaps and everybody is served."""
    instance = make_instance("dgx1", together(*pair), num_chunks=2)
    plans = list(apart_plans(instance, Goal(target=1, allowance=1)))
    assert plans
    for plan in plans:
        assert not verify(realise(instance, plan, method="construct"))


@pytest.mark.parametrize("idle", [0, 1, 2])
def test_a_tenant_that_wants_nothing_from_others_is_left_out(idle: int) -> None:
    """What a GPU sends to itself makes no chunks; the other tenants are planned apart still."""
    left, right = together("allgather", "broadcast").tenants
    matrix = ((Fraction(9), Fraction(0)), (Fraction(0), Fraction(0)))
    own = Tenant(name="own", collective=Collective.ALLTOALLV, matrix=matrix, ranks=(0, 1))
    tenants = [left, right]
    tenants.insert(idle, own)
    instance = make_instance("dgx1", Demand(tenants=tuple(tenants)), num_chunks=2)
    plans = list(apart_plans(instance, Goal(target=1, allowance=1)))
    assert plans
    for plan in plans:
        assert not verify(realise(instance, plan, method="construct"))


@pytest.mark.parametrize("number", [0, 1])
def test_a_tenant_alone_has_the_same_chunks(number: int) -> None:
    """Sizes, sources and destinations of a tenant's chunks are those that it has in company."""
    whole = make_instance("dgx1", together("allgather", "alltoall"), num_chunks=3).problem.chunks
    part = alone(
        make_instance("dgx1", together("allgather", "alltoall"), num_chunks=3), number
    ).problem.chunks
    own = [k for k in range(len(whole)) if whole.tenant[k] == number]
    assert len(own) == len(part)
    for k, m in enumerate(own):
        assert part.size(k) == whole.size(m)
        assert part.sources(k).tolist() == whole.sources(m).tolist()
        assert part.destinations(k).tolist() == whole.destinations(m).tolist()


def test_a_weight_of_ten_changes_the_order() -> None:
    """Two broadcasts over one link end one after the other; the important one is first."""
    finishes = []
    for weights in ((10, 1), (1, 10)):
        tenants = tuple(
            Tenant(
                collective=Collective.BROADCAST,
                size=Fraction(10**6),
                name=name,
                priority=Fraction(weight),
            )
            for name, weight in zip(("left", "right"), weights, strict=True)
        )
        result = solve("ring:gpus=2", demand=Demand(tenants=tenants), chunks=4, effort="quick")
        finishes.append(dict(result.tenants))
    assert finishes[0]["left"] < finishes[0]["right"]
    assert finishes[1]["left"] > finishes[1]["right"]


def test_a_search_serves_tenants_beside_one_that_wants_nothing() -> None:
    """The one that has all it wants takes no time, alone and in company."""
    matrix = ((Fraction(9), Fraction(0)), (Fraction(0), Fraction(0)))
    own = Tenant(name="own", collective=Collective.ALLTOALLV, matrix=matrix, ranks=(0, 1))
    other = Tenant(name="other", collective=Collective.ALLGATHER, size=Fraction(8000))
    result = solve("ring:gpus=4", demand=Demand(tenants=(own, other)))
    assert not verify(result.schedule)
    assert result.to_dict()["tenants"][0]["finish_time_s"] == 0
    assert result.tenant_bound_ps[0] == 0 < result.tenant_bound_ps[1]
