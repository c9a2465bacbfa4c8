"""Ring order: every GPU sends to the next one only, by all the ways that lead there.

Neighbours in the ring are near each other: all of a leaf, then all of its pod, so that few
transfers cross the narrow tiers of a fabric. Nothing waits in a switch, so transfers by many
different ways get into each other's way there; along a ring each link has one kind of them.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl.construct.baselines._rings import widest_ring
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.plan import Plan
from teccl.construct.route_first import routed_plans
from teccl.problem import Problem
from teccl.topology.clusters import partings


def cluster_ring_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans along the ring in which GPUs of a cluster are next to each other."""
    yield from _plans_along(instance, goal, _by_clusters(instance.problem))


def widest_ring_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans along the ring whose slowest hop is as fast as possible, unless it is the same.

    Where links differ much in their rates, clusters may be joined by slow ones.
    """
    known = _by_clusters(instance.problem)
    ring = widest_ring(instance.problem.topology, tuple(np.sort(known).tolist()))
    if ring is not None and ring.nodes != tuple(known.tolist()):
        yield from _plans_along(instance, goal, np.array(ring.nodes))


def _plans_along(instance: Instance, goal: Goal, ring: IntArray) -> Iterator[Plan]:
    """Yield plans whose trees are parts of a ring; nothing where it has a hop without a route."""
    kept = _ways_along(instance, ring)
    if kept is None:
        return
    ways = instance.routes.ways()
    along = Instance.build(instance.problem, instance.grid, ways=[ways[way] for way in kept])
    for plan in routed_plans(along, goal):
        rows = plan.rows.copy()
        rows[:, 1] = kept[rows[:, 1]]
        yield replace(plan, rows=rows)


def _by_clusters(problem: Problem) -> IntArray:
    """Return the GPUs that take part, those of a cluster next to each other."""
    topology = problem.topology
    ranks = {rank for t in problem.demand.tenants for rank in t.members(topology.num_gpus)}
    gpus = topology.gpus[sorted(ranks)]
    labels = sorted(partings(topology), key=lambda label: -len(np.unique(label[gpus])))
    order = np.lexsort([np.arange(len(gpus)), *(label[gpus] for label in labels)])
    return gpus[order]


def _ways_along(instance: Instance, ring: IntArray) -> IntArray | None:
    """Return the routes from each GPU of a ring to the next; None where one has no such route."""
    after = np.full(instance.problem.topology.num_nodes, -1)
    after[ring] = np.roll(ring, -1)
    kept = np.flatnonzero(after[instance.routes.src] == instance.routes.dst)
    is_whole = len(ring) > 2 and np.isin(ring, instance.routes.src[kept]).all()
    return kept if is_whole else None
