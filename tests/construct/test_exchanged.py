"""Collectives as exchanges in which everything goes straight to where it is wanted."""

from fractions import Fraction

import pytest

import teccl
from teccl.construct.constructions import construct
from teccl.construct.exchanged import delivered, exchanges, is_staged
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.realise import realise
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem, SwitchMode
from teccl.replay import simulate
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.shifts import Shifts
from teccl.synthesis.strategies.unicasts import Unicasts
from teccl.topology import Topology
from teccl.verification import verify

DRAGONFLY = "dragonfly:groups=3,routers=2,gpus=2"


def asked(spec: str, collective: str, *, ranks=None, **options) -> Problem:
    demand = Demand.collective(collective, size="12KB", ranks=ranks)
    return Problem(topology=Topology.parse(spec), demand=demand, **options)


def schedules(problem: Problem):
    """One schedule of the problem from each of its exchanges."""
    for exchange in exchanges(problem):
        parted = Problem(
            topology=exchange.topology, demand=exchange.demand, num_chunks=problem.num_chunks
        )
        instance = Instance.build(parted)
        plan = next(construct(instance, Goal(target=1)))
        yield delivered(problem, realise(instance, plan, method="construct"))


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize(
    "collective", ["allgather", "reducescatter", "broadcast", "reduce", "alltoall"]
)
def test_exchanges_are_schedules_of_the_collective(collective, chunks):
    """Every delivery arrives, whatever it is of, and contributions are counted once."""
    problem = asked(DRAGONFLY, collective, num_chunks=chunks)
    found = list(schedules(problem))
    assert len(found) == (2 if collective in ("allgather", "broadcast") else 1)
    assert not any(verify(schedule) for schedule in found)


@pytest.mark.parametrize("collective", ["allgather", "reduce"])
def test_exchanges_serve_some_of_the_ranks(collective):
    """Whoever takes no part is sent nothing."""
    problem = asked(DRAGONFLY, collective, ranks=(0, 1, 2, 5, 8, 9))
    for schedule in schedules(problem):
        assert not verify(schedule)
        ends = {problem.topology.link_dst[link] for link in schedule.sends["link"]}
        absent = [gpu for rank, gpu in enumerate(problem.topology.gpus) if rank in (3, 4, 6, 7)]
        assert not ends & set(absent)


def test_gpus_of_a_leaf_receive_together_where_switches_copy():
    """A chunk comes to each leaf once, which leaves sources with far less to send."""
    alone, together = schedules(asked(DRAGONFLY, "allgather"))
    topology = alone.problem.topology
    first = topology.link_src[alone.sends["link"]] == topology.gpus[0]
    assert first.sum() == 11
    first = topology.link_src[together.sends["link"]] == topology.gpus[0]
    assert first.sum() == 6
    assert simulate(together).finish_ps < simulate(alone).finish_ps


@pytest.mark.parametrize(
    "options", [{"switch": SwitchMode.NO_COPY}, {"copy": False}], ids=["no-copy", "without copies"]
)
def test_nothing_is_received_together_where_nothing_is_copied(options):
    """Without copies there is one exchange only."""
    assert len(exchanges(asked(DRAGONFLY, "allgather", **options))) == 1


@pytest.mark.parametrize(
    ("spec", "served"),
    [(DRAGONFLY, True), ("fat-tree:k=4", True), ("star:gpus=4", False), ("ring:gpus=4", False)],
)
def test_ways_through_several_switches_are_served(spec, served):
    """Behind one switch, and without any, trees lose nothing."""
    assert is_staged(asked(spec, "allgather")) is served


def test_a_search_keeps_the_exchange_that_is_better_than_trees():
    """The strategy offers what its exchanges give."""
    result = teccl.solve(DRAGONFLY, "allgather", size="12KB", effort="quick")
    assert result.verified
    assert result.physical_gap < 0.05


def test_one_allreduce_is_left_to_its_own_schemes():
    """Its contributions going to everyone is one shot, which knows partial sums."""
    request = Request(
        topology=Topology.parse(DRAGONFLY), demand=Demand.collective("allreduce", size="1KB")
    )
    search = Search(request=request, started=0.0)
    assert Unicasts(is_promising=True).refusal(search.features) is not None


def test_sums_that_several_want_are_left_to_trees():
    """Whoever contributes and receives would send on what has come to it."""
    chunk = ExplicitChunk((0, 3, 6), (0, 3), reduce=True, size=Fraction(1000))
    tenant = Tenant(collective=Collective.EXPLICIT, chunks=(chunk,))
    request = Request(topology=Topology.parse(DRAGONFLY), demand=Demand(tenants=(tenant,)))
    search = Search(request=request, started=0.0)
    assert Unicasts(is_promising=True).refusal(search.features) is not None
    assert teccl.solve(DRAGONFLY, demand=request.demand, effort="quick").verified


def searching(spec: str, collective: str, size: str) -> Search:
    """A search that has not begun."""
    demand = Demand.collective(collective, size=size)
    return Search(request=Request(topology=Topology.parse(spec), demand=demand), started=0.0)


@pytest.mark.parametrize("collective", ["alltoall", "allgather", "reducescatter"])
def test_shifts_through_a_fat_tree_come_near_the_bound(collective: str) -> None:
    """Rounds that move everybody alike keep all ports of a fat tree busy."""
    search = searching("fat-tree:k=4", collective, "64MB")
    request = search.request
    search.bound = search.prove(request.problem(1), narrow=False)
    assert Shifts().refusal(search.features) is None
    for _ in Shifts().attempts(search):
        pass
    best = search.incumbents.best
    assert best is not None
    assert not verify(best.schedule)
    assert best.finish_ps < 1.02 * search.target


def test_plans_of_shifts_are_read_on_the_ways_of_others() -> None:
    """Ways by receiver have other numbers than those of a plain instance, which has them too."""
    search = searching("two-tier:leaves=2,gpus=2,spines=2,oversubscription=1", "alltoall", "1MB")
    search.bound = search.prove(search.request.problem(1), narrow=False)
    next(Shifts().attempts(search))
    known = search.incumbents.get(1)
    assert known is not None
    plain = Instance.build(search.request.problem(1))
    plan = known.plan_for(plain)
    assert plan is not None
    assert known.instance is not None
    assert known.instance.routes.ways() != plain.routes.ways()
    sends = [
        sorted(simulate(schedule).schedule.sends[["chunk", "link", "start_ps"]].tolist())
        for schedule in (known.schedule, realise(plain, plan, method="construct"))
    ]
    assert sends[0] == sends[1]
    direct = [way for way in plain.routes.ways() if len(way) == 2]
    assert known.plan_for(Instance.build(plain.problem, ways=direct)) is None


@pytest.mark.parametrize(
    ("topology", "collective"),
    [("dgx2:chassis=1", "alltoall"), ("fat-tree:k=4", "broadcast"), ("ring:gpus=4", "alltoall")],
)
def test_shifts_are_for_exchanges_of_all_through_stages(topology: str, collective: str) -> None:
    """One switch, direct links and single roots have other strategies."""
    search = searching(topology, collective, "1MB")
    assert Shifts().refusal(search.features) is not None


def test_a_matrix_with_one_cell_is_an_exchange_too() -> None:
    """All blocks of an AllToAllv may have one size, where few have any bytes."""
    bytes_ = tuple(tuple(Fraction(12000 * (a == 0 and b == 3)) for b in range(4)) for a in range(4))
    tenant = Tenant(name="few", collective=Collective.ALLTOALLV, matrix=bytes_, size=Fraction(0))
    topology = Topology.parse("two-tier:leaves=2,gpus=2,spines=2")
    problem = Problem(topology=topology, demand=Demand(tenants=(tenant,)))
    for schedule in schedules(problem):
        verify(schedule, strict=True)
    result = teccl.solve(topology, demand=Demand(tenants=(tenant,)), effort="quick")
    assert result.verified
