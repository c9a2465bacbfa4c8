"""Foreign transfers as sends: which links they take, and times that keep their order."""

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array
from teccl.topology import Topology

MAX_SENDS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePassage:
    """A chunk on its way from a GPU to one or more others, perhaps through switches.

    Parameters
    ----------
    chunk
        Which chunk.
    root
        Node it leaves.
    hops
        Links, each after the one that leads to its source.
    reduce
        Whether receivers add it to what they hold.
    rank
        What comes first among passages that could begin; smaller is earlier.
    after
        Places in the list of passages whose data it carries on; None for the first arrival of its
        chunk at `root`, or nothing where `root` has it from the start.
    behind
        Places of passages that must have begun before it does.
    queues
        Passages of one queue, which may be in several, begin in the order of the list.
    """

    chunk: int
    root: int
    hops: tuple[int, ...]
    reduce: bool
    rank: tuple[int, ...]
    after: tuple[int, ...] | None = None
    behind: tuple[int, ...] = ()
    queues: tuple[Hashable, ...] = ()


class FileWays:
    """Links between nodes, found once for each pair.

    Parallel links take turns. Between two GPUs without a link the way with the fewest switches is
    taken, and among those the one of least latency.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._direct: dict[tuple[int, int], list[int]] = {}
        self._leaving: dict[int, list[int]] = {}
        for i, link in enumerate(topology.links):
            self._direct.setdefault((link.src, link.dst), []).append(i)
            self._leaving.setdefault(link.src, []).append(i)
        self._turn: dict[tuple[int, int], int] = {}
        self._found: dict[tuple[int, int], tuple[int, ...]] = {}

    def hop(self, src: int, dst: int, lane: int | None = None) -> int:
        """Return a link between two nodes, the given one of parallel links.

        Raises
        ------
        ScheduleError
            If there is none.
        """
        links = self._direct.get((src, dst))
        if links is None:
            nodes = self._topology.nodes
            raise ScheduleError(
                f"the file uses a link from {nodes[src].name} to {nodes[dst].name}, which "
                f"{self._topology!r} does not have; give the topology it was made for"
            )
        turn = self._turn.get((src, dst), 0) if lane is None else lane
        self._turn[src, dst] = turn + 1
        return links[turn % len(links)]

    def way(self, src: int, dst: int, lane: int | None = None) -> tuple[int, ...]:
        """Return the links from one GPU to another, through switches only."""
        if (src, dst) in self._direct:
            return (self.hop(src, dst, lane),)
        if (src, dst) not in self._found:
            self._found[src, dst] = self._search(src, dst)
        return self._found[src, dst]

    def _search(self, src: int, dst: int) -> tuple[int, ...]:
        links, nodes = self._topology.links, self._topology.nodes
        queue: list[tuple[int, float, int, tuple[int, ...]]] = [(0, 0.0, src, ())]
        seen: set[int] = set()
        while queue:
            count, alpha, node, way = heapq.heappop(queue)
            if node == dst:
                return way
            if node in seen or (node != src and not nodes[node].is_switch):
                continue
            seen.add(node)
            for i in self._leaving.get(node, ()):
                step = (count + 1, alpha + float(links[i].alpha), links[i].dst, (*way, i))
                heapq.heappush(queue, step)
        raise ScheduleError(
            f"the file sends from {nodes[src].name} to {nodes[dst].name}, but {self._topology!r} "
            "has no link and no way through switches; give the topology it was made for"
        )


@dataclass(slots=True)
class _Waiting:
    """Passages that wait for an arrival, and how many arrivals each still waits for."""

    left: list[int]
    followers: dict[int, list[int]] = field(default_factory=dict)
    behind: dict[int, list[int]] = field(default_factory=dict)
    at: dict[tuple[int, int], list[int]] = field(default_factory=dict)


def place(problem: Problem, passages: Sequence[FilePassage], method: str) -> Schedule:
    """Give passages the earliest times that their order, their links and their data allow.

    Passages begin by rank as soon as they can; links and shared capacities serve one at a time.

    Raises
    ------
    ScheduleError
        If a GPU is to send what never reaches it.
    """
    if problem.topology.has_profiles:
        raise ScheduleError("links with a bandwidth profile cannot be used for imports; drop it")
    if sum(len(passage.hops) for passage in passages) > MAX_SENDS:
        raise ScheduleError(f"the file has more than {MAX_SENDS} sends; use a smaller one")
    return _Placing(problem, passages).run(method)


class _Placing:
    """A list scheduler: the passage that can begin first goes first, ties by rank."""

    def __init__(self, problem: Problem, passages: Sequence[FilePassage]) -> None:
        self._problem = problem
        self._passages = passages
        self._lengths = problem.hold_ps.tolist()
        self._size = problem.chunks.size_index.tolist()
        self._alpha = problem.topology.alpha_ps.tolist()
        self._free: dict[Hashable, int] = {}
        self._arrival: dict[tuple[int, int], int] = {}
        self._ready = [0] * len(passages)
        self._done: list[int | None] = [None] * len(passages)
        self._queues: dict[Hashable, deque[int]] = {}
        self._heap: list[tuple[int, tuple[int, ...], int]] = []
        self._rows: list[tuple[int, int, int, int, bool]] = []

    def run(self, method: str) -> Schedule:
        """Place all passages."""
        waiting = self._sort_in()
        while self._heap:
            start, rank, number = heapq.heappop(self._heap)
            now = self._earliest(number)
            if now > start:
                heapq.heappush(self._heap, (now, rank, number))
                continue
            self._begin(number, start, waiting)
        self._check_all_placed()
        columns = list(zip(*self._rows, strict=True)) if self._rows else [(), (), (), (), ()]
        chunk, link, begin, transfer, reduce = (list(column) for column in columns)
        sends = send_array(
            chunk, link, begin, transfer=transfer, reduce=np.array(reduce, dtype=bool)
        )
        return Schedule(problem=self._problem, sends=sends, method=method)

    def _sort_in(self) -> _Waiting:
        """Find out what each passage waits for, and start those that wait for nothing."""
        table, ready = self._problem.chunks, self._problem.ready_ps()
        waiting = _Waiting([0] * len(self._passages))
        for number, passage in enumerate(self._passages):
            for queue in passage.queues:
                line = self._queues.setdefault(queue, deque())
                line.append(number)
                waiting.left[number] += len(line) > 1
            is_source = passage.root in table.sources(passage.chunk)
            if is_source:
                self._ready[number] = int(ready[table.tenant[passage.chunk], passage.root])
            if passage.after is not None:
                waiting.left[number] += len(passage.after)
                for before in passage.after:
                    waiting.followers.setdefault(before, []).append(number)
            elif not is_source:
                waiting.left[number] += 1
                waiting.at.setdefault((passage.chunk, passage.root), []).append(number)
            waiting.left[number] += len(passage.behind)
            for before in passage.behind:
                waiting.behind.setdefault(before, []).append(number)
        for number, left in enumerate(waiting.left):
            if not left:
                self._offer(number)
        return waiting

    def _offer(self, number: int) -> None:
        entry = (self._earliest(number), self._passages[number].rank, number)
        heapq.heappush(self._heap, entry)

    def _resources(self, link: int) -> Iterable[Hashable]:
        return (link, *self._problem.topology.links[link].shares)

    def _offsets(self, passage: FilePassage) -> list[int]:
        """Return when each hop begins after the first: on arrival at the switch before it."""
        topology = self._problem.topology
        at = {passage.root: 0}
        offsets = []
        for link in passage.hops:
            begin = at[topology.links[link].src]
            offsets.append(begin)
            length = self._lengths[link][self._size[passage.chunk]]
            at[topology.links[link].dst] = begin + length + self._alpha[link]
        return offsets

    def _earliest(self, number: int) -> int:
        passage = self._passages[number]
        return max(
            self._ready[number],
            *(
                self._free.get(resource, 0) - offset
                for link, offset in zip(passage.hops, self._offsets(passage), strict=True)
                for resource in self._resources(link)
            ),
        )

    def _begin(self, number: int, start: int, waiting: _Waiting) -> None:
        passage, topology = self._passages[number], self._problem.topology
        latest = start
        for link, offset in zip(passage.hops, self._offsets(passage), strict=True):
            begin = start + offset
            end = begin + self._lengths[link][self._size[passage.chunk]]
            for resource in self._resources(link):
                self._free[resource] = end
            self._rows.append((passage.chunk, link, begin, number, passage.reduce))
            dst = topology.links[link].dst
            if not topology.nodes[dst].is_switch:
                arrival = end + self._alpha[link]
                latest = max(latest, arrival)
                for other in waiting.at.pop((passage.chunk, dst), ()):
                    self._release(other, arrival, waiting)
        self._done[number] = latest
        for other in waiting.followers.get(number, ()):
            self._release(other, latest, waiting)
        for other in waiting.behind.get(number, ()):
            self._release(other, start, waiting)
        for queue in passage.queues:
            line = self._queues[queue]
            line.popleft()
            if line:
                self._release(line[0], 0, waiting)

    def _release(self, number: int, time: int, waiting: _Waiting) -> None:
        """Tell a passage that something it waits for is there at some time."""
        self._ready[number] = max(self._ready[number], time)
        waiting.left[number] -= 1
        if not waiting.left[number]:
            self._offer(number)

    def _check_all_placed(self) -> None:
        left = next((i for i, done in enumerate(self._done) if done is None), None)
        if left is not None:
            passage = self._passages[left]
            name = self._problem.topology.nodes[passage.root].name
            raise ScheduleError(
                f"the file lets {name} send {self._problem.chunk_name(passage.chunk)}, which never "
                "reaches it; the file is incomplete, or made for another topology"
            )
