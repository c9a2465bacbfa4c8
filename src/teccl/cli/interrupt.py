"""Ctrl-C while solving: the first stops the search, the second the program.

What is done before and after a search asks nobody whether to go on. Where nobody has asked for a
second, there is nothing to keep yet, and the command ends as any other does.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from teccl.cli.errors import ExitCode
from teccl.progress import CancelToken

# Seconds that a search has to end after Ctrl-C before it is left behind.
PATIENCE_S = 0.5
# Seconds after which a Ctrl-C that nobody has heard ends the command.
UNHEARD_S = 1.0
# The terminal's own "show the cursor", which a progress display hides.
_SHOW_CURSOR = "\x1b[?25h\n"


@contextmanager
def stopping_on_interrupt(token: CancelToken) -> Iterator[None]:
    """Cancel on the first SIGINT and leave at once on the second.

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
        token.cancel()
        signal.setitimer(signal.ITIMER_REAL, UNHEARD_S)

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        if not token.is_heard:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle), signal.signal(signal.SIGALRM, give_up)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGALRM, before[1])


def _leave_at_once() -> None:
    """End without unwinding: the search may be deep in a library that does not return soon."""
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os._exit(ExitCode.INTERRUPTED)
