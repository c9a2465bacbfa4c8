"""Schedules: which chunk crosses which link when."""

from teccl.schedule.additions import SUM_DTYPE, sum_array
from teccl.schedule.sends import (
    SEND_DTYPE,
    SUM_SEND_DTYPE,
    BoundSummary,
    Schedule,
    Send,
    send_array,
)

__all__ = [
    "SEND_DTYPE",
    "SUM_DTYPE",
    "SUM_SEND_DTYPE",
    "BoundSummary",
    "Schedule",
    "Send",
    "send_array",
    "sum_array",
]
