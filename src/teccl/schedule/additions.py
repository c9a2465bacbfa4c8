"""Partial sums: what GPUs add up of a chunk, and where each of these sums is kept.

A schedule of version 1 has one accumulator for each chunk and GPU, into which every arrival is
merged. One with a table of partial sums may keep several of them apart, as relays that pass on one
contribution beside their own sum have to.
"""

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teccl._arrays import expand, new_run
from teccl.errors import ScheduleError
from teccl.problem import Problem

if TYPE_CHECKING:
    from teccl.schedule.sends import Schedule

IntArray = npt.NDArray[np.int64]
SumArray = npt.NDArray[Any]

# One row per partial sum. `left` and `right` are the rows that it adds, -1 where it adds none.
SUM_DTYPE = np.dtype(
    [
        ("chunk", np.int32),
        ("node", np.int32),
        ("slot", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("result", np.bool_),
    ]
)


def sum_array(
    chunk: Sequence[int] | IntArray,
    node: Sequence[int] | IntArray,
    *,
    left: Sequence[int] | IntArray | int = -1,
    right: Sequence[int] | IntArray | int = -1,
    result: Sequence[bool] | npt.NDArray[np.bool_] | bool = False,
    slot: Sequence[int] | IntArray | None = None,
) -> SumArray:
    """Build a table of partial sums from columns, as `Schedule.sums` describes it.

    Parameters
    ----------
    slot
        None gives every partial sum of a chunk at a GPU a slot of its own, in the order of the
        rows, so that the GPU's own contribution must come first and nothing is ever overwritten.
    """
    table = np.zeros(len(chunk), dtype=SUM_DTYPE)
    table["chunk"], table["node"] = chunk, node
    table["left"], table["right"], table["result"] = left, right, result
    table["slot"] = _own_slots(table) if slot is None else slot
    return table


def _own_slots(table: SumArray) -> IntArray:
    """Number the rows of each chunk and GPU."""
    order = np.lexsort((table["node"], table["chunk"]))
    begins = np.flatnonzero(new_run(table["chunk"][order], table["node"][order]))
    count = np.diff(np.append(begins, len(table)))
    slot = np.empty(len(table), dtype=np.int64)
    slot[order] = expand(np.zeros_like(begins), count)
    return slot


class Needs:
    """Which arrivals at a GPU are in the partial sums that it sends."""

    def __init__(self, sends: npt.NDArray[Any], sums: SumArray) -> None:
        self._left, self._right = sums["left"].tolist(), sums["right"].tolist()
        self._carries = sends["carries"].tolist()
        arriving = np.flatnonzero(sends["becomes"] >= 0)
        self._arrival = dict(
            zip(sends["becomes"][arriving].tolist(), arriving.tolist(), strict=True)
        )

    def of_send(self, row: int) -> list[int]:
        """Sends whose arrivals are in what a send carries; none for a GPU's own data."""
        return self.of_sum(self._carries[row]) if self._carries[row] >= 0 else []

    def of_sum(self, row: int) -> list[int]:
        """Sends whose arrivals are in a partial sum."""
        found, stack = [], [row]
        while stack:
            row = stack.pop()
            if self._left[row] >= 0:
                stack += [self._right[row], self._left[row]]
            elif row in self._arrival:
                found.append(self._arrival[row])
        return found


def unmade(sums: SumArray, row: int, made: Container[int]) -> list[int]:
    """Rows that must be made for a row, itself included, in an order in which they can be."""
    found, stack = set(), [row]
    while stack:
        row = stack.pop()
        if row < 0 or row in found or row in made:
            continue
        found.add(row)
        stack += [int(sums["left"][row]), int(sums["right"][row])]
    return sorted(found)


def additions(
    sums: SumArray | None, row: int, made: Container[int]
) -> list[tuple[int, tuple[int, int]]]:
    """Rows that must be added up for a row, itself included, each with the two that it adds."""
    if sums is None:
        return []
    parts = ((part, sums[part]) for part in unmade(sums, row, made))
    return [(part, (int(at["left"]), int(at["right"]))) for part, at in parts if at["left"] >= 0]


def wanted_sums(schedule: "Schedule") -> list[tuple[int, int]]:
    """Rank and row of each partial sum that is a result."""
    sums, topology = schedule.sums, schedule.problem.topology
    if sums is None:
        return []
    rank = {int(node): i for i, node in enumerate(topology.gpus)}
    return [(rank[int(sums["node"][row])], row) for row in np.flatnonzero(sums["result"]).tolist()]


def check_sums(problem: Problem, sums: SumArray) -> None:
    """Refuse a table whose indices point nowhere, which no later check could name.

    Raises
    ------
    ScheduleError
        If it has another type or an index out of range, or adds a row that does not stand before.
    """
    if sums.dtype != SUM_DTYPE:
        raise ScheduleError(f"sums have type {sums.dtype}; use teccl.schedule.SUM_DTYPE")
    rows = np.arange(len(sums))
    limits = {
        "chunk": (0, np.full(len(sums), len(problem.chunks))),
        "node": (0, np.full(len(sums), problem.topology.num_nodes)),
        "slot": (0, np.full(len(sums), len(sums))),
        "left": (-1, rows),
        "right": (-1, rows),
    }
    for column, (low, high) in limits.items():
        bad = np.flatnonzero((sums[column] < low) | (sums[column] >= high))
        if len(bad):
            row, value = int(bad[0]), sums[column][bad[0]]
            allowed = f"from {low} to {high[row] - 1}"
            raise ScheduleError(f"partial sum {row} has {column} {value}; it must be {allowed}")
    lone = np.flatnonzero((sums["left"] < 0) != (sums["right"] < 0))
    if len(lone):
        raise ScheduleError(
            f"partial sum {lone[0]} adds one row only; give left and right, or none"
        )
