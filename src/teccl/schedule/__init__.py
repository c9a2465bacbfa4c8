"""Schedules: which chunk crosses which link when."""

from teccl.schedule.model import (
    SEND_DTYPE,
    SUM_SEND_DTYPE,
    BoundSummary,
    Schedule,
    Send,
    send_array,
)
from teccl.schedule.sums import SUM_DTYPE, sum_array

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
