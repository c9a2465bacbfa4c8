"""Records: what ran how, counted, and as a table."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from teccl.units import format_size

# Collective, bytes, how it ran and the detail, as `Record` has them.
Line = tuple[str, int, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Calls that were alike.

    Parameters
    ----------
    group
        Name of the group.
    collective
        What was called.
    size_bytes
        Bytes as nccl-tests counts them.
    how
        ``"schedule"`` or ``"inner"``.
    detail
        Which schedule, or why the inner group did it.
    calls
        How many.
    """

    group: str
    collective: str
    size_bytes: int
    how: str
    detail: str
    calls: int = 1


class RecordBook:
    """Records of one group; any thread may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Line, int] = {}

    def add(self, line: Line) -> None:
        """Count a call."""
        with self._lock:
            self._calls[line] = self._calls.get(line, 0) + 1

    def records(self, group: str) -> tuple[Record, ...]:
        """Return what was counted, in the order of first calls."""
        with self._lock:
            counted = list(self._calls.items())
        return tuple(
            Record(
                group=group,
                collective=collective,
                size_bytes=size_bytes,
                how=how,
                detail=detail,
                calls=calls,
            )
            for (collective, size_bytes, how, detail), calls in counted
        )


def table_of(records: Iterable[Record]) -> str:
    """Lay records out, one line each."""
    rows = [("group", "collective", "size", "calls", "ran by", "detail")]
    for record in records:
        size = format_size(record.size_bytes)
        rows.append(
            (
                record.group,
                record.collective,
                size,
                str(record.calls),
                record.how,
                record.detail,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
