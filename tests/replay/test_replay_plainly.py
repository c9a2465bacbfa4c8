"""The replay against its definition, written out for all pairs and solved by repetition."""

import random
from collections import defaultdict
from itertools import permutations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.verification.generate import Planner, arrival_times, random_schedule

from teccl.replay import simulate
from teccl.schedule.sends import Schedule


class Plain:
    """Rows of a schedule as objects; constraints as (before, after, weight) between transfers."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.problem = schedule, schedule.problem
        self.rows = list(schedule)
        self.links = [self.problem.topology.links[row.link] for row in self.rows]
        self.planner = Planner(self.problem, random.Random(0))
        self.start = [row.start_ps for row in self.rows]
        self.arrival = arrival_times(schedule)
        self.base, self.offset = {}, []
        for row in self.rows:
            self.base.setdefault(row.transfer, row.start_ps)
        self.offset = [row.start_ps - self.base[row.transfer] for row in self.rows]
        slowest = defaultdict(list)
        for row in self.rows:
            slowest[row.transfer].append(self.planner.rate(row.link))
        self.held = [
            -int(-1000 / min(slowest[row.transfer]) * 10**12 // 1)
            if self.planner.circuit or self.planner.hyper
            else self.planner.length(row.link, 0)
            for row in self.rows
        ]
        self.flight = [a - s for a, s in zip(self.arrival, self.start, strict=True)]

    def combines(self, i: int) -> bool:
        return bool(self.problem.chunks.reduce[self.rows[i].chunk])

    def is_source(self, i: int) -> bool:
        return self.links[i].src in self.problem.chunks.sources(self.rows[i].chunk)

    def leaving(self) -> list[int]:
        nodes = self.problem.topology.nodes
        return [i for i, link in enumerate(self.links) if not nodes[link.src].is_switch]

    def arriving(self) -> list[int]:
        nodes = self.problem.topology.nodes
        return [i for i, link in enumerate(self.links) if not nodes[link.dst].is_switch]

    def meets(self, arrived: int, left: int) -> bool:
        """Whether one send brings its chunk to the GPU from which another sends it."""
        same = self.rows[arrived].chunk == self.rows[left].chunk
        return same and self.links[arrived].dst == self.links[left].src

    def constraint(self, before, after, lag: int = 0):
        """Relate two moments, each a send and its distance from the send's start."""
        (i, early), (j, late) = before, after
        weight = self.offset[i] + early + lag - self.offset[j] - late
        return self.rows[i].transfer, self.rows[j].transfer, weight

    def order(self):
        """Everything but the feeds of copied chunks."""
        yield from self.on_links()
        yield from self.at_accumulators()
        if self.problem.buffer is not None:
            yield from self.at_buffers()

    def on_links(self):
        for i, j in permutations(range(len(self.rows)), 2):
            shares = set(self.links[i].shares) & set(self.links[j].shares)
            together = self.rows[i].link == self.rows[j].link or shares
            if together and self.start[i] + self.held[i] <= self.start[j]:
                yield self.constraint((i, self.held[i]), (j, 0))

    def at_accumulators(self):
        for i in self.arriving():
            for j in self.leaving():
                if self.combines(i) and self.meets(i, j):
                    if self.arrival[i] <= self.start[j]:
                        yield self.constraint((i, self.flight[i]), (j, 0))
                    else:
                        yield self.constraint((j, 0), (i, self.flight[i]), 1)
        for i, j in permutations(self.arriving(), 2):
            same = self.rows[i].chunk == self.rows[j].chunk
            if not self.combines(i) or not same or self.links[i].dst != self.links[j].dst:
                continue
            copies = self.rows[i].op == "copy", self.rows[j].op == "copy"
            ends = (i, self.flight[i]), (j, self.flight[j])
            if copies == (True, False) and self.arrival[i] < self.arrival[j]:
                yield self.constraint(*ends, 1)
            elif any(copies) and copies != (True, False) and self.arrival[i] <= self.arrival[j]:
                yield self.constraint(*ends)

    def at_buffers(self):
        visits = defaultdict(list)
        for j in self.leaving():
            if self.is_source(j) and not self.combines(j):
                continue
            fed = [i for i in self.arriving() if self.meets(i, j)]
            fed = [i for i in fed if self.arrival[i] <= self.start[j]]
            for i in fed:
                visits[self.links[j].src].append((self.arrival[i], i, self.flight[i]))
            if fed:
                visits[self.links[j].src].append((self.start[j], j, 0))
        for events in visits.values():
            for (t, i, early), (u, j, late) in permutations(set(events), 2):
                if t <= u:
                    yield self.constraint((i, early), (j, late))

    def feeds(self, base):
        """What sends of copied chunks wait for at given bases, and lower bounds of bases."""
        start = [base[row.transfer] + o for row, o in zip(self.rows, self.offset, strict=True)]
        arrival = [s + f for s, f in zip(start, self.flight, strict=True)]
        lower = dict.fromkeys(self.base, 0)
        constraints = []

        def wait(i: int, time: int) -> None:
            transfer = self.rows[i].transfer
            lower[transfer] = max(lower[transfer], time - self.offset[i])

        for i in range(len(self.rows)):
            wait(i, 0)
        for j in self.leaving():
            ready = self.planner.ready(self.rows[j].chunk, self.links[j].src)
            if self.combines(j):
                if self.is_source(j) and self.start[j] >= ready:
                    wait(j, ready)
                continue
            came = sorted((arrival[i], i) for i in self.arriving() if self.meets(i, j))
            place = 0
            if not self.problem.copy and not self.is_source(j):
                rivals = [k for k in self.leaving() if self.links[k].src == self.links[j].src]
                rivals = [k for k in rivals if self.rows[k].chunk == self.rows[j].chunk]
                place = sum((start[k], k) < (start[j], j) for k in rivals)
            if self.is_source(j) and (not came or ready <= came[0][0]):
                wait(j, ready)
            else:
                i = came[place][1]
                constraints.append(self.constraint((i, self.flight[i]), (j, 0)))
        return constraints, lower

    def replay(self) -> dict:
        """Starts by transfer and link."""
        order = list(self.order())
        base, before = self.base, None
        while base != before:
            before = base
            constraints, base = self.feeds(base)
            changed = True
            while changed:
                changed = False
                for u, v, weight in (*order, *constraints):
                    if base[u] + weight > base[v]:
                        base[v], changed = base[u] + weight, True
        return {
            (row.transfer, row.link): base[row.transfer] + offset
            for row, offset in zip(self.rows, self.offset, strict=True)
        }


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.integers(0, 10**9))
def test_replays_follow_their_definition(seed):
    """In every mode the replay is the least solution of all pairwise relations."""
    schedule = random_schedule(seed)
    assume(not schedule.problem.topology.has_profiles)
    found = {(row.transfer, row.link): row.start_ps for row in simulate(schedule).schedule}
    assert found == Plain(schedule).replay()
