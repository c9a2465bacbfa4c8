"""The judge: whether a schedule is correct, by a book of rules, one file each.

It shares no code with what makes, replays or times schedules: lengths, epochs and arrivals are
computed anew here.
"""

from teccl.verification.judgement import has_same_order, verify
from teccl.verification.violation import Violation, ViolationKind

__all__ = ["Violation", "ViolationKind", "has_same_order", "verify"]
