"""Least times on links whose bandwidth changes: lengths depend on the start, hop by hop.

A later start never means an earlier arrival, so the least times exist as they do for constant
rates, and the same correction of labels finds them.
"""

import heapq
from collections import defaultdict

import numpy as np

from teccl._arrays import IntArray
from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.replay.bodies import CANNOT_KEEP, rank_of
from teccl.replay.crossings import Passages
from teccl.replay.relations import Relations
from teccl.replay.times import Times
from teccl.schedule.sends import SendArray
from teccl.schedule.timing import transmission_from

# Corrections per relation before the replay gives up; orders in practice need one to three.
_PATIENCE = 200


class _Hops:
    """Times of all hops as functions of their transfers' bases."""

    def __init__(
        self, rows: SendArray, problem: Problem, passages: Passages, original: Times
    ) -> None:
        topology, table = problem.topology, problem.chunks
        size = table.size_index[rows["chunk"]]
        self._overhead = topology.overhead_ps[rows["link"]].tolist()
        self._static = problem.hold_ps[rows["link"], size].tolist()
        self._alpha = topology.alpha_ps[rows["link"]].tolist()
        self._size = [table.sizes[i] for i in size.tolist()]
        steps = {
            i: topology.rate_steps(topology.links[i])
            for i in np.unique(rows["link"]).tolist()
            if topology.links[i].profile
        }
        self._steps = [steps.get(link) for link in rows["link"].tolist()]
        # A hop that leaves no passage finds the -1 that is put behind the entries.
        parents = np.append(passages.entry, -1)[passages.leaves]
        self._parent: list[int] = parents.tolist()
        self._rows: list[list[int]] = [[] for _ in passages.root]
        # Sends are in the order of their starts, so a hop stands behind those that lead to it.
        for row, body in enumerate(passages.index.tolist()):
            self._rows[body].append(row)
        # Hops that merge would have to arrive at one picosecond at rates that change: such a
        # transfer stays where the schedule has it.
        self._pinned = (passages.num_roots > 1).tolist()
        self.body: list[int] = passages.index.tolist()
        self.start = original.start.tolist()
        self.end = [0] * len(rows)
        self.arrival = [0] * len(rows)
        for body in range(len(self._rows)):
            self.place(body, 0)

    def place(self, body: int, base: int) -> None:
        """Let a transfer begin at a base; its hops follow."""
        for row in self._rows[body]:
            if not self._pinned[body]:
                parent = self._parent[row]
                self.start[row] = base if parent < 0 else self.arrival[parent]
            start, steps = self.start[row], self._steps[row]
            held = self._static[row]
            if steps is not None:
                overhead = self._overhead[row]
                held = transmission_from(steps, self._size[row], start, overhead_ps=overhead)
            self.end[row] = start + held
            self.arrival[row] = start + held + self._alpha[row]

    def moment(self, number: int) -> int:
        """Time of a moment, numbered as in `relations`."""
        which, row = divmod(number, len(self.start))
        return (self.start, self.end, self.arrival)[which][row]

    def raise_to(self, number: int, time: int) -> None:
        """Move a transfer to the earliest base at which a moment is no earlier than a time."""
        row = number % len(self.start)
        body = self.body[row]
        if self._pinned[body]:
            raise ScheduleError(CANNOT_KEEP)
        # No moment of a transfer is before its base, so `time` itself is always late enough.
        low, high = self.start[self._rows[body][0]] + 1, time
        while low < high:
            middle = (low + high) // 2
            self.place(body, middle)
            low, high = (low, middle) if self.moment(number) >= time else (middle + 1, high)
        self.place(body, low)


def least_profiled_starts(
    rows: SendArray,
    problem: Problem,
    passages: Passages,
    original: Times,
    relations: Relations,
) -> IntArray | None:
    """Earliest starts of all sends on links with profiles, None where that takes too long.

    Takes and raises the same as `bodies.least_starts`.
    """
    hops = _Hops(rows, problem, passages, original)
    for row in np.flatnonzero(relations.not_before > 0).tolist():
        if hops.start[row] < relations.not_before[row]:
            hops.raise_to(row, int(relations.not_before[row]))
    board = _Board(hops, len(passages.root), len(relations.gates))
    leads = _leads(board, relations)
    rank = rank_of(passages, original, relations.gates)
    position = np.empty(len(rank), dtype=np.int64)
    position[rank] = np.arange(len(rank))
    place, nodes = position.tolist(), rank.tolist()
    heap, queued = list(range(len(nodes))), set(range(len(nodes)))
    patience = _PATIENCE * (len(nodes) + len(relations.before))
    while heap:
        here = heapq.heappop(heap)
        queued.discard(here)
        patience -= len(leads[nodes[here]])
        if patience < 0:
            return None
        for before, after, lag in leads[nodes[here]]:
            if not board.raise_to(after, board.moment(before) + lag):
                continue
            raised = place[board.node(after)]
            if raised not in queued:
                queued.add(raised)
                heapq.heappush(heap, raised)
    return np.array(hops.start, dtype=np.int64)


class _Board:
    """Current times of all moments, gates included."""

    def __init__(self, hops: _Hops, num_bodies: int, num_gates: int) -> None:
        self._hops = hops
        self._first_gate = 3 * len(hops.start)
        self._num_bodies = num_bodies
        self._gates = [0] * num_gates

    def node(self, number: int) -> int:
        """Transfer or gate that a moment belongs to."""
        if number >= self._first_gate:
            return self._num_bodies + number - self._first_gate
        return self._hops.body[number % len(self._hops.start)]

    def moment(self, number: int) -> int:
        """Time of a moment."""
        if number >= self._first_gate:
            return self._gates[number - self._first_gate]
        return self._hops.moment(number)

    def raise_to(self, number: int, time: int) -> bool:
        """Let a moment be no earlier than a time; whether that moved anything."""
        if self.moment(number) >= time:
            return False
        if number >= self._first_gate:
            self._gates[number - self._first_gate] = time
        else:
            self._hops.raise_to(number, time)
        return True


def _leads(board: _Board, relations: Relations) -> dict[int, list[tuple[int, int, int]]]:
    """Relations that lead away from each transfer and each gate."""
    leads: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    columns = relations.before.tolist(), relations.after.tolist(), relations.lag.tolist()
    for before, after, lag in zip(*columns, strict=True):
        leads[board.node(before)].append((before, after, lag))
    return leads
