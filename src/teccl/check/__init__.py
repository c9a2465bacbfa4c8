"""The independent checker: whether a schedule is correct, and how long it takes.

It shares no code with what makes schedules: lengths, epochs and arrivals are computed anew here.
"""

from teccl.check.replay import Replay, simulate
from teccl.check.verification import verify
from teccl.check.violation import Violation, ViolationKind

__all__ = ["Replay", "Violation", "ViolationKind", "simulate", "verify"]
