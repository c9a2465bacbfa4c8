"""Streams: schedules queued on a device's stream of their own, which the caller's waits for."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from teccl.torch.calls import Call
from teccl.torch.works import CallWork

_STREAMS: dict[torch.device, Any] = {}


def _module(device: torch.device) -> Any:
    """Return the part of torch that has the streams of a type of device: torch.cuda, torch.xpu."""
    return getattr(torch, device.type)


class StreamWork:
    """The end of a call on a stream, for `CallWork` to wait on."""

    def __init__(self, device: torch.device, stream: Any, event: Any) -> None:
        self._device, self._stream, self._event = device, stream, event

    def inside(self) -> AbstractContextManager[Any]:
        """Make the call's stream the current one, for futures that take note of it."""
        found: AbstractContextManager[Any] = _module(self._device).stream(self._stream)
        return found

    def synchronize(self) -> None:
        """Let the current stream wait; the host goes on."""
        _module(self._device).current_stream(self._device).wait_event(self._event)

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
    module = _module(device)
    if device not in _STREAMS:
        _STREAMS[device] = module.Stream(device)
    side = _STREAMS[device]
    side.wait_stream(module.current_stream(device))
    with module.stream(side):
        try:
            make()
        except BaseException as problem:
            work.fail(problem)
            raise
        event = module.Event()
        event.record(side)
        for tensor in (call.send, call.recv):
            if tensor is not None:
                # The memory may be given to others only when this stream is through with it.
                tensor.record_stream(side)
        work.succeed(StreamWork(device, side, event))
