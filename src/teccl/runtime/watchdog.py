"""Watchdog: ends a rank that hangs inside MPI, or whose launcher has gone."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

# The environment variable that names the process which supervises local ranks.
SUPERVISOR = "TECCL_SUPERVISOR"
_LOOK_EVERY_S = 0.25
# Importing libraries and starting MPI takes a while on a busy machine.
_START_S = 60.0
# What a rank prints is lost if it ends before its launcher has passed it on.
_FORWARD_S = 0.25
# How long an orderly abort may take before the rank leaves by itself.
_ABORT_S = 2.0
EXIT_CODE = 1


class Watchdog:
    """A thread that expects a sign of life every so often.

    Parameters
    ----------
    timeout
        Seconds without one after which the rank ends, None for no limit. The first may come a
        minute later.
    on_timeout
        What to do before the rank ends: tell the user.
    on_beat
        What to do at each sign of life.
    on_orphaned
        What to do before the rank ends because its supervisor has gone: clean up after that.
    """

    def __init__(
        self,
        timeout: float | None,
        on_timeout: Callable[[], None],
        on_beat: Callable[[], None] | None = None,
        on_orphaned: Callable[[], None] | None = None,
    ) -> None:
        self._timeout, self._on_timeout, self._on_beat = timeout, on_timeout, on_beat
        self._on_orphaned = on_orphaned
        self._last = time.monotonic() + _START_S
        self._stop = threading.Event()
        supervisor = os.environ.get(SUPERVISOR, "")
        self._supervisor = int(supervisor) if supervisor.isdigit() else None
        self._thread = threading.Thread(target=self._watch, name="teccl-watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def beat(self) -> None:
        """Give a sign of life."""
        self._last = time.monotonic()
        if self._on_beat is not None:
            self._on_beat()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            if self._supervisor is not None and not _exists(self._supervisor):
                if self._on_orphaned is not None:
                    self._on_orphaned()
                os._exit(EXIT_CODE)
            if self._timeout is not None and time.monotonic() - self._last > self._timeout:
                self._on_timeout()
                end_all_ranks(EXIT_CODE)


def end_all_ranks(code: int) -> None:
    """End every rank of this MPI program; does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_FORWARD_S)
    thread = threading.Thread(target=_abort, args=(code,), daemon=True)
    thread.start()
    thread.join(_ABORT_S)
    os._exit(code)


def _abort(code: int) -> None:
    module: Any = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized() and not module.Is_finalized():
        module.COMM_WORLD.Abort(code)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
