"""Streams: schedules queued on a CUDA stream of their own, which the caller's stream waits for."""

from collections.abc import Callable
from typing import Any

import torch

from teccl.torch.calls import Call
from teccl.torch.works import CallWork

_STREAMS: dict[torch.device, Any] = {}


class StreamWork:
    """The end of a call on a stream, for `CallWork` to wait on."""

    def __init__(self, device: torch.device, event: Any) -> None:
        self._device, self._event = device, event

    def synchronize(self) -> None:
        """Let the current stream wait; the host goes on."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def is_done(self) -> bool:
        """Whether the device has come so far."""
        return bool(self._event.query())


def run_on_stream(call: Call, work: CallWork, make: Callable[[], None]) -> None:
    """Queue a call behind what the current stream has, beside what it will get.

    Parameters
    ----------
    make
        Queues the call's messages and sums on the current stream.
    """
    device = call.tensor.device
    side = _STREAMS.setdefault(device, torch.cuda.Stream(device))
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        try:
            make()
        except BaseException as problem:
            work.fail(problem)
            raise
        event = torch.cuda.Event()
        event.record(side)
        for tensor in (call.send, call.recv):
            if tensor is not None:
                # The memory may be given to others only when this stream is through with it.
                tensor.record_stream(side)
        work.succeed(StreamWork(device, event))
