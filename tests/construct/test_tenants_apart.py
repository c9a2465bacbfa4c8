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
