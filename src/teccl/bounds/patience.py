"""Patience: how long bounds may still be looked for, where the user has given a time limit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

_LEFT: ContextVar[Callable[[], float] | None] = ContextVar("seconds left for bounds", default=None)
# Solvers take no limit of nought.
_LEAST_S = 0.01


@contextmanager
def limited_to(left_s: Callable[[], float]) -> Iterator[None]:
    """Let bounds end when no seconds are left: what was proven until then holds.

    Parameters
    ----------
    left_s
        Returns how many are left, infinitely many where there is no limit.
    """
    before = _LEFT.set(left_s)
    try:
        yield
    finally:
        _LEFT.reset(before)


def is_over() -> bool:
    """Whether no time is left."""
    left = _LEFT.get()
    return left is not None and left() <= 0


def solver_limit_s() -> float:
    """Return the seconds that a solver may take."""
    left = _LEFT.get()
    return inf if left is None else max(_LEAST_S, left())
