"""Partial sums in schedule files: columns of rows, with null where a row refers to none."""

from typing import Any

import numpy as np

from teccl import _files as files
from teccl.errors import ScheduleError
from teccl.schedule.additions import SUM_DTYPE, SumArray

_KEYS = ("chunk", "node", "slot", "left", "right", "result")
_REFERENCES = ("left", "right")
_LIMIT = int(np.iinfo(np.int32).max)


def sums_to_plain(sums: SumArray | None) -> dict[str, list[Any]] | None:
    """Return the table of partial sums by column, None where there is none."""
    if sums is None:
        return None
    columns = {key: sums[key].tolist() for key in ("chunk", "node", "slot")}
    columns |= {key: references_to_plain(sums[key]) for key in _REFERENCES}
    return columns | {"result": sums["result"].astype(int).tolist()}


def references_to_plain(rows: Any) -> list[int | None]:
    """Return rows of a table, None for none."""
    return [None if row < 0 else row for row in rows.tolist()]


def sums_from_plain(value: Any, where: str) -> SumArray | None:
    """Read the table of partial sums."""
    if value is None:
        return None
    where = f"{where}: sums"
    columns = files.expect_mapping(value, where, ScheduleError, known=_KEYS, required=_KEYS)
    lengths = {
        key: len(files.expect_list(column, f"{where}: {key}", ScheduleError))
        for key, column in columns.items()
    }
    if len(set(lengths.values())) > 1:
        raise ScheduleError(f"{where}: columns have different lengths {lengths}; the file is cut")
    table = np.zeros(lengths["chunk"], dtype=SUM_DTYPE)
    for key, column in columns.items():
        if key in _REFERENCES:
            table[key] = references_from_plain(column, f"{where}: {key}")
            continue
        high = 1 if key == "result" else _LIMIT
        table[key] = [_whole(entry, f"{where}: {key}[{i}]", high) for i, entry in enumerate(column)]
    return table


def references_from_plain(column: list[Any], where: str) -> list[int]:
    """Read rows of a table, -1 for none."""
    return [
        -1 if entry is None else _whole(entry, f"{where}[{i}]", _LIMIT)
        for i, entry in enumerate(column)
    ]


def _whole(entry: Any, where: str, high: int) -> int:
    if type(entry) is not int or not 0 <= entry <= high:
        raise ScheduleError(
            f"{where} is {files.shown(entry)}; give a whole number from 0 to {high}"
        )
    return entry
