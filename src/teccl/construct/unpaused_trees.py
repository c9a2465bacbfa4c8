"""Unpaused trees: ways along which data never waits and never meets itself.

Everything that follows from one send of a source begins the instant that it can: a GPU hands on
what arrives at once, over different links or, in one passage, through a switch that copies. Sums
are the same backwards: all that a GPU adds up arrives when it is sent on.
"""

from collections import defaultdict
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance
from teccl.construct.joining import joined_copies
from teccl.construct.params import NEVER, PASSES
from teccl.construct.plan import Plan, single_rows
from teccl.keywords import SwitchMode


class TreeHop(NamedTuple):
    """A route of a tree, and whether what it brings is added up."""

    route: int
    reduce: bool


class Ends(NamedTuple):
    """Where a chunk's trees begin and whom they serve: sums come in, copies go out, or both."""

    sums: bool
    copies: bool
    roots: tuple[int, ...]
    members: frozenset[int]


class FreeTime(NamedTuple):
    """Per resource, for how long it is held already; and for how long each may be held."""

    load: npt.NDArray[np.float64]
    cap: float


# From when till when a resource is held, and by whose send.
_Hold = tuple[int, int, int]
_Books = defaultdict[int, list[_Hold]]


def ends_of(instance: Instance, chunk: int) -> Ends | None:
    """Return the ends of a chunk; None if no single tree serves it."""
    table = instance.problem.chunks
    sources, destinations = table.sources(chunk).tolist(), table.destinations(chunk).tolist()
    members = frozenset({*sources, *destinations})
    if not table.reduce[chunk]:
        return Ends(False, True, tuple(sources), members) if len(sources) == 1 else None
    if len(destinations) == 1:
        return Ends(True, False, tuple(destinations), members)
    return Ends(True, True, tuple(sources), members) if set(sources) == members else None


class UnpausedTrees:
    """Grows trees of soonest arrivals over routes that are not too full."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        routes = instance.routes
        self.joins = instance.problem.switch is SwitchMode.COPY
        self.sides = routes.src.tolist(), routes.dst.tolist()
        self.length = routes.length.tolist()
        columns = (routes.res.tolist(), routes.res_offset.tolist(), routes.res_hold.tolist())
        entries = list(zip(*columns, strict=True))
        self.entries = [entries[a:b] for a, b in pairwise(routes.res_start.tolist())]
        # The shortest of several routes counts as the way back.
        self.between = dict[tuple[int, int], int]()
        for route in np.argsort(-routes.length, kind="stable").tolist():
            self.between[self.sides[0][route], self.sides[1][route]] = route
        self.fans: tuple[dict[int, list[int]], ...] = defaultdict(list), defaultdict(list)
        for fan, nodes in zip(self.fans, self.sides, strict=True):
            for route, node in enumerate(nodes):
                fan[node].append(route)

    def least_hold(self, ends: Ends) -> float:
        """Return for how long some link must be held to serve all members at least."""
        fan = self.fans[1 if ends.copies else 0]
        holds = [
            min((max(hold for *_, hold in self.entries[r]) for r in fan[node]), default=0)
            for node in ends.members - set(ends.roots[:1])
        ]
        return float(max(holds, default=1))

    def grow(self, ends: Ends, root: int, free: FreeTime) -> list[TreeHop] | None:
        """Return a tree and add what it holds to the load; None if it does not reach everybody.

        Parameters
        ----------
        ends
            Whom it serves.
        root
            Where it begins, or ends if it carries sums.
        free
            What is held already, and how much may be.
        """
        first = set[int]()
        for _ in range(PASSES):
            tree = _Tree(self, ends, root, free, first)
            left = tree.span()
            if not left:
                break
            # Whoever was not reached goes first the next time.
            first |= left
        else:
            return None
        kept = tree.kept()
        free.load[:] = tree.load
        found = list[TreeHop]()
        if ends.sums:
            found += [TreeHop(self.back_route(ends, r), True) for r in kept]
        if ends.copies:
            found += [TreeHop(r, False) for r in reversed(kept)]
        return found

    def lap(self, tree: list[TreeHop]) -> list[TreeHop] | None:
        """Return a tree in and out whose sums go the longest way out, too, and then to the root.

        Where GPUs have one port, sums against the stream of copies would meet it everywhere at
        another time; with the stream they are a lap ahead of it wherever they are.
        """
        source, target = self.sides
        out = {target[hop.route]: hop.route for hop in tree if not hop.reduce}
        depth = dict[int, int]()
        for hop in tree:
            if not hop.reduce:
                depth[target[hop.route]] = depth.get(source[hop.route], 0) + 1
        root = next(source[hop.route] for hop in tree if not hop.reduce)
        ends_at = [node for node in depth if (node, root) in self.between]
        if not ends_at:
            return None
        node = max(ends_at, key=lambda node: depth[node])
        main, closing = list[int](), self.between[node, root]
        while node in out:
            main.append(out[node])
            node = source[out[node]]
        along = set(main)
        sums = [hop for hop in tree if hop.reduce and self._forth(hop.route, out) not in along]
        # The first hop of the longest way carries nothing: the root adds its own in the end.
        sums += [TreeHop(route, True) for route in (*reversed(main[:-1]), closing)]
        return sums + [hop for hop in tree if not hop.reduce]

    def _forth(self, back: int, out: dict[int, int]) -> int:
        return out.get(self.sides[0][back], -1)

    def back_route(self, ends: Ends, route: int) -> int:
        """Return the route by which sums come where copies go by another."""
        if not ends.copies:
            return route
        return self.between.get((self.sides[1][route], self.sides[0][route]), -1)


class _Tree:
    """One tree while it grows, with what it holds at which times after its begin.

    Sums are timed backwards from their end.
    """

    def __init__(
        self, trees: UnpausedTrees, ends: Ends, root: int, free: FreeTime, first: set[int]
    ) -> None:
        self._trees, self._wants, self._root, self._first = trees, ends, root, first
        self.load, self._cap = free.load.copy(), free.cap
        self._out, self._in = _Books(list), _Books(list)
        # When copies arrive, and how long before the end sums are sent.
        self._time = {root: (0, 0)}
        self._hops = list[tuple[int, int]]()

    def span(self) -> set[int]:
        """Grow until everybody is reached; returns who is not."""
        left = set(self._wants.members) - {self._root}
        heap = list[tuple[bool, int, int]]()
        self._push(heap, self._root)
        near, far = self._sides()
        while heap and left:
            *_, route = heappop(heap)
            node = far[route]
            if node in self._time or not self._books(route, near[route]):
                continue
            self._hops.append((node, route))
            left.discard(node)
            self._push(heap, node)
        return left

    def kept(self) -> list[int]:
        """Return routes to those who want something and on the way to them, leaves first."""
        near, _ = self._sides()
        needed, kept = set(self._wants.members), list[int]()
        for node, route in reversed(self._hops):
            if node in needed:
                needed.add(near[route])
                kept.append(route)
        return kept

    def _sides(self) -> tuple[list[int], list[int]]:
        source, target = self._trees.sides
        return (source, target) if self._wants.copies else (target, source)

    def _push(self, heap: list[tuple[bool, int, int]], node: int) -> None:
        fan = self._trees.fans[0 if self._wants.copies else 1]
        since, (_, far) = max(self._time[node]), self._sides()
        for route in fan[node]:
            is_late = far[route] not in self._first
            heappush(heap, (is_late, since + self._trees.length[route], route))

    def _books(self, route: int, near: int) -> bool:
        """Hold what a route takes, and the way back; whether all of that is free."""
        trees, wants = self._trees, self._wants
        out, into = self._time[near]
        found = list[tuple[_Books, int, _Hold]]()
        if wants.copies:
            for r, offset, hold in trees.entries[route]:
                own = (out + offset, out + offset + hold, near)
                if not (trees.joins and own in self._out[r]):
                    found.append((self._out, r, own))
        back = trees.back_route(wants, route) if wants.sums else route
        if back < 0:
            return False
        if wants.sums:
            end = into + trees.length[back]
            found += [
                (self._in, r, (end - offset - hold, end - offset, near))
                for r, offset, hold in trees.entries[back]
            ]
        added = defaultdict[int, int](int)
        for books, r, (begin, end, _) in found:
            added[r] += end - begin
            if any(begin < b and a < end for a, b, _ in books[r]):
                return False
        if any(self.load[r] + more > self._cap for r, more in added.items()):
            return False
        for books, r, held in found:
            books[r].append(held)
            self.load[r] += held[1] - held[0]
        lengths = trees.length[route], trees.length[back]
        self._time[self._sides()[1][route]] = (out + lengths[0], into + lengths[1])
        return True


def plan_of_trees(instance: Instance, trees: list[list[TreeHop]]) -> Plan:
    """Return a plan without times in which each of the first chunks takes one of the trees."""
    chunk = np.repeat(np.arange(len(trees)), [len(tree) for tree in trees])
    route = np.array([hop.route for tree in trees for hop in tree], dtype=np.int64)
    reduce = np.array([hop.reduce for tree in trees for hop in tree], dtype=bool)
    plan = joined_copies(instance, Plan(rows=single_rows(chunk, route), reduce=reduce))
    order = np.lexsort((plan.rows[:, 4], plan.rows[:, 3]))
    rows = plan.rows[order]
    rows[:, 3] = np.unique(rows[:, 3], return_inverse=True)[1]
    return Plan(rows=rows, reduce=reduce[order], finish=NEVER)
