"""Engines: one rank's part of a schedule over the point-to-point calls of a back end.

Messages are told apart by tags where the back end honours them, as gloo does; each is sent as soon
as its data is there. Back ends that do not, as NCCL, make rounds of grouped calls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from torch import Tensor

from teccl.rounds.model import RankRounds, Sum, Transfer, sums_of
from teccl.runtime.program import SCRATCH, Place, Program

Combine = Callable[..., Tensor]
Buffers = Mapping[int, Tensor]


class PeerFailed(Exception):  # noqa: N818, it says who failed
    """A call to or from a rank of the group failed."""

    def __init__(self, peer: int, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.peer, self.reason = peer, reason


def _failed(peer: int, reason: BaseException) -> NoReturn:
    raise PeerFailed(peer, reason) from reason


def _view(buffers: Buffers, place: Place) -> Tensor:
    return buffers[place.buffer][place.start : place.stop]


def _add(buffers: Buffers, sums: Sequence[Sum], combine: Combine | None) -> None:
    for left, right, out in sums:
        if right is None:
            _view(buffers, out).copy_(_view(buffers, left))
        else:
            assert combine is not None
            combine(_view(buffers, left), _view(buffers, right), out=_view(buffers, out))


def _copy(buffers: Buffers, copies: Sequence[tuple[Place, Place]]) -> None:
    for source, target in copies:
        there, here = _view(buffers, target), _view(buffers, source)
        if there.data_ptr() != here.data_ptr():
            there.copy_(here)


class MessageEngine:
    """A program that sends each message as soon as its data is there.

    Receives all have places of their own and are posted at the start. They are awaited in the
    schedule's order of arrival: of all messages that have not come, the first in that order can
    be sent, so some rank always goes on.

    Parameters
    ----------
    program
        One rank's part.
    peers
        Rank in the group of each GPU rank.
    """

    def __init__(self, program: Program, peers: Mapping[int, int]) -> None:
        self.scratch = program.scratch
        self._copies = program.copies
        self._receives = [
            (peers[receive.peer], receive.tag, receive.place, receive.step)
            for receive in program.receives
        ]
        self._waits = [step.waits for step in program.steps]
        self._sums = [sums_of(step) for step in program.steps]
        self._followers = program.followers
        self._free: list[int] = []
        self._released: list[list[int]] = [[] for _ in program.steps]
        self._departures = []
        for i, departure in enumerate(program.departures):
            remote = [(peers[t.peer], t.tag) for t in departure.targets if t.step is None]
            local = [t.step for t in departure.targets if t.step is not None]
            self._departures.append((departure.place, remote, local))
            (self._free if departure.after is None else self._released[departure.after]).append(i)

    def run(self, wire: Any, buffers: Buffers, combine: Combine | None) -> None:
        """Execute the program once; returns when this rank's part is done.

        Raises
        ------
        PeerFailed
            If a message fails.
        """
        _copy(buffers, self._copies)
        works = []
        for peer, tag, place, _ in self._receives:
            try:
                works.append(wire.recv([_view(buffers, place)], peer, tag))
            except (RuntimeError, ValueError) as reason:
                _failed(peer, reason)
        run = _Run(self, wire, buffers, combine)
        run.start(self._free)
        for work, (peer, _, _, step) in zip(works, self._receives, strict=True):
            try:
                work.wait()
            except RuntimeError as reason:
                _failed(peer, reason)
            run.deliver(step)
        run.finish()


class _Run:
    """The state of one execution."""

    def __init__(
        self, engine: MessageEngine, wire: Any, buffers: Buffers, combine: Combine | None
    ) -> None:
        self.engine, self.wire, self.buffers, self.combine = engine, wire, buffers, combine
        self.left = engine._waits.copy()  # noqa: SLF001, a part of the engine
        self.sent: list[tuple[int, Any]] = []

    def start(self, departures: Sequence[int]) -> None:
        """Send what is ready."""
        for i in departures:
            place, remote, local = self.engine._departures[i]  # noqa: SLF001
            for peer, tag in remote:
                try:
                    work = self.wire.send([_view(self.buffers, place)], peer, tag)
                except (RuntimeError, ValueError) as reason:
                    _failed(peer, reason)
                self.sent.append((peer, work))
            for step in local:
                self.deliver(step)

    def deliver(self, step: int) -> None:
        """Count one message or step that a step waits for; go on from it once it is complete."""
        engine, pending = self.engine, [step]
        while pending:
            current = pending.pop()
            self.left[current] -= 1
            if self.left[current]:
                continue
            _add(self.buffers, engine._sums[current], self.combine)  # noqa: SLF001
            self.start(engine._released[current])  # noqa: SLF001
            pending.extend(engine._followers[current])  # noqa: SLF001

    def finish(self) -> None:
        """Wait until others have taken everything."""
        for peer, work in self.sent:
            try:
                work.wait()
            except RuntimeError as reason:
                _failed(peer, reason)


class RoundEngine:
    """Rounds of grouped sends and receives, sums in between.

    On a CUDA device everything is queued on the current stream and nothing blocks the host.

    Parameters
    ----------
    rounds
        One rank's part.
    peers
        Rank in the group of each GPU rank.
    """

    def __init__(self, rounds: RankRounds, peers: Mapping[int, int]) -> None:
        self.scratch = rounds.scratch
        self._rounds, self._peers = rounds, peers

    def run(self, wire: Any, buffers: Buffers, combine: Combine | None) -> None:
        """Execute the rounds once.

        Raises
        ------
        PeerFailed
            If a message fails.
        """
        _copy(buffers, self._rounds.copies)
        _add(buffers, self._rounds.first, combine)
        for each in self._rounds.rounds:
            grouped = (
                self._coalesced if getattr(wire, "supports_coalescing", False) else self._single
            )
            grouped(wire, buffers, each.sends, each.receives)
            _add(buffers, each.sums, combine)

    def _coalesced(
        self,
        wire: Any,
        buffers: Buffers,
        sends: Sequence[Transfer],
        receives: Sequence[Transfer],
    ) -> None:
        """Make one group of calls, as NCCL wants it."""
        device = next(iter(buffers.values())).device
        wire._start_coalescing(device)  # noqa: SLF001, torch has no public name for it
        self._calls(wire, buffers, sends, receives)
        work = wire._end_coalescing(device)  # noqa: SLF001
        if work is not None:
            work.wait()

    def _single(
        self,
        wire: Any,
        buffers: Buffers,
        sends: Sequence[Transfer],
        receives: Sequence[Transfer],
    ) -> None:
        """Make the calls one by one and wait for all of them."""
        for peer, work in self._calls(wire, buffers, sends, receives):
            try:
                work.wait()
            except RuntimeError as reason:
                _failed(peer, reason)

    def _calls(
        self,
        wire: Any,
        buffers: Buffers,
        sends: Sequence[Transfer],
        receives: Sequence[Transfer],
    ) -> list[tuple[int, Any]]:
        works = []
        for calls, make in ((receives, wire.recv), (sends, wire.send)):
            for call in calls:
                peer = self._peers[call.peer]
                try:
                    # One tag for all: only the order tells messages apart, as with NCCL.
                    works.append((peer, make([_view(buffers, call.place)], peer, 0)))
                except (RuntimeError, ValueError) as reason:
                    _failed(peer, reason)
        return works


def buffers_of(
    send: Tensor | None, recv: Tensor | None, scratch: Tensor, like: Tensor
) -> dict[int, Tensor]:
    """Return a call's buffers by the numbers that places have."""
    empty = like.new_empty(0)
    return {
        0: empty if send is None else send,
        1: empty if recv is None else recv,
        SCRATCH: scratch,
    }
