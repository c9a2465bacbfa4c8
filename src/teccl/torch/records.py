"""Records: what ran how, counted, and as a table."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

from teccl.units import format_size


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


class Book:
    """Records of one group; any thread may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[tuple[str, int, str, str], Record] = {}

    def add(self, group: str, collective: str, size_bytes: int, how: str, detail: str) -> None:
        """Count a call."""
        key = (collective, size_bytes, how, detail)
        with self._lock:
            known = self._records.get(key)
            if known is not None:
                self._records[key] = replace(known, calls=known.calls + 1)
                return
            self._records[key] = Record(
                group=group,
                collective=collective,
                size_bytes=size_bytes,
                how=how,
                detail=detail,
            )

    def records(self) -> tuple[Record, ...]:
        """Return what was counted, in the order of first calls."""
        with self._lock:
            return tuple(self._records.values())


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
