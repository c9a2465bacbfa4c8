"""What compiled kernels need of the environment, and how long loading and compiling them takes."""

import os
import threading
import time
from functools import cache
from typing import Any

from teccl.errors import InputError

_THREADS = "NUMBA_NUM_THREADS"


def check_environment() -> None:
    """Refuse a number of threads that numba does not take.

    Raises
    ------
    InputError
        If the environment names something else than a positive number.
    """
    value = os.environ.get(_THREADS)
    if value is None:
        return
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InputError(
            f"environment variable {_THREADS} is {value[:40]!r}; give a positive number or unset it"
        )


class _Compiling:
    """Counts the seconds in which any thread of this process compiles or loads kernels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._began = self._total = 0.0

    def begin(self) -> None:
        """Count until as many ends were told as beginnings."""
        with self._lock:
            if not self._depth:
                self._began = time.perf_counter()
            self._depth += 1

    def end(self) -> None:
        """End what was begun last."""
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._total += time.perf_counter() - self._began

    def others_s(self) -> float:
        """Return the clock, which stands still while this counts."""
        with self._lock:
            return (self._began if self._depth else time.perf_counter()) - self._total


_COMPILING = _Compiling()


@cache
def watch_compiler() -> None:
    """Let `solving_clock` know when numba compiles a kernel or loads one, which it does on call."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, _: Any) -> None:
            _COMPILING.begin()

        def on_end(self, _: Any) -> None:
            _COMPILING.end()

    event.register("numba:compiler_lock", Listener())


def solving_clock() -> float:
    """Return seconds of a clock that stands still while kernels are compiled or loaded.

    Kernels are compiled when they are first called after installation, and then kept. That may take
    a minute and is no part of solving.
    """
    return _COMPILING.others_s()
