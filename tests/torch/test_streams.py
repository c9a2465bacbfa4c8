"""Calls on a device's stream, on a stand-in for the device: who waits for which stream."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from tests.torch.ranks import needs_torch

pytestmark = needs_torch()


class Device:
    """The streams of a device that does nothing, and notes what it was asked for."""

    def __init__(self) -> None:
        self.current, self.log = "main", []

    def Stream(self, _device):  # noqa: N802, torch's names
        return SimpleNamespace(name="side", wait_stream=lambda other: self.note("side", other.name))

    def Event(self):  # noqa: N802
        return SimpleNamespace(record=lambda _stream: None, query=lambda: False)

    def note(self, stream: str, awaited: str) -> None:
        """Note that a stream waits for another, or for an event."""
        self.log.append(f"{stream} waits for {awaited}")

    def current_stream(self, _device):
        """Return the stream that calls go to now."""
        name = self.current
        return SimpleNamespace(name=name, wait_event=lambda _event: self.note(name, "event"))

    @contextmanager
    def stream(self, stream):
        """Make a stream the current one."""
        before, self.current = self.current, stream.name
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def device(monkeypatch) -> Device:
    """A device whose streams `teccl.torch.streams` takes."""
    from teccl.torch import streams

    found = Device()
    monkeypatch.setattr(streams, "_module", lambda _device: found)
    monkeypatch.setattr(streams, "_STREAMS", {})
    return found


def run(make):
    """Run a call on the stand-in."""
    import torch

    from teccl.torch.streams import run_on_stream
    from teccl.torch.works import CallWork

    tensor = SimpleNamespace(device=torch.device("xpu", 0), record_stream=lambda _stream: None)
    work = CallWork(["result"])
    run_on_stream(SimpleNamespace(tensor=tensor, send=tensor, recv=None), work, make)
    return work


def test_a_call_is_queued_behind_the_callers_stream_on_one_of_its_own(device):
    """The host goes on, and the caller's stream waits only when it is asked to."""
    made = []
    work = run(lambda: made.append(device.current))
    assert made == ["side"]
    assert device.log == ["side waits for main"]
    assert not work.is_completed()
    work.wait()
    assert device.log == ["side waits for main", "main waits for event"]


def test_a_future_that_is_asked_for_later_belongs_to_the_calls_stream(device, monkeypatch):
    """Its callbacks would otherwise run before the device has written the result."""
    import torch

    work, seen = run(lambda: None), []
    future = SimpleNamespace(set_result=lambda _result: seen.append(device.current))
    monkeypatch.setattr(torch.futures, "Future", lambda **_options: future)
    work.get_future()
    assert seen == ["side"]


def test_a_call_that_cannot_be_queued_fails_at_once(device):
    """The caller hears of it, and so does who waits."""

    def fail() -> None:
        raise RuntimeError("no device")

    with pytest.raises(RuntimeError, match="no device"):
        run(fail)
    assert device.current == "main"
