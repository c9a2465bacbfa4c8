"""Plan: deliveries in integer time, before they become a schedule."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Routes

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which chunk takes which route when.

    Parameters
    ----------
    rows
        Rows (chunk, route, start, transfer, shared). Rows with the same transfer are one passage
        through switches, of which the first `shared` links are another row's too, or the last ones
        where contributions come together in a switch that reduces.
    finish
        Last arrival.
    reduce
        Per row, whether the receiver combines what arrives; None for never.
    feeder
        Per row, the row that brings the chunk to its sender, -1 at a source. None when the chunk
        and the sender say it, because no node receives a chunk twice.
    path
        Per row, the path it is a leg of, where each leg must start the instant the one before has
        arrived; legs of a path are consecutive rows. None where legs may wait.
    exact
        Whether starts are picoseconds that hold for each chunk's own size, at rates as they change.
    shifts
        Permutations of the nodes that repeat the plan, see `teccl.schedule.Schedule`.
    """

    rows: IntArray
    finish: int = 0
    reduce: npt.NDArray[np.bool_] | None = None
    feeder: IntArray | None = None
    path: IntArray | None = None
    exact: bool = False
    shifts: tuple[IntArray, ...] = ()


def single_rows(chunk: IntArray, route: IntArray, start: IntArray | int = 0) -> IntArray:
    """Return rows of which each is a transfer of its own."""
    rows = np.zeros((len(chunk), 5), dtype=np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = chunk, route, start, np.arange(len(chunk))
    return rows


def with_starts(plan: Plan, start: IntArray, finish: int) -> Plan:
    """Return a plan with other starts, given per transfer in order."""
    rows = plan.rows.copy()
    number = np.cumsum(np.bincount(rows[:, 3]) > 0) - 1
    rows[:, 2] = start[number[rows[:, 3]]]
    return replace(plan, rows=rows, finish=finish, exact=False)


def on_routes(plan: Plan, own: Routes, routes: Routes) -> Plan | None:
    """Return a plan on some routes as one on others; None where it takes one that is not there."""
    ways, others = own.ways(), routes.ways()
    if ways == others:
        return plan
    number = {way: route for route, way in enumerate(others)}
    rows = plan.rows.copy()
    rows[:, 1] = np.array([number.get(way, -1) for way in ways], dtype=np.int64)[rows[:, 1]]
    return None if (rows[:, 1] < 0).any() else replace(plan, rows=rows)
