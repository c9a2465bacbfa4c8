"""Schedules: which chunk crosses which link when."""

from teccl.schedule.model import SEND_DTYPE, BoundSummary, Schedule, Send, send_array

__all__ = ["SEND_DTYPE", "BoundSummary", "Schedule", "Send", "send_array"]
