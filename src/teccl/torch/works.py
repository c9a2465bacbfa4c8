"""Works: calls under way, and what waits for them."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from teccl.errors import RunError


class Pending(Protocol):
    """What a device has still to do for a call that the host is through with."""

    def synchronize(self) -> None:
        """Let the current stream wait for it."""

    def is_done(self) -> bool:
        """Whether the device has done it."""

    def inside(self) -> AbstractContextManager[Any]:
        """Make the call's stream the current one."""


# Before version 2.7, torch forgot the Python part of a work that only C++ still held, and then
# waited for ever. There, works are kept until somebody has waited for them.
_KEPT: set[dist.Work] | None = set() if torch.__version__ < "2.7" else None


class _Kept(dist.Work):
    """A work that lives until it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        if _KEPT is not None:
            _KEPT.add(self)

    def _let_go(self) -> None:
        if _KEPT is not None:
            _KEPT.discard(self)


# Held for a moment by whoever ends a call or begins to wait for one.
_ENDING = threading.Lock()


class CallWork(_Kept):
    """A call of this group; `wait` raises what went wrong.

    Most calls are over when the caller looks, so that an event to wait for and a future are made
    only when they are asked for.
    """

    def __init__(self, results: Sequence[object], devices: Sequence[torch.device] = ()) -> None:
        super().__init__()
        self._results, self._devices = results, devices
        self._is_done = False
        self._done: threading.Event | None = None
        self._future: Any = None
        self._pending: Pending | None = None
        self._problem: BaseException | None = None

    def succeed(self, pending: Pending | None = None) -> None:
        """Note that the call is done, but for what a device has still to do."""
        self._pending = pending
        self._end()

    def fail(self, problem: BaseException) -> None:
        """Note what went wrong."""
        self._problem = problem
        self._end()

    def _end(self) -> None:
        with _ENDING:
            self._is_done = True
        if self._done is not None:
            self._done.set()
        if self._future is not None:
            self._complete(self._future)

    def _complete(self, future: Any) -> None:
        if self._problem is not None:
            future.set_exception(self._problem)
            return
        # A future lets those who wait for it wait for the stream that is current now.
        with nullcontext() if self._pending is None else self._pending.inside():
            future.set_result(list(self._results))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the call; zero and None are without limit."""
        if not self._is_done:
            self._wait_for_end(timeout)
        self._let_go()
        if self._problem is not None:
            raise self._problem
        if self._pending is not None:
            self._pending.synchronize()
        return True

    def _wait_for_end(self, timeout: timedelta | None) -> None:
        seconds = None if timeout is None or timeout <= timedelta(0) else timeout.total_seconds()
        with _ENDING:
            if self._is_done:
                return
            self._done = self._done or threading.Event()
        if not self._done.wait(seconds):
            raise RunError(f"the call did not end within {seconds:g} s; wait longer")

    def synchronize(self) -> None:
        """Wait for the call."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the call has ended, well or not."""
        return self._is_done and (self._pending is None or self._pending.is_done())

    def is_success(self) -> bool:
        """Whether the call has ended well."""
        return self.is_completed() and self._problem is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._problem

    def result(self) -> list[object]:
        """The tensors that the call wrote."""
        return list(self._results)

    def get_future(self) -> Any:
        """Return a future of the tensors that the call writes."""
        self._let_go()
        with _ENDING:
            is_new = self._future is None
            if is_new:
                self._future = torch.futures.Future(devices=list(self._devices))
            is_late = is_new and self._is_done
        if is_late:
            self._complete(self._future)
        return self._future


class InnerWork(_Kept):
    """A call of the inner group, whose errors name the rank that caused them."""

    def __init__(self, work: Any, name: Callable[[BaseException], BaseException]) -> None:
        super().__init__()
        self._work, self._name = work, name

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the call."""
        self._let_go()
        try:
            done = self._work.wait() if timeout is None else self._work.wait(timeout)
        except RuntimeError as reason:
            raise self._name(reason) from None
        return bool(done)

    def synchronize(self) -> None:
        """Wait for the call, or let the current stream wait."""
        self._let_go()
        self._work.synchronize()

    def is_completed(self) -> bool:
        """Whether the call has ended."""
        return bool(self._work.is_completed())

    def is_success(self) -> bool:
        """Whether the call has ended well."""
        return bool(self._work.is_success())

    def exception(self) -> Any:
        """What went wrong."""
        return self._work.exception()

    def result(self) -> Any:
        """The tensors that the call wrote."""
        return self._work.result()

    def source_rank(self) -> int:
        """The rank that a receive from anyone heard."""
        return int(self._work.source_rank())

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> Any:
        """Return the call's future."""
        self._let_go()
        return self._work.get_future()


class JoinedWork(_Kept):
    """Several calls as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for all calls."""
        self._let_go()
        for work in self._works:
            if timeout is None:
                work.wait()
            else:
                work.wait(timeout)
        return True

    def synchronize(self) -> None:
        """Wait for all calls."""
        self._let_go()
        for work in self._works:
            work.synchronize()

    def is_completed(self) -> bool:
        """Whether all calls have ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all calls have ended well."""
        return all(work.is_success() for work in self._works)

    def get_future(self) -> Any:
        """Return a future of what all calls write, one after the other."""
        self._let_go()

        def together(done: Any) -> list[object]:
            return [tensor for future in done.value() for tensor in future.value()]

        return torch.futures.collect_all([work.get_future() for work in self._works]).then(together)
