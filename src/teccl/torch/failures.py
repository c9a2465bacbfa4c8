"""Faults: what a failed call says on each rank, and which rank is to blame.

A rank whose call fails tells the others through the store for whom it waited. A rank that has said
so is alive, and who it waited for is the next to ask about; the one that says nothing is the one
that died or hung.
"""

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, Any

from teccl.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable

# How long a rank that was waited for has to say that it, too, waits for another.
_SILENCE_S = 2.0
# How long all others have to say so, where it is not known who was waited for.
_PATIENCE_S = 20.0
# How long the rank that keeps the store stays for the questions of the others.
_LINGER_S = 15.0
_LOOK_EVERY_S = 0.05
# torchrun sets this where its agent keeps the store, which then outlives every rank.
_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
# Not "timeout caused pair closure", which is another rank that has given up.
_TIMED_OUT = re.compile(r"timed out|operation timeout", re.IGNORECASE)

# Words of gloo and NCCL for a rank that is gone or does not answer.
_LOSSES = (
    *("connection", "timed out", "timeout", "closed", "broken pipe", "socket"),
    *("remote process", "nccl error"),
)


class Faults:
    """A group's account of what went wrong.

    Parameters
    ----------
    store
        A store that all ranks of the group reach.
    rank
        This rank in the group.
    ranks
        Ranks of the world that the group has, in order.
    timeout_s
        Seconds after which calls below give up.
    """

    def __init__(self, store: Any, rank: int, ranks: tuple[int, ...], timeout_s: float) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._timeout_s = timeout_s
        self.broken: RunError | None = None
        # Called once when a call has failed: lets go of connections, so that others notice.
        self.on_break: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Refuse further calls once one has failed.

        Raises
        ------
        RunError
            What failed.
        """
        if self.broken is not None:
            raise RunError(f"the process group failed before: {self.broken}") from self.broken

    def of(self, reason: BaseException, peer: int | None, what: str) -> RunError:
        """Return the error that a failed call raises, and remember that the group is broken.

        Parameters
        ----------
        reason
            What the back end raised.
        peer
            The rank of the group that was waited for, None where it is not known.
        what
            What was called.
        """
        if self.broken is not None:
            return self.broken
        is_late = bool(_TIMED_OUT.search(str(reason)))
        culprits = self._culprits(peer)
        me = self._ranks[self._rank]
        who = f"rank {' or '.join(str(rank) for rank in culprits)}"
        if not culprits:
            found = RunError(f"{what} failed on rank {me}: {_first_line(reason)}")
        elif is_late:
            found = RunError(
                f"{what} on rank {me} waited {self._timeout_s:g} s for {who}; "
                "look whether it hangs or did not make the call, or give a longer timeout"
            )
        else:
            found = RunError(f"{what} failed on rank {me} because {who} died; look at its output")
        self.broken = found
        return found

    def interrupt(self, what: str) -> None:
        """Remember that a call was left half-way, and let the others notice."""
        if self.broken is None:
            me = self._ranks[self._rank]
            self.broken = RunError(f"{what} was interrupted on rank {me}; start again")
            self.on_break()

    def _culprits(self, peer: int | None) -> list[int]:
        """Follow who waited for whom to the rank that says nothing; several where that is open."""
        try:
            self._store.set(f"fault/{self._rank}", "?" if peer is None else str(peer))
            self.on_break()
            culprits = self._follow(peer)
            self._store.set(f"told/{self._rank}", "")
            self._linger(culprits)
        except (RuntimeError, OSError, ValueError):
            # The store is gone. Its keeper is the first rank unless a launcher keeps it.
            if os.environ.get(_AGENT_STORE) == "True":
                return [] if peer is None else [self._ranks[peer]]
            return [0]
        return culprits

    def _linger(self, culprits: list[int]) -> None:
        """Stay until all others know who is to blame, where the store would end with this rank."""
        if self._ranks[self._rank] != 0 or os.environ.get(_AGENT_STORE) == "True":
            return
        others = [f"told/{i}" for i, rank in enumerate(self._ranks) if rank not in (0, *culprits)]
        until = time.monotonic() + min(_LINGER_S, self._timeout_s)
        while not self._store.check(others) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)

    def _follow(self, peer: int | None) -> list[int]:
        seen = {self._rank}
        suspect = peer
        while suspect is not None and suspect not in seen:
            seen.add(suspect)
            answer = self._answer(suspect)
            if answer is None:
                return [self._ranks[suspect]]
            suspect = None if answer == "?" else int(answer)
        return self._silent()

    def _silent(self) -> list[int]:
        """Return who has said nothing once all but one have, or after some time."""
        until = time.monotonic() + min(_PATIENCE_S, self._timeout_s / 2)
        while True:
            left = [i for i in range(len(self._ranks)) if not self._store.check([f"fault/{i}"])]
            if len(left) <= 1 or time.monotonic() > until:
                return [self._ranks[i] for i in left]
            time.sleep(_LOOK_EVERY_S)

    def _answer(self, rank: int) -> str | None:
        """Return for whom a rank waited, None if it does not say."""
        key = f"fault/{rank}"
        until = time.monotonic() + _SILENCE_S
        while not self._store.check([key]):
            if time.monotonic() > until:
                return None
            time.sleep(_LOOK_EVERY_S)
        answer: str = self._store.get(key).decode()
        return answer


def is_refusal(reason: BaseException) -> bool:
    """Whether the inner group does not serve a call, rather than that a rank failed in it."""
    text = str(reason).lower()
    return not any(word in text for word in _LOSSES)


def _first_line(reason: BaseException) -> str:
    with contextlib.suppress(IndexError):
        return str(reason).strip().splitlines()[0][:200]
    return type(reason).__name__
