"""Schedule: a structured array of sends over a problem, with derived figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.schedule.ordering import order_by
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS

IntArray = npt.NDArray[np.int64]
SendArray = npt.NDArray[Any]

# One row per hop. `transfer` ties the hops of one passage through switches together; `reduce`
# says that the receiver combines what arrives with what it has, otherwise it stores it.
SEND_DTYPE = np.dtype(
    [
        ("chunk", np.int32),
        ("link", np.int32),
        ("transfer", np.int32),
        ("epoch", np.int32),
        ("start_ps", np.int64),
        ("reduce", np.bool_),
    ]
)


class Send(NamedTuple):
    """One chunk crossing one link."""

    chunk: int
    link: int
    start_ps: int
    transfer: int
    op: str
    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSummary:
    """What was proven about a problem, as results and files carry it.

    Parameters
    ----------
    physical_ps
        No schedule with any chunking finishes earlier.
    chunk_ps
        No schedule with these whole chunks finishes earlier, where that was computed.
    epochs
        No schedule on this grid needs fewer epochs, on a grid.
    certificate
        A sentence that names what binds.
    """

    physical_ps: int
    certificate: str
    chunk_ps: int | None = None
    epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Sends that solve a problem, in integer picoseconds.

    Parameters
    ----------
    problem
        What the schedule solves.
    sends
        Array of `SEND_DTYPE`; kept sorted by start, link, chunk.
    grid
        The epochs the sends' `epoch` refers to, for grid methods.
    method
        What made the schedule.
    bound
        What was proven about the problem.
    claimed_finish_ps
        The finish time a file states; None computes it.
    shifts
        Commuting permutations of the nodes that repeat the schedule, where some are known; files
        then need one chunk of each orbit only.
    """

    problem: Problem
    sends: SendArray = field(repr=False)
    grid: TimeGrid | None = None
    method: str = "unknown"
    bound: BoundSummary | None = None
    claimed_finish_ps: int | None = None
    shifts: tuple[IntArray, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        sends = np.asarray(self.sends)
        if sends.dtype != SEND_DTYPE:
            raise ScheduleError(f"sends have type {sends.dtype}; use teccl.schedule.SEND_DTYPE")
        check_ranges(self.problem, sends)
        if _is_ordered(sends):
            # What nobody can change, as the sends of another schedule, need not be copied.
            ordered = sends.copy() if sends.flags.writeable or sends.base is not None else sends
        else:
            ordered = sends[order_by(sends["start_ps"], sends["link"], sends["chunk"])]
        ordered.setflags(write=False)
        object.__setattr__(self, "sends", ordered)

    def __repr__(self) -> str:
        return (
            f"Schedule({self.method!r}, {self.problem.demand.title} on "
            f"{self.problem.topology.name!r}, {len(self)} sends, {self.finish_time_s * 1e6:.6g} us)"
        )

    def __len__(self) -> int:
        return len(self.sends)

    def __iter__(self) -> Iterator[Send]:
        for row in self.sends:
            yield Send(
                int(row["chunk"]),
                int(row["link"]),
                int(row["start_ps"]),
                int(row["transfer"]),
                "reduce" if row["reduce"] else "copy",
                int(row["epoch"]) if self.grid is not None else None,
            )

    @property
    def finish_ps(self) -> int:
        """Picoseconds until the last arrival."""
        if self.claimed_finish_ps is not None:
            return self.claimed_finish_ps
        from teccl.schedule.timing import send_times

        return int(send_times(self).arrival_ps.max(initial=0))

    @property
    def finish_time_s(self) -> float:
        """Seconds until the last arrival."""
        return self.finish_ps / PICOSECONDS

    @property
    def bytes_on_wire(self) -> Fraction:
        """Bytes carried by all links together, every hop counted."""
        counts = np.bincount(self.problem.chunks.size_index[self.sends["chunk"]])
        sizes = self.problem.chunks.sizes
        return sum((int(n) * size for n, size in zip(counts, sizes, strict=False)), Fraction(0))

    def utilisation(self) -> npt.NDArray[np.float64]:
        """Fraction of the finish time that each link is busy."""
        from teccl.schedule.timing import send_times

        busy = np.zeros(self.problem.topology.num_links)
        np.add.at(busy, self.sends["link"], send_times(self).occupancy_ps.astype(float))
        return busy / max(1, self.finish_ps)

    def critical_path(self) -> list[int]:
        """Rows of `sends` that lead without slack to the last arrival, in time order."""
        from teccl.schedule.timing import critical_path

        return critical_path(self)

    def save(self, path: str | Path) -> None:
        """Write the schedule file; compressed when the name ends in ``.gz``."""
        from teccl.schedule.files import save_schedule

        save_schedule(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> "Schedule":
        """Read a schedule file.

        Raises
        ------
        ScheduleError
            If the file is damaged, foreign or of another version.
        """
        from teccl.schedule.files import load_schedule

        return load_schedule(Path(path))


def send_array(
    chunk: Sequence[int] | IntArray,
    link: Sequence[int] | IntArray,
    start_ps: Sequence[int] | IntArray,
    *,
    transfer: Sequence[int] | IntArray | None = None,
    reduce: Sequence[bool] | npt.NDArray[np.bool_] | bool = False,
    epoch: Sequence[int] | IntArray | int = 0,
) -> SendArray:
    """Build an array of `SEND_DTYPE` from columns; each row its own transfer unless given."""
    array = np.zeros(len(chunk), dtype=SEND_DTYPE)
    array["chunk"], array["link"], array["start_ps"] = chunk, link, start_ps
    array["transfer"] = np.arange(len(chunk)) if transfer is None else transfer
    array["reduce"], array["epoch"] = reduce, epoch
    return array


def _is_ordered(sends: SendArray) -> bool:
    """Whether sends are in order already, by start, link and chunk; quicker than sorting them."""
    in_order = np.zeros(max(0, len(sends) - 1), dtype=bool)
    tied = ~in_order
    for column in ("start_ps", "link", "chunk"):
        values = sends[column]
        in_order |= tied & (values[1:] > values[:-1])
        tied &= values[1:] == values[:-1]
    return bool((in_order | tied).all())


def check_ranges(problem: Problem, sends: SendArray) -> None:
    """Refuse indices that point nowhere, which no later check could name."""
    limits = {
        "chunk": len(problem.chunks),
        "link": problem.topology.num_links,
        "transfer": 2**31 - 1,
        "epoch": 2**31 - 1,
        "start_ps": 2**62,
    }
    for column, limit in limits.items():
        values = sends[column]
        bad = np.flatnonzero((values < 0) | (values >= limit))
        if len(bad):
            row = int(bad[0])
            raise ScheduleError(
                f"send {row} has {column} {values[row]}; it must be from 0 to {limit - 1}"
            )
