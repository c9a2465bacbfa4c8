"""Exchanges planned in milliseconds: AllToAllv, multicasts and sums that change each step."""

from teccl.exchange.planner import Planner

__all__ = ["Planner"]
