"""Hierarchy: chunks enter every group once, from their own, and spread inside it from there.

Groups are what the topology calls so: chassis, racks, pods. A chunk goes from its source straight
to one GPU of each other group, along its rail unless that is busier than others, and on from GPU to
GPU inside the group. That takes little time for each send, which is what counts for very many GPUs
without any symmetry.
"""

from collections import deque

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.plan import Plan, single_rows


def hierarchical_plan(instance: Instance) -> Plan | None:
    """Lay trees for chunks that all members want, by groups; starts are turns, not times.

    Turns are such that all members of a group, and all groups, turn to others at equal distances.
    None where members are in no groups or own unlike amounts, or where not all of a group, or not
    all groups, are joined directly.
    """
    table, routes = instance.problem.chunks, instance.routes
    goals = np.unique(table.destination_set)
    if len(goals) != 1 or table.reduce.any():
        return None
    sources = np.array([table.sources(k)[0] for k in range(len(table))])
    members = np.union1d(table.sets[goals[0]], sources)
    groups = _groups(instance, members)
    # Where few hold everything, all that leaves their groups would have to leave it many times.
    owned = np.bincount(sources, minlength=instance.problem.topology.num_nodes)[members]
    if groups is None or owned.min() < owned.max():
        return None
    inner, cross = _inner_trees(instance, groups), _crossings(instance, groups)
    if inner is None or cross is None:
        return None
    group_of = {node: number for number, nodes in enumerate(groups) for node in nodes}
    longest = 1 + max(len(tree) for tree in inner.values())
    loads = _Loads(instance, inner)
    laid = []
    for chunk, source in enumerate(sources.tolist()):
        own = group_of[source]
        found, turns = [inner[source]], [np.arange(1, 1 + len(inner[source]))]
        for distance in range(1, len(groups)):
            ways = cross[own, (own + distance) % len(groups)]
            route = loads.take(ways.get(source, []), ways[-1])
            tree = inner[int(routes.dst[route])]
            found += [np.array([route]), tree]
            turns.append(distance * longest + np.arange(1 + len(tree)))
        path = np.concatenate(found)
        laid.append((np.full(len(path), chunk), path, np.concatenate(turns)))
    columns = [np.concatenate(column) for column in zip(*laid, strict=True)]
    return Plan(rows=single_rows(*columns))


class _Loads:
    """How long crossings hold what they hold, and where they end, how long GPUs are busy then."""

    def __init__(self, instance: Instance, inner: dict[int, IntArray]) -> None:
        routes = instance.routes
        self.dst = routes.dst.tolist()
        self.start, self.res = routes.res_start.tolist(), routes.res.tolist()
        self.hold = (routes.res_hold / instance.slots[routes.res]).tolist()
        self.held = [0.0] * instance.num_resources
        self.fullest = 0.0
        first = [self.hold[i] for i in self.start[:-1]]
        self.busy = dict.fromkeys(inner, 0.0)
        self.spread = {
            root: sum(first[route] for route in tree.tolist() if routes.src[route] == root)
            for root, tree in inner.items()
        }

    def take(self, own: list[int], ways: list[int]) -> int:
        """Take an own route, or of all the one after which the fullest is least full.

        That is only looked for where the own ones would be fuller than any has been so far.
        """
        route = min(own, key=self._after, default=ways[0])
        if not own or self._after(route) > self.fullest:
            route = min([route, *ways], key=self._after)
        self.fullest = max(self.fullest, self._after(route))
        for i in range(self.start[route], self.start[route + 1]):
            self.held[self.res[i]] += self.hold[i]
        self.busy[self.dst[route]] += self.spread[self.dst[route]]
        return route

    def _after(self, route: int) -> float:
        places = range(self.start[route], self.start[route + 1])
        fullest = max(self.held[self.res[i]] + self.hold[i] for i in places)
        end = self.dst[route]
        return max(fullest, self.busy[end] + self.spread[end])


def _groups(instance: Instance, members: IntArray) -> list[list[int]] | None:
    """Members of every group; None unless there are several, one of them with several members."""
    found: dict[str | None, list[int]] = {}
    for member in members.tolist():
        found.setdefault(instance.problem.topology.nodes[member].group, []).append(member)
    if None in found or not 1 < len(found) < len(members):
        return None
    return list(found.values())


def _inner_trees(instance: Instance, groups: list[list[int]]) -> dict[int, IntArray] | None:
    """Routes of a tree of fewest hops from each member to the others of its group, by turns."""
    routes = instance.routes
    trees = {}
    for nodes in groups:
        place = {node: turn for turn, node in enumerate(nodes)}
        inside = np.flatnonzero(np.isin(routes.src, nodes) & np.isin(routes.dst, nodes))
        out: dict[int, list[tuple[int, int]]] = {node: [] for node in nodes}
        for route in inside.tolist():
            src, dst = int(routes.src[route]), int(routes.dst[route])
            out[src].append(((place[dst] - place[src]) % len(nodes), route))
        for root in nodes:
            found, seen, queue = [], {root}, deque([root])
            while queue:
                for _, route in sorted(out[queue.popleft()]):
                    node = int(routes.dst[route])
                    if node not in seen:
                        seen.add(node)
                        queue.append(node)
                        found.append(route)
            if len(seen) < len(nodes):
                return None
            trees[root] = np.array(found, dtype=np.int64)
    return trees


def _crossings(
    instance: Instance, groups: list[list[int]]
) -> dict[tuple[int, int], dict[int, list[int]]] | None:
    """For each two groups the routes from one to the other by where they begin; -1 lists all."""
    routes = instance.routes
    number = np.full(instance.problem.topology.num_nodes, -1)
    for index, nodes in enumerate(groups):
        number[nodes] = index
    src, dst = number[routes.src], number[routes.dst]
    found: dict[tuple[int, int], dict[int, list[int]]] = {}
    for route in np.flatnonzero((src >= 0) & (dst >= 0) & (src != dst)).tolist():
        ways = found.setdefault((int(src[route]), int(dst[route])), {})
        for key in (int(routes.src[route]), -1):
            ways.setdefault(key, []).append(route)
    return found if len(found) == len(groups) * (len(groups) - 1) else None
