"""Ping-pong: times of messages between pairs of ranks over a range of sizes.

A message of the size under test goes one way and one byte comes back, so that the time grows with
the bandwidth of one direction. The two latencies of a pair cannot be told apart without a common
clock; each direction is given half of their sum. Trains of small messages, one after another, tell
what each costs beside its bytes.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from teccl.errors import RunError

if TYPE_CHECKING:
    from mpi4py import MPI

_DATA, _TOKEN = 1, 2
# How long ranks that are not being measured sleep between looks.
_NAP_S = 1e-3
# Emulated links are slow: there a look every so often is fine enough.
_EMULATED_NAP_S = 50e-6
# Messages of a train: enough that what they cost shows beside the latency.
TRAIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PingPongPlan:
    """What to measure.

    Parameters
    ----------
    pairs
        Ordered pairs of ranks: the message goes from the first to the second.
    sizes
        Bytes, for each pair.
    repeat, warmup
        Exchanges that count and exchanges before them, at each size.
    links
        Emulated links: latency, seconds per byte and overhead of each ordered pair that has one,
        as ``"src>dst"``; None measures the real ones.
    concurrent
        Measure pairs without a common rank at the same time.
    train
        Messages of the smallest size that are sent in a row, to learn what each costs.
    """

    pairs: tuple[tuple[int, int], ...]
    sizes: tuple[tuple[int, ...], ...]
    repeat: int = 10
    warmup: int = 2
    links: dict[str, tuple[float, float, float]] | None = None
    concurrent: bool = False
    train: int = TRAIN

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return asdict(self)

    @staticmethod
    def from_dict(document: dict[str, Any]) -> "PingPongPlan":
        """Read a plan from plain data."""
        links = document["links"]
        return PingPongPlan(
            pairs=tuple((int(a), int(b)) for a, b in document["pairs"]),
            sizes=tuple(tuple(int(size) for size in sizes) for sizes in document["sizes"]),
            repeat=int(document["repeat"]),
            warmup=int(document["warmup"]),
            links=None
            if links is None
            else {k: (float(a), float(b), float(o)) for k, (a, b, o) in links.items()},
            concurrent=bool(document["concurrent"]),
            train=int(document["train"]),
        )

    def kinds(self, pair: int) -> list[tuple[int, int]]:
        """How many messages of how many bytes each exchange of a pair has."""
        sizes = self.sizes[pair]
        return [*((1, size) for size in sizes), (self.train, min(sizes))]

    def rounds(self) -> list[list[int]]:
        """Pairs that are measured together, by place in `pairs`."""
        if not self.concurrent:
            return [[i] for i in range(len(self.pairs))]
        rounds: list[tuple[set[int], list[int]]] = []
        for i, pair in enumerate(self.pairs):
            for busy, members in rounds:
                if busy.isdisjoint(pair):
                    busy.update(pair)
                    members.append(i)
                    break
            else:
                rounds.append((set(pair), [i]))
        return [members for _, members in rounds]


def measure_links(
    plan: PingPongPlan, comm: "MPI.Comm", *, beat: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Measure all pairs of a plan; every rank returns the samples and the ranks' hosts.

    Raises
    ------
    RunError
        If a pair names a rank that does not exist.
    """
    from mpi4py import MPI

    rank = comm.Get_rank()
    bad = [pair for pair in plan.pairs if max(pair) >= comm.Get_size()]
    if bad:
        raise RunError(f"pair {bad[0]} names a rank that is not there; start more ranks")
    largest = max((max(sizes) for sizes in plan.sizes), default=1)
    buffer = np.zeros(largest + 1, dtype=np.uint8)
    mine: dict[int, list[list[float]]] = {}
    for members in plan.rounds():
        for i in members:
            if rank in plan.pairs[i]:
                exchange = _Exchange(comm, plan, i, buffer)
                mine[i] = [exchange.times(*kind) for kind in plan.kinds(i)]
        _settle(comm)
        beat()
    gathered: dict[int, list[list[float]]] = {}
    for part in comm.allgather({i: t for i, t in mine.items() if plan.pairs[i][0] == rank}):
        gathered |= part
    return {
        "hosts": comm.allgather(MPI.Get_processor_name()),
        "seconds": [gathered[i] for i in range(len(plan.pairs))],
    }


def _settle(comm: "MPI.Comm") -> None:
    """Wait for all ranks without taking the cores of those that measure."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(_NAP_S)


class _Exchange:
    """Messages to and fro between two ranks, seen from one of them."""

    def __init__(self, comm: "MPI.Comm", plan: PingPongPlan, pair: int, buffer: Any) -> None:
        self.comm, self.plan, self.buffer = comm, plan, buffer
        self.src, self.dst = plan.pairs[pair]
        self.is_src = comm.Get_rank() == self.src

    def times(self, count: int, size: int) -> list[float]:
        """Seconds of each exchange; on the far rank these mean nothing."""
        found = []
        for repeat in range(self.plan.warmup + self.plan.repeat):
            start = time.perf_counter()
            if self.is_src:
                self._send(self.dst, count, size)
                self._receive(self.dst, 1, 1)
            else:
                self._receive(self.src, count, size)
                self._send(self.src, 1, 1)
            if repeat >= self.plan.warmup:
                found.append(time.perf_counter() - start)
        return found

    def _send(self, peer: int, count: int, size: int) -> None:
        from mpi4py import MPI

        data = [self.buffer[:size], MPI.BYTE]
        requests = [self.comm.Isend(data, peer, _DATA) for _ in range(count)]
        if self.plan.links is None:
            MPI.Request.Waitall(requests)
            return
        alpha, beta, overhead = self.plan.links[f"{self.comm.Get_rank()}>{peer}"]
        due = time.perf_counter() + alpha + count * (overhead + beta * size)
        while (left := due - time.perf_counter()) > 0:
            # Large messages move only while their sender looks after them.
            MPI.Request.Testall(requests)
            time.sleep(min(left, _NAP_S))
        # The last message of a train is there.
        self.comm.Send([self.buffer[:1], MPI.BYTE], peer, _TOKEN)
        MPI.Request.Waitall(requests)

    def _receive(self, peer: int, count: int, size: int) -> None:
        from mpi4py import MPI

        # Messages under way at a time must not share memory.
        places = [self.buffer[:size]] if count == 1 else np.zeros((count, size), dtype=np.uint8)
        requests = [self.comm.Irecv([place, MPI.BYTE], peer, _DATA) for place in places]
        if self.plan.links is None:
            MPI.Request.Waitall(requests)
            return
        token = np.zeros(1, dtype=np.uint8)
        requests.append(self.comm.Irecv([token, MPI.BYTE], peer, _TOKEN))
        while not MPI.Request.Testall(requests):
            time.sleep(_EMULATED_NAP_S)
