"""Laid trees: they connect everyone, and no link is much fuller than it has to be."""

import numpy as np
import pytest
from tests.construct.small import make_instance

from teccl.bounds import summarise
from teccl.construct.instance import Instance
from teccl.construct.multicast import Tables
from teccl.construct.plan import Plan
from teccl.construct.trees import laid_plan
from teccl.demand import Demand
from teccl.demand.demand_files import demand_from_dict


def laid(made: Instance, target: float, **options: float) -> Plan:
    """Return laid trees; there must be some."""
    plan = laid_plan(made, Tables.build(made), target=target, **options)
    assert plan is not None
    return plan


def reached(made: Instance, plan: Plan, chunk: int, *, reduce: bool) -> set[int]:
    """Return the nodes that a chunk's rows of one kind join to its ends."""
    kind = np.zeros(len(plan.rows), dtype=bool) if plan.reduce is None else plan.reduce
    rows = plan.rows[(plan.rows[:, 0] == chunk) & (kind == reduce)]
    ways = {(int(made.routes.src[r]), int(made.routes.dst[r])) for r in rows[:, 1]}
    if reduce:
        ways = {(b, a) for a, b in ways}
    inner = {b for _, b in ways}
    found = {a for a, _ in ways} - inner
    assert len(found) == 1
    while True:
        more = {b for a, b in ways if a in found} - found
        if not more:
            return found
        found |= more


@pytest.mark.parametrize(
    ("spec", "collective", "kinds"),
    [
        ("dgx1", "allgather", (False,)),
        ("dgx1", "reducescatter", (True,)),
        ("dgx1", "allreduce", (True, False)),
        ("ndv2:chassis=2", "allreduce", (True, False)),
        ("dgx2", "broadcast", (False,)),
    ],
)
def test_trees_connect_all_goals(spec: str, collective: str, kinds: tuple[bool, ...]) -> None:
    """From the root of each tree every GPU is reached, once, in both directions of an AllReduce."""
    made = make_instance(spec, collective)
    plan = laid(made, 1e6)
    gpus = set(made.problem.topology.gpus.tolist())
    for chunk in range(len(made.problem.chunks)):
        for reduce in kinds:
            assert reached(made, plan, chunk, reduce=reduce) == gpus
    assert len(plan.rows) == len(kinds) * len(made.problem.chunks) * (len(gpus) - 1)


def loads(made: Instance, plan: Plan) -> np.ndarray:
    """Return how long each resource is held."""
    routes, total = made.routes, np.zeros(made.num_resources)
    for route in plan.rows[:, 1]:
        entries = slice(routes.res_start[route], routes.res_start[route + 1])
        total[routes.res[entries]] += routes.res_hold[entries] / made.slots[routes.res[entries]]
    return total


def test_loads_come_near_the_bound() -> None:
    """The fullest link of an AllReduce on a DGX-1 carries little more than the bound says."""
    made = make_instance("dgx1:alpha=0", "allreduce", "64MB", num_chunks=16)
    target = float(summarise(made.problem).physical_ps)
    assert loads(made, laid(made, target)).max() <= 1.05 * target


def test_prices_spread_the_load() -> None:
    """Without prices trees are short and pile up; with prices the fullest link is less full."""
    made = make_instance("dgx1:alpha=0", "allreduce", "64MB", num_chunks=4)
    target = float(summarise(made.problem).physical_ps)
    priced = loads(made, laid(made, target)).max()
    blind = loads(made, laid(made, target, steepness=0.0, length_weight=1.0)).max()
    assert priced < blind


def test_paths_take_all_routes() -> None:
    """An AllToAll on a ring uses both directions evenly."""
    made = make_instance("ring:gpus=4,alpha=0", "alltoall", num_chunks=2)
    target = float(summarise(made.problem).physical_ps)
    assert loads(made, laid(made, target)).max() <= 1.01 * target


def test_outsiders_are_no_leaves() -> None:
    """A GPU that wants nothing may relay, but no branch ends at it."""
    made = make_instance("line:gpus=4", Demand.collective("broadcast", size="1KB", ranks=(0, 2)))
    plan = laid(made, 1e6)
    ends = {(int(made.routes.src[r]), int(made.routes.dst[r])) for r in plan.rows[:, 1]}
    assert ends == {(0, 1), (1, 2)}


def test_same_seed_same_trees() -> None:
    """Trees depend on nothing but their seed."""
    made = make_instance("dgx1", "allreduce", num_chunks=4)
    target = float(summarise(made.problem).physical_ps)
    first, again, other = (laid(made, target, seed=seed).rows for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_out_of_reach_is_no_plan() -> None:
    """Where a destination cannot be reached nothing is laid."""
    link = {"src": 0, "dst": 1, "bandwidth": "1GB/s"}
    demand = demand_from_dict({"collective": "allgather", "size": "1KB"})
    made = make_instance({"nodes": 2, "links": [link]}, demand)
    assert laid_plan(made, Tables.build(made), target=1e6) is None


def test_tenants_of_different_kinds_share_the_load() -> None:
    """Trees of sums and paths of an exchange are laid around each other, not each for itself."""
    both = [
        {"collective": "allreduce", "size": "16MB"},
        {"collective": "allgather", "size": "16MB"},
    ]
    made = make_instance("dgx1:alpha=0", demand_from_dict({"collectives": both}), num_chunks=8)
    target = float(summarise(made.problem).physical_ps)
    assert loads(made, laid(made, target, length_weight=1e-6)).max() < 1.2 * target


def test_branches_leave_what_leads_to_a_goal_already() -> None:
    """A broadcast to some GPUs sends its data once over a way that several of them need."""
    some = {"collective": "broadcast", "size": "16MB", "ranks": "0-3,5-14"}
    made = make_instance("hypercube:dimension=4,alpha=0", demand_from_dict(some), num_chunks=8)
    target = float(summarise(made.problem).physical_ps)
    assert loads(made, laid(made, target, length_weight=1e-6)).max() < 1.5 * target
