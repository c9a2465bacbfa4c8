"""Two constructions at a time, on two cores."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


def side_by_side(function: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
    """Call a function that spends its time in compiled code for several arguments."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(function, given))
