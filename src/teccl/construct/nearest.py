"""Nearest sources: every GPU gets a chunk the shortest way from whoever holds it near by."""

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.plan import Plan, single_rows, with_starts
from teccl.construct.tabulation import FAR
from teccl.construct.tasks import finish_time, precedence, schedule_tasks, tasks_of_plan
from teccl.construct.timetable import all_distances


def nearest_plan(instance: Instance) -> Plan | None:
    """Return a plan of shortest ways, of equal ones those least used; None where there is none.

    Every chunk that is copied, whatever its sources and destinations, takes as few steps as there
    are to be taken. Passages are not joined in switches.
    """
    routes, table = instance.routes, instance.problem.chunks
    num = instance.problem.topology.num_nodes
    distance = all_distances(routes.src, routes.dst, routes.length, num, FAR)
    into: list[list[int]] = [[] for _ in range(num)]
    for route, node in enumerate(routes.dst.tolist()):
        into[node].append(route)
    ends = (routes.src.tolist(), routes.length.tolist())
    load = [0] * len(routes)
    found: list[tuple[int, int, int]] = []
    # Chunks of one kind have one table of distances.
    kinds: dict[int, IntArray] = {}
    for chunk, kind in enumerate(table.source_set.tolist()):
        if kind not in kinds:
            kinds[kind] = distance[table.sets[kind]].min(axis=0)
        legs = _legs(kinds[kind].tolist(), table.destinations(chunk).tolist(), into, ends, load)
        if legs is None:
            return None
        found += [(chunk, route, start) for route, start in legs]
    if not found:
        return None
    chunk, route, start = np.array(found, dtype=np.int64).T
    plan = Plan(rows=single_rows(chunk, route, start))
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    placed = schedule_tasks(instance, tasks, key=tasks.start, order=order)
    return with_starts(plan, placed, finish_time(tasks, placed))


def _legs(
    far: list[int],
    wanted: list[int],
    into: list[list[int]],
    ends: tuple[list[int], list[int]],
    load: list[int],
) -> list[tuple[int, int]] | None:
    """Return the routes of shortest ways to nodes, each with when it may start at the earliest."""
    src, length = ends
    needed = {node for node in wanted if far[node] > 0}
    legs = []
    while needed:
        node = max(needed, key=lambda each: (far[each], each))
        needed.discard(node)
        last = [route for route in into[node] if far[src[route]] + length[route] == far[node]]
        if not last or far[node] >= FAR:
            return None
        route = min(last, key=lambda each: (load[each], each))
        load[route] += 1
        legs.append((route, far[src[route]]))
        if far[src[route]] > 0:
            needed.add(src[route])
    return legs
