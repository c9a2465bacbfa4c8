"""Apart: a search in a thread of its own, which is left behind where it does not end when asked."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from teccl.progress import CancelToken
from teccl.result import Status

# Seconds between looks at the thread.
_POLL_S = 0.05


class Ending(NamedTuple):
    """How a search ended, and what there is to say where it found nothing."""

    status: Status
    message: str


def run_apart(work: Callable[[], Ending], cancel: CancelToken, patience_s: float) -> Ending | None:
    """Do work in a thread; None if it did not end within its patience after a cancel.

    Kernels and solvers release the interpreter's lock, so that this thread hears signals while
    they work; nothing else could end them.
    """
    ended: list[Ending | BaseException] = []

    def target() -> None:
        try:
            ended.append(work())
        except BaseException as problem:  # noqa: BLE001, raised again where it is waited for
            ended.append(problem)

    thread = threading.Thread(target=target, name="teccl-search", daemon=True)
    thread.start()
    deadline: float | None = None
    while thread.is_alive():
        thread.join(_POLL_S)
        if cancel.is_cancelled:
            deadline = deadline or time.monotonic() + patience_s
            if time.monotonic() > deadline and thread.is_alive():
                return None
    (found,) = ended
    if isinstance(found, BaseException):
        raise found
    return found
