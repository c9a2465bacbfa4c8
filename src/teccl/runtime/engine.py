"""Engine: executes a rank's program with persistent point-to-point requests of MPI.

All receives have places of their own, so they are posted ahead of time, a window of them in order
of arrival. The earliest message that is not yet delivered can always be sent and is always
awaited, so no window is too small to make progress. Nothing blocks inside MPI: an idle rank
yields its core, and a rank that waits too long says for what.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teccl.errors import RunError
from teccl.runtime.rank_program import SCRATCH, Place, RankProgram, RankStep

if TYPE_CHECKING:
    from mpi4py import MPI

Array = npt.NDArray[Any]

# Receives that are posted at the same time; polling takes time for each of them.
WINDOW = 64
# Empty polls before an idle rank gives up its core, and before it sleeps.
_YIELD_AFTER, _SLEEP_AFTER = 8, 60
_NAP_S = 20e-6
# Empty polls between two looks at the clock.
_CLOCK_EVERY = 64
_TELL_EVERY_S = 1.0

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
}


class Idler:
    """What a rank does while nothing happens, and the limit to it."""

    def __init__(
        self,
        timeout: float | None,
        name_wait: Callable[[], str],
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        self._timeout, self._name_wait, self._on_progress = timeout, name_wait, on_progress
        self._empty = 0
        self._since = self._told = 0.0
        self._has_moved = False

    def reset(self) -> None:
        """Note that something happened."""
        self._empty = 0
        self._has_moved = True

    def pause(self) -> None:
        """Yield, then sleep, then give up."""
        self._empty += 1
        if self._empty > _SLEEP_AFTER:
            time.sleep(_NAP_S)
        elif self._empty > _YIELD_AFTER:
            os.sched_yield()
        if self._empty % _CLOCK_EVERY == 0:
            self.check(time.perf_counter())

    def note_nap(self) -> None:
        """Count a sleep that somebody else made."""
        self._empty += 1
        if self._empty % _CLOCK_EVERY == 0:
            self.check(time.perf_counter())

    def check(self, now: float) -> None:
        """Raise if nothing has happened for too long; tell now and then that something has."""
        if self._has_moved and self._on_progress is not None and now - self._told > _TELL_EVERY_S:
            self._on_progress()
            self._told, self._has_moved = now, False
        if self._empty <= _CLOCK_EVERY:
            self._since = now
        elif self._timeout is not None and now - self._since > self._timeout:
            raise RunError(
                f"no progress for {self._timeout:g} s: {self._name_wait()}; "
                "look for a rank that died or did not make the call, or give a longer timeout"
            )


class Engine:
    """A program bound to arrays and a communicator, ready to run any number of times.

    Parameters
    ----------
    program
        What to do.
    arrays
        Buffers by number, as places name them.
    comm
        A communicator that nobody else uses.
    peers
        Rank in `comm` of each GPU rank.
    reduction
        How contributions are combined.
    timeout
        Seconds without progress after which a run fails, None for no limit.
    tenants
        Tenant of each step, where the end of each tenant is to be timed.
    staged
        Pairs of arrays, the second copied to the first before each run.
    """

    # Messages that must come for each receive; pacing adds one that says when.
    messages_per_receive = 1

    def __init__(
        self,
        program: RankProgram,
        arrays: dict[int, Array],
        comm: "MPI.Comm",
        peers: dict[int, int],
        *,
        reduction: str = "sum",
        timeout: float | None = None,
        tenants: list[int] | None = None,
        staged: Sequence[tuple[Array, Array]] = (),
    ) -> None:
        self.program, self.arrays = program, arrays
        self.timeout = timeout
        self._combine = REDUCTIONS[reduction]
        self._bytes = {number: array.view(np.uint8) for number, array in arrays.items()}
        self._copies = [(kept, source) for kept, source in staged]
        for src, dst in program.copies:
            source, target = self._view(src), self._view(dst)
            if source.ctypes.data != target.ctypes.data:
                self._copies.append((target, source))
        self._requests, self._steps_of = self._receive_requests(comm, peers)
        self._sends = self._send_requests(comm, peers)
        self._local = [
            [t.step for t in d.targets if t.step is not None] for d in program.departures
        ]
        self._sums = [self._sum(step) if step.combines else None for step in program.steps]
        self._waits = self._count_waits()
        self._index_departures()
        # Which tenant a step belongs to, where there are several to time.
        self._tenants = tenants
        self.tenant_end = [0.0] * len(program.layouts)
        self.start_at: float | None = None
        self.on_progress: Callable[[], None] | None = None

    def _index_departures(self) -> None:
        links = sorted({departure.link for departure in self.program.departures})
        place = {link: i for i, link in enumerate(links)}
        self._queues: list[list[int]] = [[] for _ in links]
        self._queue_of: list[int] = []
        self._released: list[list[int]] = [[] for _ in self.program.steps]
        self._free: list[int] = []
        for i, departure in enumerate(self.program.departures):
            self._queues[place[departure.link]].append(i)
            self._queue_of.append(place[departure.link])
            if departure.after is None:
                self._free.append(i)
            else:
                self._released[departure.after].append(i)

    def _count_waits(self) -> list[int]:
        waits = [step.waits for step in self.program.steps]
        for receive in self.program.receives:
            waits[receive.step] += self.messages_per_receive - 1
        return waits

    def _view(self, place: Place) -> Array:
        return self.arrays[place.buffer][place.start : place.stop]

    def _raw(self, place: Place) -> Array:
        itemsize = self.arrays[place.buffer].itemsize
        return self._bytes[place.buffer][place.start * itemsize : place.stop * itemsize]

    def _receive_requests(
        self, comm: "MPI.Comm", peers: dict[int, int]
    ) -> tuple[list["MPI.Prequest"], list[int]]:
        from mpi4py import MPI

        requests, steps = [], []
        for receive in self.program.receives:
            buffer = [self._raw(receive.place), MPI.BYTE]
            requests.append(comm.Recv_init(buffer, source=peers[receive.peer], tag=receive.tag))
            steps.append(receive.step)
        return requests, steps

    def _send_requests(self, comm: "MPI.Comm", peers: dict[int, int]) -> list[list["MPI.Prequest"]]:
        from mpi4py import MPI

        return [
            [
                comm.Send_init([self._raw(departure.place), MPI.BYTE], peers[t.peer], t.tag)
                for t in departure.targets
                if t.step is None
            ]
            for departure in self.program.departures
        ]

    def _sum(self, step: RankStep) -> list[tuple[Array, Array, Array]]:
        """Left, right and result of each addition of a step."""
        out = self._view(step.out)
        parts = [self._view(part) for part in step.parts]
        # The result may take the place of a part, which must then be read first.
        parts.sort(key=lambda part: not np.shares_memory(part, out))
        left = parts.pop(0) if step.before is None else self._view(step.before)
        sums = []
        for part in parts:
            sums.append((left, part, out))
            left = out
        return sums

    def run(self) -> None:
        """Execute the program once."""
        self._begin()
        for target, source in self._copies:
            np.copyto(target, source)
        slots = list(range(min(WINDOW, len(self._requests))))
        window = [self._requests[i] for i in slots]
        for request in window:
            request.Start()
        for departure in self._free:
            self._ready[departure] = 1
        for queue in range(len(self._queues)):
            self._advance(queue)
        self._receive_all(window, slots)
        self._finish_sends()

    def _begin(self) -> None:
        """Forget the run before."""
        self._left = self._waits.copy()
        self._ready = bytearray(len(self.program.departures))
        self._heads = [0] * len(self._queues)
        self._started: list[MPI.Prequest] = []
        self._stack: list[int] = []
        self._is_delivering = False
        self._idler = Idler(self.timeout, self._name_wait, self.on_progress)

    def _receive_all(self, window: list["MPI.Prequest"], slots: list[int]) -> None:
        """Poll the window of receives until all have come and all departures are under way."""
        from mpi4py import MPI

        posted, idler, test = len(window), self._idler, MPI.Request.Testsome
        self._slots = slots
        while window or self._is_busy():
            done = test(window) if window else None
            if not done:
                if not self._tick():
                    idler.pause()
                continue
            idler.reset()
            finished = [slots[k] for k in done]
            gone = []
            for k in done:
                if posted < len(self._requests):
                    slots[k], window[k] = posted, self._requests[posted]
                    window[k].Start()
                    posted += 1
                else:
                    gone.append(k)
            for k in sorted(gone, reverse=True):
                window[k], slots[k] = window[-1], slots[-1]
                window.pop()
                slots.pop()
            for i in finished:
                self._deliver(self._steps_of[i])

    def _is_busy(self) -> bool:
        """Whether something is still to happen on this rank without a message."""
        return False

    def _tick(self) -> bool:
        """Do what is due by the clock, and say whether there was anything."""
        return False

    def _finish_sends(self) -> None:
        """Wait until others have taken everything."""
        from mpi4py import MPI

        self._idler.reset()
        left = self._started
        while left:
            done = MPI.Request.Testsome(left)
            if not done:
                self._idler.pause()
                continue
            gone = set(done)
            left = [request for i, request in enumerate(left) if i not in gone]

    def _deliver(self, step: int) -> None:
        """Count one message or step that a step waits for; go on from it once it is complete."""
        self._stack.append(step)
        if self._is_delivering:
            return
        self._is_delivering = True
        while self._stack:
            step = self._stack.pop()
            self._left[step] -= 1
            if self._left[step]:
                continue
            self._perform(step)
            self._stack.extend(self.program.followers[step])
            for departure in self._released[step]:
                self._ready[departure] = 1
                self._advance(self._queue_of[departure])
        self._is_delivering = False

    def _perform(self, step: int) -> None:
        """Combine what came with what was there."""
        for left, right, out in self._sums[step] or ():
            self._combine(left, right, out=out)
        if self._tenants is not None:
            self.tenant_end[self._tenants[step]] = time.perf_counter()

    def _advance(self, queue: int) -> None:
        """Start what is ready at the head of a link's queue."""
        order = self._queues[queue]
        while self._heads[queue] < len(order):
            departure = order[self._heads[queue]]
            if not self._ready[departure] or not self._may_start(departure):
                return
            self._heads[queue] += 1
            self._start(departure)

    def _may_start(self, departure: int) -> bool:  # noqa: ARG002, pacing looks at it
        """Whether a departure whose data is there may leave now."""
        return True

    def _start(self, departure: int) -> None:
        """Send a departure's bytes."""
        for request in self._sends[departure]:
            request.Start()
            self._started.append(request)
        for step in self._local[departure]:
            self._deliver(step)

    def _name_wait(self) -> str:
        """Say what a rank waits for."""
        rank, table = self.program.rank, self.program.receives
        if self._slots:
            first = min(self._slots) // self.messages_per_receive
            receive = table[first]
            chunk = self.program.steps[receive.step].chunk
            return f"rank {rank} waits for chunk {chunk} from rank {receive.peer}"
        return f"rank {rank} waits for others to take what it sent"

    def close(self) -> None:
        """Free the requests."""
        for request in [*self._requests, *(r for requests in self._sends for r in requests)]:
            request.Free()
        self._requests, self._sends = [], []


def scratch_arrays(program: RankProgram, dtype: np.dtype[Any]) -> dict[int, Array]:
    """Return the scratch memory of a program."""
    return {SCRATCH: np.empty(program.scratch, dtype=dtype)}
