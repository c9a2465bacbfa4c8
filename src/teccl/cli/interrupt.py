"""Ctrl-C while solving: the first stops the search, the second the program."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from teccl.cli.errors import ExitCode

# Seconds that a search has to end after Ctrl-C before it is left behind.
PATIENCE_S = 0.5
# The terminal's own "show the cursor", which a progress display hides.
_SHOW_CURSOR = "\x1b[?25h\n"


@contextmanager
def stopping_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first SIGINT and leave at once on the second.

    Off the main thread, where Python allows no handlers, nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            _leave_at_once()
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave_at_once() -> None:
    """End without unwinding: the search may be deep in a library that does not return soon."""
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os._exit(ExitCode.INTERRUPTED)
