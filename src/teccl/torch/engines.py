"""Engines: one rank's part of a schedule over the point-to-point calls of a back end.

Messages are told apart by tags where the back end honours them, as gloo does; each is sent as soon
as its data is there. Back ends that do not, as NCCL, make rounds of grouped calls. A schedule that
is a plain exchange of blocks is one call of the back end, which sends the same messages.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from teccl.rounds.executable import Executable
from teccl.rounds.round_steps import RankRounds, Sum, Transfer, sums_of
from teccl.runtime.rank_program import Place, RankProgram

Combine = Callable[..., Tensor]
# A rank's send buffer, its recv buffer and scratch, which places number 0, 1 and -1. A buffer that
# a rank has not got is any tensor, or None: no place is in it.
Buffers = tuple[Tensor | None, Tensor | None, Tensor | None]

# Types that gloo exchanges in every version; others go as bytes.
_EXCHANGED = frozenset((torch.float32, torch.float64, torch.float16, torch.int32, torch.int64))
_EXCHANGE = dist.AllToAllOptions()


class PeerFailed(Exception):  # noqa: N818, it says who failed
    """A call to or from a rank of the group failed."""

    def __init__(self, peer: int, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.peer, self.reason = peer, reason


def _failed(peer: int, reason: BaseException) -> NoReturn:
    raise PeerFailed(peer, reason) from reason


def _view(buffers: Buffers, place: Place) -> Tensor:
    buffer, start, stop = place
    found = buffers[buffer]
    assert found is not None
    return found[start:stop]


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
        # An own block that lies where it belongs needs no copy.
        if there.data_ptr() != here.data_ptr():
            there.copy_(here)


class _Post(NamedTuple):
    """A message that is sent or received from the start on."""

    is_send: bool
    place: Place
    peer: int
    tag: int


class MessageEngine:
    """A program that sends each message as soon as its data is there.

    Receives all have places of their own and are posted at the start, in turn with the sends that
    wait for nothing. They are awaited in the schedule's order of arrival: of all messages that
    have not come, the first in that order can be sent, so some rank always goes on.

    Parameters
    ----------
    program
        One rank's part.
    peers
        Rank in the group of each GPU rank.
    """

    def __init__(self, program: RankProgram, peers: Mapping[int, int]) -> None:
        self.scratch = program.scratch
        self.waits = [step.waits for step in program.steps]
        self.sums = [sums_of(step) for step in program.steps]
        self.followers = program.followers
        self.sends: list[list[_Post]] = [[] for _ in program.steps]
        self.passed_on: list[list[int]] = [[] for _ in program.steps]
        first: list[_Post] = []
        self._passed_on_first: list[int] = []
        for departure in program.departures:
            after = departure.after
            sends = first if after is None else self.sends[after]
            local = self._passed_on_first if after is None else self.passed_on[after]
            for target in departure.targets:
                if target.step is None:
                    sends.append(_Post(True, departure.place, peers[target.peer], target.tag))
                else:
                    local.append(target.step)
        # Each rank begins with its neighbours, so that not all begin with the same one.
        me, size = peers[program.rank], len(peers)
        first.sort(key=lambda post: (post.peer - me) % size)
        posts = [_Post(False, r.place, peers[r.peer], r.tag) for r in program.receives]
        order = sorted(range(len(posts)), key=lambda i: (me - posts[i].peer) % size)
        pairs = zip_longest(first, (posts[i] for i in order))
        self._opening = [post for pair in pairs for post in pair if post is not None]
        place = {i: at for at, i in enumerate(order)}
        # By time of arrival: which receive, from whom, and what it sets off, if anything.
        self._arrivals = [
            (place[i], posts[i].peer, receive.step if self._matters(receive.step) else None)
            for i, receive in enumerate(program.receives)
        ]
        self._is_active = any(self._matters(step) for step in range(len(program.steps)))
        # Copies may come last unless what they make is sent.
        made = {target for _, target in program.copies}
        self._copies = program.copies
        self._copies_first = any(_overlaps(post.place, made) for post in first)

    def _matters(self, step: int) -> bool:
        parts = self.sums, self.followers, self.sends, self.passed_on
        return any(part[step] for part in parts)

    def run(self, wire: Any, buffers: Buffers, combine: Combine | None) -> None:
        """Execute the program once; returns when this rank's part is done.

        Raises
        ------
        PeerFailed
            If a message fails.
        """
        if self._copies_first:
            _copy(buffers, self._copies)
        sent: list[tuple[int, Any]] = []
        came = _post(wire, buffers, self._opening, sent)
        if not self._copies_first:
            _copy(buffers, self._copies)
        run = None
        if self._is_active:
            run = _Run(self, wire, buffers, combine, sent)
            for step in self._passed_on_first:
                run.deliver(step)
        for place, peer, awaited in self._arrivals:
            try:
                came[place].wait()
            except RuntimeError as reason:
                _failed(peer, reason)
            if run is not None and awaited is not None:
                run.deliver(awaited)
        for peer, work in sent:
            try:
                work.wait()
            except RuntimeError as reason:
                _failed(peer, reason)


def _overlaps(place: Place, others: set[Place]) -> bool:
    return any(
        place.buffer == other.buffer and place.start < other.stop and other.start < place.stop
        for other in others
    )


def _post(
    wire: Any, buffers: Buffers, posts: Sequence[_Post], sent: list[tuple[int, Any]]
) -> list[Any]:
    """Start messages: note the sends, and return the receives."""
    send, recv, came = wire.send, wire.recv, []
    peer = -1
    try:
        for is_send, (buffer, start, stop), peer, tag in posts:
            view = [buffers[buffer][start:stop]]  # type: ignore[index]  # no place is in None
            if is_send:
                sent.append((peer, send(view, peer, tag)))
            else:
                came.append(recv(view, peer, tag))
    except (RuntimeError, ValueError) as reason:
        _failed(peer, reason)
    return came


class _Run:
    """The state of one execution."""

    def __init__(
        self,
        engine: MessageEngine,
        wire: Any,
        buffers: Buffers,
        combine: Combine | None,
        sent: list[tuple[int, Any]],
    ) -> None:
        self.engine, self.wire, self.buffers, self.combine = engine, wire, buffers, combine
        self.left, self.sent = engine.waits.copy(), sent

    def deliver(self, step: int) -> None:
        """Count one message or step that a step waits for; go on from it once it is complete."""
        engine, pending = self.engine, [step]
        while pending:
            current = pending.pop()
            self.left[current] -= 1
            if self.left[current]:
                continue
            _add(self.buffers, engine.sums[current], self.combine)
            _post(self.wire, self.buffers, engine.sends[current], self.sent)
            pending += engine.passed_on[current]
            pending += engine.followers[current]


class ExchangeEngine:
    """A block from every rank straight to every other, as one call of the back end.

    The call makes the messages of the schedule; nothing has to wait for any of them, so that all
    that Python would do is to start them one by one.
    """

    scratch = 0

    def run(self, wire: Any, buffers: Buffers, combine: Combine | None) -> None:  # noqa: ARG002
        """Exchange all blocks.

        Raises
        ------
        RuntimeError
            If a message fails; the back end does not say whose.
        """
        send, recv, _ = buffers
        assert send is not None
        assert recv is not None
        if send.dtype not in _EXCHANGED:
            send, recv = send.view(torch.uint8), recv.view(torch.uint8)
        wire.alltoall_base(recv, send, [], [], _EXCHANGE).wait()


class RoundEngine:
    """Rounds of grouped sends and receives, sums in between.

    On a GPU everything is queued on the current stream and nothing blocks the host.

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
        device = next(buffer.device for buffer in buffers if buffer is not None)
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


def engine_of(
    executable: Executable, gpu: int, count: int, peers: Mapping[int, int], *, in_rounds: bool
) -> MessageEngine | ExchangeEngine | RoundEngine:
    """Return what executes one GPU's part of a schedule.

    Parameters
    ----------
    count
        Elements, as nccl-tests counts them.
    peers
        Rank in the group of each GPU rank; all ranks of the group must be among them.
    in_rounds
        Whether only the order tells messages apart.
    """
    if in_rounds:
        return RoundEngine(executable.rank_rounds(gpu, count), peers)
    program = executable.program(gpu, count)
    members = program.layouts[0].tenant.members(executable.schedule.problem.topology.num_gpus)
    # A call of the back end is made by all ranks of the group.
    if executable.is_exchange and set(members) == set(peers):
        return ExchangeEngine()
    return MessageEngine(program, peers)
