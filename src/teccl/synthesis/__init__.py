"""Synthesis: from a request to the best schedule that its work buys, verified."""

from teccl.synthesis.solving import METHODS, run, solve

__all__ = ["METHODS", "run", "solve"]
