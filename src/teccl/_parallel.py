"""Two computations at a time, where schedules are so large that a second core pays."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_First = TypeVar("_First")
_Second = TypeVar("_Second")

# Sends from which on a thread costs less than it saves: numpy lets go of the interpreter while it
# sorts and adds.
LARGE_SENDS = 500_000


def both(
    first: Callable[[], _First], second: Callable[[], _Second], *, num_sends: int
) -> tuple[_First, _Second]:
    """Return what two functions that share nothing they change return, together if it pays."""
    if num_sends < LARGE_SENDS:
        return first(), second()
    with ThreadPoolExecutor(max_workers=1) as pool:
        later = pool.submit(second)
        return first(), later.result()
