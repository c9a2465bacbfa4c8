"""A model of SCCL: all sends of a step end before any of the next begins.

SCCL (Cai et al., PPoPP 2021) describes an algorithm by steps, rounds and chunks: in a step every
link carries at most as many chunks as its share of the bandwidth allows, all of them held by their
senders when the step begins. It finds steps with an SMT solver; here each step is a greedy
matching of chunks to links, rarest chunk or longest way to go first. Switches copy nothing, as in
SCCL, and reductions are copies turned round in time.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray
from teccl.demand import Collective, Demand
from teccl.errors import MethodError
from teccl.keywords import SwitchMode
from teccl.problem import Problem
from teccl.schedule import BoundSummary, Schedule, send_array
from teccl.studies.rivals import Made
from teccl.units import PICOSECONDS, display_time

# Columns: chunk, link, start, transfer, and picoseconds from the start to the arrival.
Rows = npt.NDArray[np.int64]
_COPIES = {
    Collective.REDUCESCATTER: Collective.ALLGATHER,
    Collective.REDUCE: Collective.BROADCAST,
}


def build(problem: Problem, bound: BoundSummary, seed: int) -> Made:  # noqa: ARG001
    """Schedule a problem in synchronous steps."""
    kind = problem.demand.tenants[0].collective
    if kind is Collective.ALLREDUCE:
        first, count = _reduced(_as(problem, Collective.REDUCESCATTER))
        second, more = _copied(_as(problem, Collective.ALLGATHER))
        second[:, 2] += int((first[:, 2] + first[:, 4]).max())
        second[:, 3] += int(first[:, 3].max()) + 1
        rows, steps = np.concatenate([first, second]), count + more
        reduce = np.arange(len(rows)) < len(first)
    elif kind in _COPIES:
        rows, steps = _reduced(problem)
        reduce = np.ones(len(rows), dtype=bool)
    elif problem.has_reductions:
        raise MethodError(f"sccl-like does not serve {kind} demands with reductions; use auto")
    else:
        rows, steps = _copied(problem)
        reduce = np.zeros(len(rows), dtype=bool)
    sends = send_array(rows[:, 0], rows[:, 1], rows[:, 2], transfer=rows[:, 3], reduce=reduce)
    schedule = Schedule(problem=problem, sends=sends, method="sccl-like")
    own = display_time(schedule.finish_ps / PICOSECONDS)
    return Made(schedule=schedule, note=f"{own} with a barrier after each of {steps} steps")


def _as(problem: Problem, collective: Collective) -> Problem:
    tenant = replace(problem.demand.tenants[0], collective=collective)
    return replace(problem, demand=Demand(tenants=(tenant,)))


def _reduced(problem: Problem) -> tuple[Rows, int]:
    """Make a reduction: its copy on reversed links, turned round in time."""
    copy = _as(problem, _COPIES[problem.demand.tenants[0].collective])
    rows, steps = _copied(replace(copy, topology=problem.topology.transposed()))
    finish = int((rows[:, 2] + rows[:, 4]).max())
    rows[:, 2] = finish - rows[:, 2] - rows[:, 4]
    return rows, steps


def _copied(problem: Problem) -> tuple[Rows, int]:
    """Deliver copies step by step."""
    steps = _Steps(problem)
    rows: list[tuple[int, ...]] = []
    now = count = 0
    for matched in steps.matchings():
        ends = [now]
        used: dict[int, int] = {}
        for transfer, (route, chunk) in enumerate(matched, start=len(rows)):
            for row in steps.hops(route, chunk, now, used):
                rows.append((*row[:3], transfer, row[3]))
                ends.append(row[2] + row[3])
        now, count = max(ends), count + 1
    table = np.array(rows, dtype=np.int64)
    # Hops of one passage share a number, which must not be another passage's.
    table[:, 3] = np.unique(table[:, 3], return_inverse=True)[1]
    return table, count


class _Steps:
    """Who holds what, and which sends a step consists of."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.instance = Instance.build(problem)
        routes = self.instance.routes
        self.ways = routes.ways()
        self.src, self.dst = routes.src.tolist(), routes.dst.tolist()
        self.hyper = problem.switch is SwitchMode.HYPER_EDGE
        table, nodes = problem.chunks, problem.topology.num_nodes
        self.holds = np.zeros((nodes, len(table)), dtype=bool)
        self.wants = np.zeros((nodes, len(table)), dtype=bool)
        for chunk in range(len(table)):
            self.holds[table.sources(chunk), chunk] = True
            self.wants[table.destinations(chunk), chunk] = True
        self.distance = _hops(nodes, routes.src, routes.dst)
        self.room = self._room()
        self.resources = [
            routes.res[a:b].tolist()
            for a, b in zip(routes.res_start[:-1], routes.res_start[1:], strict=True)
        ]

    def _room(self) -> IntArray:
        """Return how often a step may use each resource: faster links in proportion."""
        room = np.ones(self.instance.num_resources, dtype=np.int64)
        hold = self.instance.hold
        direct = [way[0] for way in self.ways if len(way) == 1]
        if direct:
            room[direct] = np.maximum(1, int(hold[direct].max()) // np.maximum(1, hold[direct]))
        return room

    def matchings(self) -> Iterator[list[tuple[int, int]]]:
        """Yield the routes and chunks of each step until everyone has what it wants."""
        turn = 0
        while (self.wants & ~self.holds).any():
            matched = self._match(turn)
            assert matched, "reachability is checked before"
            for route, chunk in matched:
                self.holds[self.dst[route], chunk] = True
            yield matched
            turn += 1

    def _match(self, turn: int) -> list[tuple[int, int]]:
        left = self.room.copy()
        held = self.holds.copy()
        coming = self.holds.copy()
        value = self._values()
        useful = self._useful()
        matched = []
        waiting = list(range(len(self.ways)))
        # Links take turns to choose first, and choose one chunk at a time.
        waiting = waiting[turn % len(waiting) :] + waiting[: turn % len(waiting)]
        while waiting:
            again = []
            for route in waiting:
                if any(left[r] < 1 for r in self.resources[route]):
                    continue
                src, dst = self.src[route], self.dst[route]
                open_chunks = held[src] & ~coming[dst] & useful[dst]
                if not open_chunks.any():
                    continue
                chunk = int(np.where(open_chunks, value[:, dst], -1).argmax())
                coming[dst, chunk] = True
                left[self.resources[route]] -= 1
                matched.append((route, chunk))
                again.append(route)
            waiting = again
        return matched

    def _values(self) -> IntArray:
        """Return how much it matters that a chunk moves: few holders, or a long way to go."""
        nodes, chunks = self.holds.shape
        rare = nodes - self.holds.sum(axis=0)
        far = np.zeros(chunks, dtype=np.int64)
        missing = self.wants & ~self.holds
        for node in np.flatnonzero(missing.any(axis=1)):
            reach = np.where(self.holds, self.distance[:, [node]], nodes).min(axis=0)
            far = np.maximum(far, np.where(missing[node], reach, 0))
        order = np.arange(chunks)[:, None] - np.arange(nodes)[None, :]
        return ((far * (nodes + 1) + rare) * chunks)[:, None] + order % chunks

    def _useful(self) -> npt.NDArray[np.bool_]:
        """Return who should get what: who wants it, and who is nearer to one who does."""
        missing = self.wants & ~self.holds
        useful = missing.copy()
        for node in np.flatnonzero(missing.any(axis=1)):
            reach = np.where(self.holds, self.distance[:, [node]], len(self.holds)).min(axis=0)
            nearer = self.distance[:, [node]] < reach[None, :]
            useful |= nearer & missing[node][None, :]
        return useful & ~self.holds

    def hops(
        self, route: int, chunk: int, now: int, used: dict[int, int]
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield chunk, link, start and length of every hop; chunks on a link follow each other."""
        way, routes = self.ways[route], self.instance.routes
        first = int(routes.link_start[route])
        hold = self.instance.hold
        wait = used.get(way[0], 0) * int(hold[way[0]]) if len(way) == 1 else 0
        used[way[0]] = used.get(way[0], 0) + 1
        circuit = self.hyper or self.problem.transit.value == "cut-through"
        slowest = max(int(hold[e]) for e in way)
        for position, link in enumerate(way):
            offset = int(routes.link_offset[first + position])
            length = (slowest if circuit else int(hold[link])) + int(self.instance.latency[link])
            if self.hyper and len(way) > 1:
                length = int(routes.length[route])
            yield chunk, link, now + wait + offset, length


def _hops(nodes: int, src: IntArray, dst: IntArray) -> IntArray:
    """Return the fewest routes from each node to each other; `nodes` where there is no way."""
    distance = np.full((nodes, nodes), nodes, dtype=np.int64)
    np.fill_diagonal(distance, 0)
    distance[src, dst] = np.minimum(distance[src, dst], 1)
    for middle in range(nodes):
        distance = np.minimum(distance, distance[:, [middle]] + distance[[middle], :])
    return np.minimum(distance, nodes)
