"""Progress of long work, and the way to stop it from another thread."""

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is known at one moment of a search.

    Parameters
    ----------
    phase
        What is being done, in a word or two.
    incumbent_s
        Finish time of the best schedule so far, None before the first.
    bound_s
        What no schedule can beat, None before it is known.
    gap
        How far the incumbent may be from the best, as a fraction.
    elapsed_s
        Seconds since the start.
    message
        More about it, for people.
    """

    phase: str
    incumbent_s: float | None = None
    bound_s: float | None = None
    gap: float | None = None
    elapsed_s: float = 0.0
    message: str | None = None


ProgressCallback = Callable[[Progress], None]


class CancelToken:
    """Tells a search to stop and hand out the best it has; any thread may cancel.

    Parameters
    ----------
    patience_s
        Seconds that a search may take to end once it is cancelled. One that compiled code keeps
        busy for longer is left behind in a thread of its own, which ends with the process, and
        what it had found is handed out. None waits for it.

    Examples
    --------
    >>> token = CancelToken()
    >>> token.cancel()
    >>> token.is_cancelled
    True
    """

    __slots__ = ("_event", "_heard", "patience_s")

    def __init__(self, *, patience_s: float | None = None) -> None:
        self._event = threading.Event()
        self._heard = False
        self.patience_s = patience_s

    def cancel(self) -> None:
        """Ask the search to stop at its next chance."""
        self._event.set()

    @property
    def is_cancelled(self) -> bool:
        """Whether the search was asked to stop."""
        is_set = self._event.is_set()
        self._heard |= is_set
        return is_set

    @property
    def is_heard(self) -> bool:
        """Whether the search has asked, and so knows that it is to stop."""
        return self._heard
