"""Emulated links: the sender paces every departure to the topology's bandwidth and alpha.

The bytes of a message move at once, and a token follows when the link would have delivered the last
of them; the receiver uses a message only after its token. A departure begins when its data is there
and the departures before it on its link, or on a capacity that its link shares, have left. All
lengths are multiplied by a time scale, so that a fast network fits a slow machine. A link that is
busy hands over at the paced instant even if the sender wakes a little late, as a token bucket
does; a wait for data ends when the data is seen.

Links behind a switch are not paced again: the schedule keeps their transfers apart.
"""

import heapq
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teccl.runtime.engine import Engine
from teccl.runtime.messages import Messages
from teccl.runtime.rank_program import RankProgram
from teccl.schedule import Schedule
from teccl.schedule.timing import transmission_from
from teccl.units import PICOSECONDS, picoseconds

if TYPE_CHECKING:
    from mpi4py import MPI

Array = npt.NDArray[Any]

# The longest an emulated rank sleeps before it looks for messages.
NAP_S = 100e-6
# What a machine with a few cores moves while ranks also sleep and wake.
_SLOWEST_LINK = 200e6
_ALL_LINKS = 500e6
_SHORTEST_RUN_S = 0.5
_PER_SEND_S = 200e-6

_START, _TOKEN, _STEP = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long one departure takes on emulated links, in seconds of the emulated clock.

    Parameters
    ----------
    held_s
        How long it holds its link.
    transit_s
        From its start to each target's far end.
    after
        Departures of this rank that have left their link before.
    ready_s
        When the rank's own data may leave.
    """

    held_s: float
    transit_s: tuple[float, ...]
    after: tuple[int, ...]
    ready_s: float


def automatic_time_scale(schedule: Schedule) -> float:
    """Return a time scale at which this kind of machine keeps up with the emulated links.

    The slowest link carries at most 200 MB/s, all together at most 500 MB/s, and the schedule
    takes at least half a second, more if it has many sends.
    """
    topology = schedule.problem.topology
    finish = max(schedule.finish_time_s, 1e-12)
    slowest = min(float(rate) for rate in topology.rates)
    total = float(schedule.bytes_on_wire) / finish
    shortest = _SHORTEST_RUN_S + _PER_SEND_S * len(schedule)
    return max(slowest / _SLOWEST_LINK, total / _ALL_LINKS, shortest / finish)


def paces(
    schedule: Schedule, messages: Messages, program: RankProgram, time_scale: float
) -> list[Pace]:
    """Compute the pace of each departure of a rank."""
    after = _predecessors(schedule, messages, program)
    scale = time_scale / PICOSECONDS
    found = []
    for i, departure in enumerate(program.departures):
        rows = [target.message for target in departure.targets]
        start = int(messages.start_ps[rows[0]])
        found.append(
            Pace(
                held_s=int(messages.held_ps[rows[0]]) * scale,
                transit_s=tuple(int(messages.arrival_ps[m] - start) * scale for m in rows),
                after=after[i],
                ready_s=departure.ready_ps * scale,
            )
        )
    return found


def _predecessors(
    schedule: Schedule, messages: Messages, program: RankProgram
) -> list[tuple[int, ...]]:
    """Departures that left a common link or capacity before each departure of a rank."""
    links = schedule.problem.topology.links
    by_resource: dict[object, list[int]] = {}
    for i, departure in enumerate(program.departures):
        for resource in (departure.link, *links[departure.link].shares):
            by_resource.setdefault(resource, []).append(i)
    first = [departure.targets[0].message for departure in program.departures]
    start = messages.start_ps[first]
    end = start + messages.held_ps[first]
    before: list[set[int]] = [set() for _ in program.departures]
    for users in by_resource.values():
        longest = int((end[users] - start[users]).max())
        for place, i in enumerate(users):
            before[i].update(_last_to_leave(users[:place], start, end, int(start[i]), longest))
    return [tuple(sorted(group)) for group in before]


def _last_to_leave(
    earlier: list[int], start: Array, end: Array, now: int, longest: int
) -> set[int]:
    """Departures that had left by now and that no later one of them waited for."""
    found: set[int] = set()
    latest_start: int | None = None
    for i in reversed(earlier):
        if latest_start is not None and start[i] + longest <= latest_start:
            break
        if end[i] > now or (latest_start is not None and end[i] <= latest_start):
            continue
        found.add(i)
        latest_start = int(start[i]) if latest_start is None else latest_start
    return found


class PacedEngine(Engine):
    """An engine on emulated links.

    Parameters
    ----------
    token_comm
        Another communicator of the same ranks, for tokens.
    pace
        Per departure, how long it takes.
    schedule
        What is run, for links whose bandwidth changes over time.
    time_scale
        Factor on all lengths.
    """

    messages_per_receive = 2

    def __init__(
        self,
        program: RankProgram,
        arrays: dict[int, Array],
        comm: "MPI.Comm",
        peers: dict[int, int],
        *,
        token_comm: "MPI.Comm",
        pace: list[Pace],
        schedule: Schedule,
        time_scale: float,
        **options: Any,
    ) -> None:
        self._token_comm = token_comm
        self._pace, self._scale, self._schedule = pace, time_scale, schedule
        super().__init__(program, arrays, comm, peers, **options)

    def _count_waits(self) -> list[int]:
        late = [int(step.ready_ps > 0) for step in self.program.steps]
        return [w + more for w, more in zip(super()._count_waits(), late, strict=True)]

    def _receive_requests(
        self, comm: "MPI.Comm", peers: dict[int, int]
    ) -> tuple[list["MPI.Prequest"], list[int]]:
        from mpi4py import MPI

        data, steps = super()._receive_requests(comm, peers)
        self._sink = np.zeros(len(data) + 1, dtype=np.uint8)
        requests, doubled = [], []
        for i, (receive, request) in enumerate(zip(self.program.receives, data, strict=True)):
            buffer = [self._sink[i : i + 1], MPI.BYTE]
            token = self._token_comm.Recv_init(buffer, peers[receive.peer], receive.tag)
            requests += [request, token]
            doubled += [steps[i]] * 2
        return requests, doubled

    def _send_requests(self, comm: "MPI.Comm", peers: dict[int, int]) -> list[list["MPI.Prequest"]]:
        from mpi4py import MPI

        self._tokens = [
            [
                self._token_comm.Send_init([self._sink[-1:], MPI.BYTE], peers[t.peer], t.tag)
                for t in departure.targets
                if t.step is None
            ]
            for departure in self.program.departures
        ]
        return super()._send_requests(comm, peers)

    def _begin(self) -> None:
        super()._begin()
        self._zero = time.perf_counter() if self.start_at is None else self.start_at
        self._left_at = [0.0] * len(self.program.departures)
        self._step_end = [self._zero] * len(self.program.steps)
        self._agenda: list[tuple[float, int, int, int]] = [
            (self._zero + step.ready_ps / PICOSECONDS * self._scale, _STEP, i, 0)
            for i, step in enumerate(self.program.steps)
            if step.ready_ps > 0
        ]
        heapq.heapify(self._agenda)
        while (now := time.perf_counter()) < self._zero:
            time.sleep(self._zero - now)

    def _is_busy(self) -> bool:
        return bool(self._agenda)

    def _tick(self) -> bool:
        """Do what is due; where nothing is, sleep until it is or until messages may have come."""
        now = time.perf_counter()
        fired = False
        while self._agenda and self._agenda[0][0] <= now:
            _, kind, subject, number = heapq.heappop(self._agenda)
            fired = True
            if kind == _START:
                self._advance(subject)
            elif kind == _STEP:
                self._deliver(subject)
            else:
                self._tokens[subject][number].Start()
                self._started.append(self._tokens[subject][number])
        if fired:
            self._idler.reset()
            return True
        due = self._agenda[0][0] - now if self._agenda else NAP_S
        time.sleep(min(due, NAP_S))
        if not self._agenda:
            self._idler.note_nap()
        return True

    def _perform(self, step: int) -> None:
        super()._perform(step)
        self._step_end[step] = time.perf_counter()

    def _may_start(self, departure: int) -> bool:
        start = self._earliest(departure)
        if start <= time.perf_counter():
            return True
        heapq.heappush(self._agenda, (start, _START, self._queue_of[departure], 0))
        return False

    def _earliest(self, departure: int) -> float:
        """When the data of a departure was there and its link was free."""
        pace, after = self._pace[departure], self.program.departures[departure].after
        seen = self._zero + pace.ready_s if after is None else self._step_end[after]
        return max([seen, *(self._left_at[before] for before in pace.after)])

    def _start(self, departure: int) -> None:
        start = self._earliest(departure)
        held, transit = self._lengths(departure, start)
        self._left_at[departure] = start + held
        number = 0
        for target, length in zip(self.program.departures[departure].targets, transit, strict=True):
            if target.step is None:
                heapq.heappush(self._agenda, (start + length, _TOKEN, departure, number))
                number += 1
            else:
                heapq.heappush(self._agenda, (start + length, _STEP, target.step, 0))
        for request in self._sends[departure]:
            request.Start()
            self._started.append(request)

    def _lengths(self, departure: int, start: float) -> tuple[float, tuple[float, ...]]:
        """How long a departure holds its link and takes to its targets, from a given instant."""
        pace, sent = self._pace[departure], self.program.departures[departure]
        problem = self._schedule.problem
        link = problem.topology.links[sent.link]
        if not link.profile:
            return pace.held_s, pace.transit_s
        size = problem.chunks.size(int(self._schedule.sends["chunk"][sent.root]))
        now_ps = int((start - self._zero) / self._scale * PICOSECONDS)
        steps = problem.topology.rate_steps(link)
        overhead = picoseconds(link.overhead)
        held_ps = transmission_from(steps, size, now_ps, overhead_ps=overhead)
        held = held_ps / PICOSECONDS * self._scale
        return held, tuple(held + length - pace.held_s for length in pace.transit_s)

    def close(self) -> None:
        """Free the requests."""
        for request in (token for tokens in self._tokens for token in tokens):
            request.Free()
        super().close()
