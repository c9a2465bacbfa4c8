"""Synthesis: from a request to the best schedule that its work buys, verified."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teccl.synthesis.solving import METHODS, run, solve

__all__ = ["METHODS", "run", "solve"]


def __getattr__(name: str) -> Any:
    """Load what solves on first use: whoever only reads requests needs no strategies."""
    if name in __all__:
        return getattr(import_module("teccl.synthesis.solving"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
