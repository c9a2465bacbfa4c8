"""An order for passages where their file leaves one open: passes over time, forward and back.

A file fixes the order on each of its connections, and what carries on what. Where several
connections share a link, any order of them is right and some are slow. Passages are placed forward
by the longest way to go, then backward from the end by how late they came, then forward by how
early they must begin, and so on; the best forward pass counts.
"""

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from teccl.formats.shared.placing import FilePassage
from teccl.problem import Problem

_MAX_PASSES = 8
# Passes without gain after which to stop.
_PATIENCE = 2


def in_a_good_order(problem: Problem, passages: Sequence[FilePassage]) -> list[FilePassage]:
    """Rank passages so that placing them by rank ends early."""
    tasks = _Tasks.of(problem, passages)
    priority = [(-rest,) for rest in tasks.longest_ways()]
    best = priority
    starts, finish = tasks.forward(priority)
    shortest = tasks.longest_busy()
    idle = 0
    for _ in range(_MAX_PASSES):
        if finish <= shortest or idle == _PATIENCE:
            break
        late = tasks.backward([(-start - tasks.length[i],) for i, start in enumerate(starts)])
        priority = [(start,) for start in late]
        starts, ended = tasks.forward(priority)
        idle += 1
        if ended < finish:
            finish, best, idle = ended, priority, 0
    return [replace(p, rank=(*best[i], *p.rank)) for i, p in enumerate(passages)]


@dataclass(slots=True)
class _Tasks:
    """Passages as tasks: what each occupies, for how long, and what waits for what.

    Parameters
    ----------
    resources
        Links and shared capacities of each.
    length, lag
        Time that it holds them, and until its data can be used after that.
    carried, carries
        Tasks that carry its data on, and whose data it carries on.
    next_in, last_in
        Tasks that follow it and that it follows in some queue.
    """

    resources: list[tuple[Hashable, ...]]
    length: list[int]
    lag: list[int]
    carried: list[list[int]]
    carries: list[list[int]]
    next_in: list[list[int]]
    last_in: list[list[int]]

    @staticmethod
    def of(problem: Problem, passages: Sequence[FilePassage]) -> "_Tasks":
        """Build tasks; a way through switches holds all of its links at a time."""
        lengths, alphas = problem.hold_ps, problem.topology.alpha_ps
        sizes, links = problem.chunks.size_index, problem.topology.links
        count = len(passages)
        tasks = _Tasks(
            resources=[
                tuple({r: None for link in p.hops for r in (link, *links[link].shares)})
                for p in passages
            ],
            length=[max(int(lengths[link, sizes[p.chunk]]) for link in p.hops) for p in passages],
            lag=[sum(int(alphas[link]) for link in p.hops) for p in passages],
            carried=[[] for _ in range(count)],
            carries=[list(p.after or ()) for p in passages],
            next_in=[[] for _ in range(count)],
            last_in=[[] for _ in range(count)],
        )
        last: dict[Hashable, int] = {}
        for i, passage in enumerate(passages):
            for before in passage.after or ():
                tasks.carried[before].append(i)
            for queue in passage.queues:
                if queue in last:
                    tasks.next_in[last[queue]].append(i)
                    tasks.last_in[i].append(last[queue])
                last[queue] = i
        return tasks

    def longest_busy(self) -> int:
        """Return the time that the busiest link needs, which no order can beat."""
        busy: dict[Hashable, int] = {}
        for resources, length in zip(self.resources, self.length, strict=True):
            for resource in resources:
                busy[resource] = busy.get(resource, 0) + length
        return max(busy.values(), default=0)

    def longest_ways(self) -> list[int]:
        """Return the time from the start of each task to the last arrival that depends on it."""
        waits = [len(a) + len(b) for a, b in zip(self.carries, self.last_in, strict=True)]
        order = [i for i, left in enumerate(waits) if not left]
        for i in order:
            for j in (*self.carried[i], *self.next_in[i]):
                waits[j] -= 1
                if not waits[j]:
                    order.append(j)
        rest = [0] * len(waits)
        for i in reversed(order):
            whole = self.length[i] + self.lag[i]
            rest[i] = max(
                [
                    whole,
                    *(whole + rest[j] for j in self.carried[i]),
                    *(self.length[i] + rest[j] for j in self.next_in[i]),
                ]
            )
        return rest

    def forward(self, priority: Sequence[tuple[int, ...]]) -> tuple[list[int], int]:
        """Place tasks from the start on; return their starts and the last arrival."""
        ready = [0] * len(self.length)
        starts = self._place(priority, ready, self.carries, self.carried, backward=False)
        ends = (s + self.length[i] + self.lag[i] for i, s in enumerate(starts))
        return starts, max(ends, default=0)

    def backward(self, priority: Sequence[tuple[int, ...]]) -> list[int]:
        """Place tasks from the end back; return how early before the end each begins, negative."""
        # Time runs backward: a task begins where it ends, and at the end its data must be there.
        starts = self._place(priority, list(self.lag), self.carried, self.carries, backward=True)
        return [-(start + self.length[i]) for i, start in enumerate(starts)]

    def _place(
        self,
        priority: Sequence[tuple[int, ...]],
        ready: list[int],
        before: Sequence[Sequence[int]],
        after: Sequence[Sequence[int]],
        *,
        backward: bool,
    ) -> list[int]:
        ahead, behind = (self.next_in, self.last_in) if backward else (self.last_in, self.next_in)
        waits = [len(a) + len(b) for a, b in zip(before, ahead, strict=True)]
        free: dict[Hashable, int] = {}
        starts = [0] * len(ready)
        heap = [(ready[i], priority[i], i) for i, left in enumerate(waits) if not left]
        heapq.heapify(heap)
        while heap:
            start, rank, i = heapq.heappop(heap)
            earliest = max([ready[i], *(free.get(r, 0) for r in self.resources[i])])
            if earliest > start:
                heapq.heappush(heap, (earliest, rank, i))
                continue
            starts[i] = start
            end = start + self.length[i]
            for resource in self.resources[i]:
                free[resource] = end
            for j in after[i]:
                lag = self.lag[j] if backward else self.lag[i]
                ready[j] = max(ready[j], end + lag)
            for j in (*after[i], *behind[i]):
                waits[j] -= 1
                if not waits[j]:
                    heapq.heappush(heap, (ready[j], priority[j], j))
        return starts
