"""Partial sums of an imported program, noted while it runs."""

from dataclasses import replace

import numpy as np

from teccl.errors import ScheduleError
from teccl.schedule import SUM_SEND_DTYPE, Schedule, sum_array


class SumRows:
    """Partial sums in the order in which a program makes them, and what transfers carry."""

    def __init__(self) -> None:
        # Rank, chunk of the program, left and right of each.
        self._rows: list[tuple[int, int, int, int]] = []
        self._own: dict[tuple[int, int], int] = {}
        self._carries: dict[int, int] = {}
        self._becomes: dict[int, int] = {}

    def own(self, rank: int, chunk: int) -> int:
        """Return a rank's own contribution."""
        if (rank, chunk) not in self._own:
            self._own[rank, chunk] = self._new(rank, chunk)
        return self._own[rank, chunk]

    def arrived(self, transfer: int, rank: int, chunk: int) -> int:
        """Return what a transfer brings."""
        if transfer not in self._becomes:
            self._becomes[transfer] = self._new(rank, chunk)
        return self._becomes[transfer]

    def added(self, left: int, right: int) -> int:
        """Return the sum of two others at one rank."""
        rank, chunk, *_ = self._rows[left]
        return self._new(rank, chunk, left, right)

    def sent(self, transfer: int, row: int) -> None:
        """Note what a transfer carries."""
        self._carries[transfer] = row

    def _new(self, rank: int, chunk: int, left: int = -1, right: int = -1) -> int:
        self._rows.append((rank, chunk, left, right))
        return len(self._rows) - 1

    def attached(self, schedule: Schedule, numbers: dict[int, int], results: list[int]) -> Schedule:
        """Return the schedule of the transfers, whose ids are theirs, with the partial sums.

        Parameters
        ----------
        numbers
            The problem's number of each chunk of the program.
        results
            Rows that are wanted where they lie.

        Raises
        ------
        ScheduleError
            If the program adds up what the problem does not know.
        """
        topology, sends = schedule.problem.topology, schedule.sends
        if any(chunk not in numbers for _, chunk, _, _ in self._rows):
            raise ScheduleError("the program adds up what nobody wants; a schedule cannot say that")
        gpus = topology.gpus.tolist()
        left = np.array([row[2] for row in self._rows], dtype=np.int64)
        right = np.array([row[3] for row in self._rows], dtype=np.int64)
        is_own = np.zeros(len(self._rows), dtype=bool)
        is_own[list(self._own.values())] = True
        sums = sum_array(
            [numbers[row[1]] for row in self._rows],
            [gpus[row[0]] for row in self._rows],
            left=left,
            right=right,
            result=np.isin(np.arange(len(self._rows)), results),
            slot=np.where(is_own, 0, np.maximum(1, np.arange(len(self._rows)))),
        )
        rows = np.full(len(sends), -1, dtype=SUM_SEND_DTYPE)
        for name in sends.dtype.names or ():
            rows[name] = sends[name]
        is_switch = topology.is_switch
        for i, (transfer, link) in enumerate(
            zip(sends["transfer"].tolist(), sends["link"].tolist(), strict=True)
        ):
            if not is_switch[topology.link_src[link]]:
                rows["carries"][i] = self._carries[transfer]
            if not is_switch[topology.link_dst[link]]:
                rows["becomes"][i] = self._becomes[transfer]
        return replace(schedule, sends=rows, sums=sums)
