"""Lower bounds: how good a schedule can be at best, and what binds."""

from teccl.bounds.model import Bound
from teccl.bounds.summary import all_bounds, summarise

__all__ = ["Bound", "all_bounds", "summarise"]
