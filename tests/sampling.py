"""Which of many cases the quick suite has: some of each kind, the others are slow."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Mark all but every n-th of some cases as slow; tuples are several arguments.

    A step that shares no factor with the lengths of a product keeps every value of every argument.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if i % every == 0 else pytest.mark.slow,
        )
        for i, case in enumerate(cases)
    ]


def counts(quick: int, full: int) -> list[Any]:
    """Return two numbers of repeats, of which the larger one is slow."""
    return [quick, pytest.param(full, marks=pytest.mark.slow)]
