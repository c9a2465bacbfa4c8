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
from teccl.schedule.additions import SumArray, check_sums
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
# The same with which partial sum a hop takes from a GPU and which its arrival is, -1 for none.
SUM_SEND_DTYPE = np.dtype([*SEND_DTYPE.descr, ("carries", np.int32), ("becomes", np.int32)])


class Send(NamedTuple):
    """One chunk crossing one link; `carries` and `becomes` are rows of `Schedule.sums`."""

    chunk: int
    link: int
    start_ps: int
    transfer: int
    op: str
    epoch: int | None
    carries: int | None = None
    becomes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSummary:
    """What was proven about a problem, as results and files carry it.

    Parameters
    ----------
    physical_ps
        No schedule finishes earlier, into however many equal chunks the data is cut.
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
        Array of `SEND_DTYPE`, or of `SUM_SEND_DTYPE` where there are `sums`; kept sorted by start,
        link, chunk.
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
    sums
        Array of `SUM_DTYPE`: the partial sums of chunks that need more than one accumulator at a
        GPU; None where no chunk does. See below.
    same_order
        Claims that all destinations of a sum evaluate one tree of additions, up to commutation,
        so that floating-point results have the same bits everywhere.

    Notes
    -----
    *Partial sums.* Without `sums`, a GPU has one accumulator for each chunk that is a sum: it holds
    the GPU's own contribution at first, a send carries what it holds, an arrival with op reduce is
    merged into it and one with op copy replaces it. A chunk that has rows in `sums` knows no
    accumulator. Each row is one partial sum at one GPU, made once and never changed:

    - an *own* one, the GPU's own contribution: `left` and `right` are -1 and no send becomes it. It
      is there from the GPU's ready time on. There is at most one for a chunk and GPU, in slot 0;
    - an *arrived* one: `left` and `right` are -1, and exactly one send into the GPU has it as
      `becomes`. It is there from that send's arrival on and holds what the send carries;
    - an *added* one: `left` and `right` are rows of the same chunk and GPU that stand before it. It
      is there as soon as both are; additions take no time.

    A send that leaves a GPU says in `carries` which partial sum it takes, and one that enters a GPU
    in `becomes` what its arrival is there; at switches, and for all other chunks, they are -1. A
    send begins no earlier than what it carries is there. Where a reducing switch merges the roots
    of a transfer, with op reduce, the arrival holds all that they carry; every other op is copy.
    `result` marks, for each chunk and destination, the one row that must hold every contribution
    exactly once. `slot` says where the row is kept: two rows of a chunk and GPU may share a slot if
    the earlier one is not read any more (by an addition, or by a send until it frees its link) when
    the later one is made; an addition may take the slot of what it adds.

    What a construction provides: columns for `send_array` (`carries`, `becomes` too) and for
    `sum_array`; no times and no order among additions. Chunks with and without rows in `sums` may
    stand in one schedule.

    Examples
    --------
    Three GPUs on a line: the one in the middle passes both contributions on and adds at home. Rows
    are counted by GPU: own, what arrives, and the additions.

    >>> from teccl import Demand, Problem, Topology
    >>> from teccl.schedule import Schedule, send_array, sum_array
    >>> demand = Demand.collective("allreduce", size="1KB")
    >>> problem = Problem(topology=Topology.parse("line:gpus=3"), demand=demand, whole_buffer=True)
    >>> sums = sum_array(
    ...     chunk=[0] * 15,
    ...     node=[0] * 5 + [1] * 5 + [2] * 5,
    ...     left=[-1, -1, -1, 0, 3, -1, -1, -1, 6, 8, -1, -1, -1, 11, 13],
    ...     right=[-1, -1, -1, 1, 2, -1, -1, -1, 5, 7, -1, -1, -1, 12, 10],
    ...     result=[False, False, False, False, True] * 3,
    ... )
    >>> sends = send_array(
    ...     chunk=[0] * 6,
    ...     link=[0, 1, 2, 3, 2, 1],
    ...     start_ps=[0, 0, 0, 0, 520_000, 520_000],
    ...     carries=[0, 5, 5, 10, 6, 7],
    ...     becomes=[6, 1, 12, 7, 11, 2],
    ... )
    >>> Schedule(problem=problem, sends=sends, sums=sums, same_order=True).finish_ps
    1040000
    """

    problem: Problem
    sends: SendArray = field(repr=False)
    grid: TimeGrid | None = None
    method: str = "unknown"
    bound: BoundSummary | None = None
    claimed_finish_ps: int | None = None
    shifts: tuple[IntArray, ...] = field(default=(), repr=False, compare=False)
    sums: SumArray | None = field(default=None, repr=False)
    same_order: bool = False

    def __post_init__(self) -> None:
        sends = np.asarray(self.sends)
        wanted = SEND_DTYPE if self.sums is None else SUM_SEND_DTYPE
        if sends.dtype != wanted:
            name = "SEND_DTYPE" if self.sums is None else "SUM_SEND_DTYPE"
            raise ScheduleError(f"sends have type {sends.dtype}; use teccl.schedule.{name}")
        check_ranges(self.problem, sends)
        if self.sums is not None:
            self._take_sums(sends, np.asarray(self.sums))
        if _is_ordered(sends):
            # What nobody can change, as the sends of another schedule, need not be copied.
            ordered = sends.copy() if sends.flags.writeable or sends.base is not None else sends
        else:
            ordered = sends[order_by(sends["start_ps"], sends["link"], sends["chunk"])]
        ordered.setflags(write=False)
        object.__setattr__(self, "sends", ordered)

    def _take_sums(self, sends: SendArray, sums: SumArray) -> None:
        """Check the table of partial sums and what refers to it, and keep it from changes."""
        if self.grid is not None:
            raise ScheduleError("a schedule with partial sums has no epochs; drop the grid")
        check_sums(self.problem, sums)
        for column in ("carries", "becomes"):
            bad = np.flatnonzero((sends[column] < -1) | (sends[column] >= len(sums)))
            if len(bad):
                raise ScheduleError(
                    f"send {bad[0]} has {column} {sends[column][bad[0]]}; it must be from -1 to "
                    f"{len(sums) - 1}"
                )
        kept = sums.copy()
        kept.setflags(write=False)
        object.__setattr__(self, "sums", kept)

    def __repr__(self) -> str:
        return (
            f"Schedule({self.method!r}, {self.problem.demand.title} on "
            f"{self.problem.topology.name!r}, {len(self)} sends, {self.finish_time_s * 1e6:.6g} us)"
        )

    def __len__(self) -> int:
        return len(self.sends)

    def __iter__(self) -> Iterator[Send]:
        has_sums = self.sums is not None
        for row in self.sends:
            yield Send(
                int(row["chunk"]),
                int(row["link"]),
                int(row["start_ps"]),
                int(row["transfer"]),
                "reduce" if row["reduce"] else "copy",
                int(row["epoch"]) if self.grid is not None else None,
                int(row["carries"]) if has_sums and row["carries"] >= 0 else None,
                int(row["becomes"]) if has_sums and row["becomes"] >= 0 else None,
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
        from teccl.schedule.schedule_files import save_schedule

        save_schedule(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> "Schedule":
        """Read a schedule file.

        Raises
        ------
        ScheduleError
            If the file is damaged, foreign or of another version.
        """
        from teccl.schedule.schedule_files import load_schedule

        return load_schedule(Path(path))


def send_array(
    chunk: Sequence[int] | IntArray,
    link: Sequence[int] | IntArray,
    start_ps: Sequence[int] | IntArray,
    *,
    transfer: Sequence[int] | IntArray | None = None,
    reduce: Sequence[bool] | npt.NDArray[np.bool_] | bool = False,
    epoch: Sequence[int] | IntArray | int = 0,
    carries: Sequence[int] | IntArray | None = None,
    becomes: Sequence[int] | IntArray | None = None,
) -> SendArray:
    """Build an array of sends from columns; each row its own transfer unless given.

    It has `SUM_SEND_DTYPE` where `carries` or `becomes` is given, `SEND_DTYPE` elsewhere.
    """
    has_sums = carries is not None or becomes is not None
    array = np.zeros(len(chunk), dtype=SUM_SEND_DTYPE if has_sums else SEND_DTYPE)
    if has_sums:
        array["carries"] = -1 if carries is None else carries
        array["becomes"] = -1 if becomes is None else becomes
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
