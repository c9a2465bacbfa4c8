"""Runner: executes schedules for one group, and remembers what is prepared for which size."""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from teccl.errors import RunError
from teccl.torch.calls import Call
from teccl.torch.engines import PeerFailed, engine_of
from teccl.torch.failures import Faults
from teccl.torch.plans import Entry
from teccl.torch.turns import Turns
from teccl.torch.works import CallWork

Combine = Callable[..., Tensor]
# Prepared programs that are kept: a training step uses a few dozen different sizes.
_KEPT = 64
# A tag that no schedule comes to.
_NO_TAG = 2**31 - 1
# How long the end of a group waits for calls under way.
_STOP_S = 5.0


class Runner:
    """Schedules on the point-to-point calls of a back end.

    Parameters
    ----------
    rank
        This rank in the group.
    wires
        The back end to send with, by type of device.
    faults
        What turns errors of the back end into errors of the group.
    below
        Back ends of the inner group, which end with this one.
    lowering
        ``"messages"`` or ``"rounds"``; None takes messages on CPUs and rounds elsewhere.
    """

    def __init__(
        self,
        rank: int,
        wires: Mapping[str, Any],
        faults: Faults,
        *,
        below: Sequence[Any] = (),
        lowering: str | None = None,
    ) -> None:
        self._rank, self._wires, self._faults = rank, dict(wires), faults
        self._below = tuple(below)
        self._lowering = lowering
        self._turns = Turns("teccl")
        self._joined: set[str] = set()
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._engines: OrderedDict[tuple[int, int, bool], Any] = OrderedDict()
        # What calls return that are over by then: nobody holds it beyond a wait.
        self._done = CallWork(())
        self._done.succeed()
        faults.on_break = self.close_wires

    def run(self, entry: Entry, call: Call, combine: Combine | None, *, now: bool) -> CallWork:
        """Execute a schedule.

        Parameters
        ----------
        now
            Whether the caller waits for it anyway.
        """
        like = call.tensor
        if not like.is_cpu:
            from teccl.torch.streams import run_on_stream

            work = CallWork(call.results, (like.device,))
            run_on_stream(call, work, lambda: self._guarded(entry, call, combine))
            return work
        if now and self._turns.take():
            try:
                self._guarded(entry, call, combine)
            finally:
                self._turns.give()
            return self._done
        work = CallWork(call.results)
        self._turns.queue(lambda: self._queued(entry, call, combine, work))
        return work

    def _queued(self, entry: Entry, call: Call, combine: Combine | None, work: CallWork) -> None:
        """Execute a schedule; whatever goes wrong is told to who waits."""
        try:
            self._faults.check()
            self._guarded(entry, call, combine)
        except BaseException as problem:  # noqa: BLE001, who waits must hear of it
            work.fail(problem)
        else:
            work.succeed()

    def _guarded(self, entry: Entry, call: Call, combine: Combine | None) -> None:
        """Execute a schedule; what the back end raises becomes an error of the group."""
        try:
            self._made(entry, call, combine)
        except RunError:
            raise
        except PeerFailed as failure:
            problem = self._faults.of(failure.reason, failure.peer, str(call.collective))
            raise problem from None
        except Exception as reason:  # noqa: BLE001, all become errors of the group
            raise self._faults.of(reason, None, str(call.collective)) from None
        except BaseException:
            self._faults.interrupt(str(call.collective))
            raise

    def _made(self, entry: Entry, call: Call, combine: Combine | None) -> None:
        like, send = call.tensor, call.send
        device = "cpu" if like.is_cpu else like.device.type
        if device != "cpu":
            self._join(like)
        engine = self._engine(entry, call.elements, in_rounds=self._in_rounds(device))
        aside = send.numel() if send is not None and call.is_staged else 0
        room = self._room(engine.scratch + aside, like) if engine.scratch or aside else None
        if send is not None and room is not None and aside:
            send = room[engine.scratch :].copy_(send)
        engine.run(self._wires[device], (send, call.recv, room), combine)
        for target, source in call.copies:
            target.copy_(source)

    def _room(self, count: int, like: Tensor) -> Tensor:
        """Return memory for a call: on a CPU, where calls follow each other, the same again."""
        if not like.is_cpu:
            return torch.empty(count, dtype=like.dtype, device=like.device)
        size = count * like.element_size()
        if self._memory.numel() < size:
            self._memory = torch.empty(size, dtype=torch.uint8)
        return self._memory[:size].view(like.dtype)

    def _join(self, tensor: Tensor) -> None:
        """Let all ranks meet before the first round: NCCL wants all of them in its first call."""
        kind = tensor.device.type
        if kind not in self._joined:
            self._joined.add(kind)
            self._wires[kind].allreduce([tensor.new_zeros(1)]).wait()

    def _in_rounds(self, device: str) -> bool:
        if self._lowering is None:
            return device != "cpu"
        return self._lowering == "rounds"

    def _engine(self, entry: Entry, count: int, *, in_rounds: bool) -> Any:
        key = (id(entry), count, in_rounds)
        if key not in self._engines:
            peers = {gpu: i for i, gpu in enumerate(entry.members)}
            gpu = entry.members[self._rank]
            self._engines[key] = engine_of(entry.executable, gpu, count, peers, in_rounds=in_rounds)
            if len(self._engines) > _KEPT:
                self._engines.popitem(last=False)
        self._engines.move_to_end(key)
        return self._engines[key]

    def close_wires(self) -> None:
        """Let go of the back ends, so that ranks that wait for this one notice."""
        for wire in (*self._wires.values(), *self._below):
            if isinstance(wire, dist.ProcessGroupGloo):
                _close_gloo(wire)
            elif hasattr(wire, "abort"):
                wire.abort()
        self._wires.clear()

    def stop(self) -> None:
        """End after the calls under way."""
        self._turns.stop(_STOP_S)


def _close_gloo(wire: Any) -> None:
    """Close all connections of a gloo group, which has no call for it.

    A receive that times out closes them: gloo takes a connection for lost then.
    """
    for peer in range(wire.size()):
        if peer != wire.rank():
            with contextlib.suppress(RuntimeError):
                wire.recv([torch.empty(1)], peer, _NO_TAG).wait(timedelta(milliseconds=1))
