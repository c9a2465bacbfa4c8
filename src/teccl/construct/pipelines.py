"""Pipelines: pieces that follow each other at equal distances along a few trees that never wait.

Where GPUs may keep little, a tree is one piece that holds its links at fixed times after its begin
(see `rigid_trees`). Many such pieces of many trees fit beside each other only by chance; along the
same trees, begun a period apart, they never meet if the trees of one period do not.
"""

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from teccl.construct.baselines._rings import widest_ring
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.joining import joined_copies
from teccl.construct.params import NEVER, PYTHON_UNITS
from teccl.construct.plan import Plan
from teccl.construct.rigid_trees import RigidPieces, may_be_rigid, meets_itself, rigid_pieces
from teccl.construct.tasks import tasks_of_plan
from teccl.keywords import SwitchMode

# Trees in a period, each number tried by itself; how much fuller links may be at every try.
_TREES = (1, 2, 4)
_STEP = 1.1
# Tries until links may be some hundred times as full as they had to be.
_TRIES = 50


class _Hop(NamedTuple):
    """A route of a tree, and whether what it brings is added up."""

    route: int
    reduce: bool


def may_be_piped(instance: Instance) -> bool:
    """Whether all pieces have the same ends and size, and buffers are limited."""
    table = instance.problem.chunks
    alike = (table.source_set, table.destination_set, table.tenant)
    return (
        may_be_rigid(instance)
        and bool(instance.slots.max() == 1)
        and all(len(np.unique(column)) == 1 for column in alike)
        and len(table.sizes) == 1
        and not instance.ready.any()
        and _kind(instance) is not None
    )


def _kind(instance: Instance) -> tuple[bool, bool] | None:
    """Whether contributions come in, and whether copies go out; None for neither tree."""
    table = instance.problem.chunks
    sources, destinations = table.sources(0), table.destinations(0)
    if not table.reduce[0]:
        return (False, True) if len(sources) == 1 else None
    if len(destinations) == 1:
        return True, False
    return (True, True) if set(sources) == set(destinations) else None


def pipeline_work(instance: Instance) -> int:
    """Units of growing trees, and of making all transfers."""
    return PYTHON_UNITS * (len(instance.routes) + len(instance.problem.chunks))


def pipelined_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans along rings and along trees, of one and more trees for each period."""
    best = NEVER
    for count in _TREES:
        share = max(goal.target, 1) * count / len(instance.problem.chunks)
        for trees in (_rings(instance, count), _forest(instance, count, share, goal)):
            if trees is None or count > len(instance.problem.chunks):
                continue
            goal.begin(PYTHON_UNITS * sum(map(len, trees)))
            plan = _repeated(instance, trees)
            if plan is not None and plan.finish < best:
                best = plan.finish
                yield plan
        if not goal.is_worth(best, pipeline_work(instance)):
            return


def _rings(instance: Instance, count: int) -> list[list[_Hop]] | None:
    """Return trees along a ring: sums once around it, then copies, each from another GPU on."""
    sums, copies = _kind(instance) or (False, False)
    topology = instance.problem.topology
    members = tuple(sorted(instance.problem.chunks.sources(0).tolist()))
    if not (sums and copies) or len(members) < 3:
        return None
    ring = widest_ring(topology, members)
    if ring is None:
        return None
    routes = instance.routes
    nodes, n = ring.nodes, len(ring.nodes)
    ways = [
        np.flatnonzero((routes.src == a) & (routes.dst == b)).tolist()
        for a, b in zip(nodes, (*nodes[1:], nodes[0]), strict=True)
    ]
    if not all(ways):
        return None
    trees = []
    for tree in range(count):
        along = [ways[(tree * n // count + k) % n] for k in range(2 * n - 2)]
        # Ways that lead to the same GPU are taken in turns.
        hops = [each[tree % len(each)] for each in along]
        trees.append([_Hop(route, k < n - 1) for k, route in enumerate(hops)])
    return trees


def _forest(instance: Instance, count: int, share: float, goal: Goal) -> list[list[_Hop]] | None:
    """Grow so many trees that together hold no link for much longer than need be.

    Parameters
    ----------
    instance
        Whose routes they take.
    count
        Number of trees.
    share
        Time for which a link may be held in a period at least.
    goal
        What pays for it.
    """
    growth = _Growth(instance)
    cap = max(share, growth.least)
    for _ in range(_TRIES):
        goal.begin(PYTHON_UNITS * len(instance.routes))
        load = np.zeros(instance.num_resources)
        trees = []
        for tree in range(count):
            hops = growth.tree(load, cap, tree)
            if hops is None:
                break
            trees.append(hops)
        if len(trees) == count:
            return trees
        cap *= _STEP
    return None


class _Growth:
    """Grows trees of soonest arrivals over routes that are not too full."""

    def __init__(self, instance: Instance) -> None:
        self.sums, self.copies = _kind(instance) or (False, False)
        self.instance = instance
        routes, table = instance.routes, instance.problem.chunks
        self.members = {*table.sources(0).tolist(), *table.destinations(0).tolist()}
        self.joins = instance.problem.switch is SwitchMode.COPY
        # A tree grows from its root; sums come back over the routes the other way.
        self.near, self.far = (
            (routes.src, routes.dst) if self.copies else (routes.dst, routes.src)
        )
        pairs = dict[tuple[int, int], int]()
        for route in np.argsort(-routes.length, kind="stable").tolist():
            pairs[int(routes.src[route]), int(routes.dst[route])] = route
        self.back = [
            pairs.get((int(b), int(a)), -1) for a, b in zip(routes.src, routes.dst, strict=True)
        ]
        self.fan: dict[int, list[int]] = {}
        for route, node in enumerate(self.near.tolist()):
            if not (self.sums and self.copies) or self.back[route] >= 0:
                self.fan.setdefault(node, []).append(route)
        self.entries = [
            dict(zip(routes.res[a:b].tolist(), routes.res_hold[a:b].tolist(), strict=True))
            for a, b in zip(routes.res_start[:-1], routes.res_start[1:], strict=True)
        ]
        self.ways = routes.ways()
        widest = dict[int, int]()
        for route, node in enumerate(self.far.tolist()):
            hold = max(self.entries[route].values())
            widest[node] = min(widest.get(node, NEVER), hold)
        self.least = float(max((widest.get(node, 0) for node in self.members), default=1))
        self.roots = self._roots()

    def _roots(self) -> list[int]:
        """Return where trees may begin, the GPU that is nearest to all others first."""
        table = self.instance.problem.chunks
        if not self.sums or not self.copies:
            return [int((table.destinations(0) if self.sums else table.sources(0))[0])]
        from teccl.construct.timetable import all_distances

        routes = self.instance.routes
        num = self.instance.problem.topology.num_nodes
        distance = all_distances(routes.src, routes.dst, routes.length, num, NEVER)
        members = np.array(sorted(self.members))
        reach = distance[np.ix_(members, members)].max(axis=1)
        return members[np.argsort(reach, kind="stable")].tolist()

    def tree(self, load: IntArray, cap: float, number: int) -> list[_Hop] | None:
        """Return the tree's hops and add what they hold to the load; None if some are not reached."""
        root = self.roots[number % len(self.roots)]
        reached, inward, outward = {root: -1}, set[int](), set[int]()
        heap = list[tuple[int, int, int]]()
        self._push(heap, root, 0)
        left = self.members - {root}
        hops: list[tuple[int, int]] = []
        while heap and left:
            arrival, _, route = heappop(heap)
            node = int(self.far[route])
            if node in reached:
                continue
            new = self._taken(route, inward, outward)
            if new is None or any(load[r] + hold > cap for r, hold in new.items()):
                continue
            for r, hold in new.items():
                load[r] += hold
            back = self.back[route] if self.sums and self.copies else route
            if self.sums:
                inward |= self.entries[back].keys()
            if self.copies:
                outward |= self.entries[route].keys()
            reached[node] = route
            hops.append((node, route))
            left.discard(node)
            self._push(heap, node, arrival)
        if left:
            return None
        return self._hops(hops)

    def _push(self, heap: list[tuple[int, int, int]], node: int, since: int) -> None:
        for route in self.fan.get(node, []):
            heappush(heap, (since + int(self.instance.routes.length[route]), len(heap), route))

    def _taken(self, route: int, inward: set[int], outward: set[int]) -> dict[int, int] | None:
        """Return what a route and the way back hold; None if the tree holds some of it already."""
        taken = dict[int, int]()
        if self.copies:
            own = self.entries[route]
            if outward & own.keys():
                first = self.ways[route][0]
                if not self.joins or first not in outward:
                    return None
                # The copy parts from one that was sent before in some switch.
                own = {r: hold for r, hold in own.items() if r not in outward}
            taken.update(own)
        if self.sums:
            back = self.back[route] if self.copies else route
            if inward & self.entries[back].keys():
                return None
            for r, hold in self.entries[back].items():
                taken[r] = taken.get(r, 0) + hold
        return taken

    def _hops(self, hops: list[tuple[int, int]]) -> list[_Hop]:
        """Return contributions from the leaves on, then copies, without ways to whom wants nothing."""
        needed, kept = set(self.members), list[int]()
        for node, route in reversed(hops):
            if node in needed:
                needed.add(int(self.near[route]))
                kept.append(route)
        found = list[_Hop]()
        if self.sums:
            found += [_Hop(self.back[r] if self.copies else r, True) for r in kept]
        if self.copies:
            found += [_Hop(r, False) for r in reversed(kept)]
        return found


def _repeated(instance: Instance, trees: list[list[_Hop]]) -> Plan | None:
    """Return a plan in which all pieces take these trees in turns, or None if they meet."""
    rows = np.array(
        [(k, hop.route, 0, 0, 0) for k, tree in enumerate(trees) for hop in tree], dtype=np.int64
    )
    rows[:, 3] = np.arange(len(rows))
    reduce = np.array([hop.reduce for tree in trees for hop in tree], dtype=bool)
    plan = joined_copies(instance, Plan(rows=rows, reduce=reduce))
    # Rows of a passage follow each other.
    order = np.lexsort((plan.rows[:, 4], plan.rows[:, 3]))
    rows, reduce = plan.rows[order], reduce[order]
    rows[:, 3] = np.unique(rows[:, 3], return_inverse=True)[1]
    plan = Plan(rows=rows, reduce=reduce)
    pieces = rigid_pieces(instance, tasks_of_plan(instance, plan))
    if pieces is None or meets_itself(pieces):
        return None
    found = _phases(pieces, instance.num_resources)
    if found is None:
        return None
    period, phase = found
    start = (phase[pieces.piece] + pieces.offset)[rows[:, 3]]
    return _laid_out(instance, replace(plan, rows=rows), start, period, len(trees))


def _laid_out(instance: Instance, plan: Plan, start: IntArray, period: int, count: int) -> Plan:
    """Return the plan of all pieces, period after period."""
    chunks = len(instance.problem.chunks)
    rounds = -(-chunks // count)
    rows = np.tile(plan.rows, (rounds, 1))
    turn = np.repeat(np.arange(rounds), len(plan.rows))
    rows[:, 0] += turn * count
    rows[:, 2] = np.tile(start, rounds) + turn * period
    rows[:, 3] += turn * (int(plan.rows[:, 3].max()) + 1)
    is_asked = rows[:, 0] < chunks
    assert plan.reduce is not None
    reduce = np.tile(plan.reduce, rounds)[is_asked]
    rows = rows[is_asked]
    rows[:, 3] = np.unique(rows[:, 3], return_inverse=True)[1]
    rows[:, 2] -= rows[:, 2].min()
    finish = int((rows[:, 2] + instance.routes.length[rows[:, 1]]).max())
    return Plan(rows=rows, reduce=reduce, finish=finish, exact=True)


def _phases(pieces: RigidPieces, num_resources: int) -> tuple[int, IntArray] | None:
    """Return a period, and begins of all pieces within it with which none ever meets another."""
    tasks = pieces.tasks
    load = np.bincount(tasks.res, tasks.res_hold, minlength=num_resources)
    period = int(load.max())
    for _ in range(_TRIES):
        period = _apart(pieces, period)
        phase = _placed(pieces, period)
        if phase is not None:
            return period, phase
        period = int(period * (1 + (_STEP - 1) / 4)) + 1
    return None


def _apart(pieces: RigidPieces, period: int) -> int:
    """Return the least period, from a given one on, with which no piece meets the next of its kind."""
    tasks = pieces.tasks
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    order = np.lexsort((tasks.res_offset, tasks.res, owner))
    kind = np.stack([owner[order], tasks.res[order]])
    begin, hold = tasks.res_offset[order], tasks.res_hold[order]
    pairs = list[tuple[int, int, int]]()
    for apart in range(1, len(order)):
        same = np.flatnonzero((kind[:, apart:] == kind[:, :-apart]).all(axis=0))
        if not len(same):
            break
        columns = begin[same + apart] - begin[same], hold[same], hold[same + apart]
        pairs += zip(*(column.tolist() for column in columns), strict=True)
    before = 0
    while period > before:
        before = period
        for pair in pairs:
            period = _free_period(*pair, period)
    return period


def _free_period(distance: int, first: int, second: int, period: int) -> int:
    """Return the least period, from a given one on, with which two holds of a link never meet.

    The second begins so long after the first. If images of the first begin `times` before it, it
    begins when the last of them is over and ends before the next one begins.
    """
    for times in range(distance // period, 0, -1):
        least = max(period, -(-(distance + second) // (times + 1)))
        if least * times <= distance - first:
            return least
    return max(period, distance + second)


def _placed(pieces: RigidPieces, period: int) -> IntArray | None:
    """Return begins of pieces, each the first at which it meets none before it, or None."""
    tasks, booked = pieces.tasks, dict[int, list[tuple[int, int]]]()
    phase = np.zeros(len(tasks), dtype=np.int64)
    for piece in np.argsort(-np.diff(tasks.res_start), kind="stable").tolist():
        own = slice(tasks.res_start[piece], tasks.res_start[piece + 1])
        columns = (tasks.res[own], tasks.res_offset[own], tasks.res_hold[own])
        entries = list(zip(*(column.tolist() for column in columns), strict=True))
        begin = _first_phase(entries, booked, period)
        if begin is None:
            return None
        phase[piece] = begin
        for r, offset, hold in entries:
            booked.setdefault(r, []).append(((begin + offset) % period, hold))
    return phase


def _first_phase(
    entries: list[tuple[int, int, int]], booked: dict[int, list[tuple[int, int]]], period: int
) -> int | None:
    """Return the first begin within a period at which nothing is held twice."""
    begin, agreed, place = 0, 0, 0
    while agreed < len(entries):
        r, offset, hold = entries[place]
        wait = 0
        for since, busy in booked.get(r, []):
            behind = (begin + offset - since) % period
            if behind < busy:
                wait = max(wait, busy - behind)
            elif period - behind < hold:
                wait = max(wait, period - behind + busy)
        begin += wait
        if begin >= period:
            return None
        agreed = 1 if wait else agreed + 1
        place = (place + 1) % len(entries)
    return begin
