"""Stop: when a search ends, one criterion a function, each with the status that it gives."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from teccl.result import Status

if TYPE_CHECKING:
    from teccl.synthesis.search import Search


class SearchStoppedError(Exception):
    """The search must end now; `status` says why, and a message if there is more to say."""

    def __init__(self, status: Status, message: str | None = None) -> None:
        super().__init__(status.value)
        self.status = status
        self.message = message


def is_cancelled(search: "Search") -> Status | None:
    """Somebody has cancelled it."""
    cancel = search.cancel
    return Status.INTERRUPTED if cancel is not None and cancel.is_cancelled else None


def is_over_time(search: "Search") -> Status | None:
    """The user's time limit is over; it waits for the first schedule."""
    return Status.TIME_LIMIT if search.incumbents and search.is_late() else None


def is_good_enough(search: "Search") -> Status | None:
    """The best schedule is within the gap that the user asks for.

    Of several tenants' schedules that end together another may be preferred.
    """
    if search.features.has_tenants or not search.is_within(search.request.gap):
        return None
    return Status.FEASIBLE


Criterion = Callable[["Search"], Status | None]

# Those that break off what is being done, and all.
URGENT: tuple[Criterion, ...] = (is_cancelled, is_over_time)
CRITERIA: tuple[Criterion, ...] = (*URGENT, is_good_enough)
