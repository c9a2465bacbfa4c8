"""Turns: calls one after the other, on the caller's thread where none waits, else on one thread."""

import queue
import threading
from collections.abc import Callable


class Turns:
    """Lets calls be made in the order they were given.

    Parameters
    ----------
    name
        Of the thread that makes the calls that had to wait.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Held by whoever makes a call.
        self._turn = threading.Lock()
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._counting = threading.Condition()
        self._waiting = 0
        self._thread: threading.Thread | None = None

    def take(self) -> bool:
        """Take the turn for a call on this thread; False where calls wait or one is under way."""
        if not self._turn.acquire(blocking=False):
            return False
        if self._waiting:
            self._turn.release()
            return False
        return True

    def give(self) -> None:
        """Give back the turn that was taken."""
        self._turn.release()

    def queue(self, call: Callable[[], None]) -> None:
        """Let the thread make a call after all before it."""
        with self._counting:
            self._waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
        self._queue.put(call)

    def _serve(self) -> None:
        while (call := self._queue.get()) is not None:
            with self._turn:
                call()
            with self._counting:
                self._waiting -= 1
                self._counting.notify_all()

    def stop(self, timeout_s: float) -> None:
        """Wait for calls under way and end the thread."""
        with self._counting:
            self._counting.wait_for(lambda: not self._waiting, timeout_s)
        if self._turn.acquire(timeout=timeout_s):
            self._turn.release()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)
