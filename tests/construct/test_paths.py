"""Laid paths: each leads from its source to its end, and no link is fuller than it has to be."""

from fractions import Fraction

import numpy as np
import pytest
from tests.construct.small import make_instance

import teccl
from teccl.construct import paths
from teccl.construct.corridors import corridors_of, single_corridors
from teccl.construct.instance import Instance
from teccl.construct.multicast import Tables
from teccl.construct.paths import Paths, laid_paths
from teccl.construct.plan import Plan
from teccl.construct.symmetry import find_group, symmetric_paths
from teccl.construct.trees import laid_plan
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant


def exchange(made: Instance) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the deliveries of an AllToAll."""
    table = made.problem.chunks
    firsts = np.array([nodes[0] for nodes in table.sets])
    return np.arange(len(table)), firsts[table.source_set], firsts[table.destination_set]


def fullest(made: Instance, found: Paths) -> float:
    """Return the time for which the resource is held that is held longest."""
    routes = made.routes
    held = np.zeros(made.num_resources)
    for route in found.route:
        of_route = slice(routes.res_start[route], routes.res_start[route + 1])
        np.add.at(held, routes.res[of_route], routes.res_hold[of_route])
    return float((held / made.slots).max())


@pytest.mark.parametrize(
    "spec", ["dgx1", "ndv2:chassis=2", "dgx2", "fat-tree:k=4", "dragonfly", "dgx-h100:chassis=2"]
)
@pytest.mark.parametrize("work", [paths.PASS_WORK, 1])
def test_paths_lead_from_source_to_end(spec, work, monkeypatch):
    """Whether laid one by one or all of a source at once, routes follow one another."""
    monkeypatch.setattr(paths, "PASS_WORK", work)
    made = make_instance(spec, "alltoall")
    chunk, source, end = exchange(made)
    found = laid_paths(made, (chunk, source, end), target=1e6)
    assert found is not None
    src, dst = made.routes.src[found.route], made.routes.dst[found.route]
    first, last = found.start[:-1], found.start[1:] - 1
    assert np.array_equal(src[first], source)
    assert np.array_equal(dst[last], end)
    inner = np.setdiff1d(np.arange(1, len(src)), first)
    assert np.array_equal(src[inner], dst[inner - 1])


def test_paths_avoid_full_links():
    """On a ring of four the two ways around are shared: 2 of 12 chunks on each link twice."""
    made = make_instance("ring:gpus=4,alpha=0", "alltoall", num_chunks=2)
    hold = int(made.hold[0])
    deliveries = exchange(made)
    short = laid_paths(made, deliveries, target=1e9, steepness=0.0)
    shared = laid_paths(made, deliveries, target=4.0 * hold)
    assert short is not None
    assert shared is not None
    assert fullest(made, shared) == 4 * hold < fullest(made, short)


def test_batches_keep_the_balance():
    """Paths of a source that are laid four at a time load links nearly as evenly as one by one."""
    made = make_instance("random:gpus=16", "alltoall", num_chunks=16)
    deliveries = exchange(made)
    # Shortest paths load the busiest link with 352 chunks.
    target = 240.0 * int(made.hold[0])
    alone = laid_paths(made, deliveries, target=target)
    corridors = corridors_of(made, inward=False)
    assert alone is not None
    assert corridors is not None
    looks = len(corridors.near_node) + len(corridors.far_node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "PASS_WORK", len(deliveries[0]) * looks // 4)
        together = laid_paths(made, deliveries, target=target)
    assert together is not None
    assert not np.array_equal(together.route, alone.route)
    assert fullest(made, alone) <= 260 * int(made.hold[0])
    assert fullest(made, together) <= 1.02 * fullest(made, alone)


def test_one_corridor_each_gives_the_same_costs(monkeypatch):
    """Where routes are no corridors, each is one of its own, and paths are as short."""
    made = make_instance("dgx-h100:chassis=2", "alltoall")
    deliveries = exchange(made)
    joined = laid_paths(made, deliveries, target=1e9, steepness=0.0)
    monkeypatch.setattr(paths, "corridors_of", lambda *_, **__: None)
    single = laid_paths(made, deliveries, target=1e9, steepness=0.0)
    assert joined is not None
    assert single is not None
    lengths = [
        np.add.reduceat(made.routes.length[found.route], found.start[:-1])
        for found in (joined, single)
    ]
    assert np.array_equal(*lengths)
    assert len(single_corridors(made).route) == len(made.routes)


def test_what_cannot_be_reached_has_no_path():
    """There is no path against the direction of the only link."""
    one_way = {
        "nodes": [{"name": "a"}, {"name": "b"}],
        "links": [{"src": "a", "dst": "b", "bandwidth": "1GB/s", "alpha": 0}],
    }
    made = make_instance(one_way, "alltoall")
    assert laid_paths(made, exchange(made), target=1e6) is None


def test_nothing_to_deliver_takes_no_path():
    """A chunk that is where it is wanted leaves nothing to lay, with whatever limits."""
    made = make_instance("ring:gpus=3", "alltoall")
    none = np.zeros(0, dtype=np.int64)
    found = laid_paths(made, (none, none, none), target=1e6)
    assert found is not None
    assert len(found.route) == 0
    demand = Demand(
        tenants=(
            Tenant(
                collective=Collective.EXPLICIT,
                size=Fraction(1000),
                chunks=(ExplicitChunk((0, 1), (1,)),),
            ),
        )
    )
    assert teccl.solve("dgx1", demand=demand, copy=False).num_sends == 0


def test_quotients_are_balanced_too():
    """Paths laid for one source of a torus load its links as evenly as those laid for all."""
    made = make_instance("torus:dims=6x6,alpha=0", "alltoall")
    group = find_group(made.problem.topology)
    assert group is not None
    # Each chunk is three hops away on average, and there are four links a GPU.
    target = 35 * 3.1 / 4 * int(made.hold[0])

    def lay(small: Instance) -> Plan | None:
        return laid_plan(small, Tables.build(small), target=target, length_weight=1e-6)

    plan = symmetric_paths(made, group, lay)
    assert plan is not None
    held = np.bincount(made.routes.res[made.routes.res_start[plan.rows[:, 1]]])
    assert held.max() <= 32


def test_parallel_ways_are_spread_over_all_spines():
    """Of sixteen equal ways four are kept, so that every link of a layer is on as many."""
    made = make_instance("fat-tree:k=8", "alltoall")
    topology = made.problem.topology
    ways = np.bincount(made.routes.links, minlength=topology.num_links)
    names = [topology.link_name(e) for e in range(topology.num_links)]
    to_core = [e for e, name in enumerate(names) if "core" in name]
    to_edge = [e for e, name in enumerate(names) if "edge" in name and "aggregation" in name]
    assert len(set(ways[to_core])) == 1
    assert len(set(ways[to_edge])) == 1


def test_large_exchanges_go_without_relays(monkeypatch):
    """Where each delivery has a way of its own no GPU forwards, and no link is overloaded."""
    made = make_instance("fat-tree:k=4", "alltoall")
    target = 15.0 * float(made.hold.max())
    monkeypatch.setattr(paths, "PASS_WORK", 1)
    found = laid_paths(made, exchange(made), target=target)
    assert found is not None
    assert (np.diff(found.start) == 1).all()
    assert fullest(made, found) <= 1.01 * target
