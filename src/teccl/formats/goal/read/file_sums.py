"""Partial sums of a GOAL file, by the rule that its computations follow.

A computation adds what it requires, and the rank's own data if that is one thing only. A send that
requires no data carries the rank's own.
"""

from collections.abc import Sequence

from teccl.errors import ScheduleError
from teccl.formats.shared.sum_rows import SumRows
from teccl.problem import Problem
from teccl.schedule import Schedule


class FileSums:
    """Notes what operations hold, in an order in which they can run; sums are numbers."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._rows = SumRows()
        # Chunk, rank and contributions of each partial sum, a bit for each rank.
        self._known: dict[int, tuple[int, int, int]] = {}
        self._sent: dict[int, int] = {}

    def send(self, transfer: int, rank: int, chunk: int, parts: Sequence[int], line: int) -> None:
        """Note what a transfer carries of what its send requires.

        Raises
        ------
        ScheduleError
            If these are several sums, or one of another chunk.
        """
        if len(parts) > 1 or any(self._known[part][0] != chunk for part in parts):
            raise ScheduleError(
                f"line {line} requires several sums or another chunk's; one computation should "
                "add up what it carries"
            )
        row = parts[0] if parts else self._own(rank, chunk)
        self._rows.sent(transfer, row)
        self._sent[transfer] = row

    def receive(self, transfer: int, rank: int) -> int:
        """Return what a transfer brings."""
        chunk, _, content = self._known[self._sent[transfer]]
        return self._note(self._rows.arrived(transfer, rank, chunk), chunk, rank, content)

    def compute(self, rank: int, parts: Sequence[int], line: int) -> int:
        """Return the sum of what a computation requires.

        Raises
        ------
        ScheduleError
            If it adds different chunks.
        """
        chunk = self._known[parts[0]][0]
        if any(self._known[part][0] != chunk for part in parts):
            raise ScheduleError(f"line {line} adds up different chunks; mend the file")
        parts = [self._own(rank, chunk), *parts] if len(parts) == 1 else parts
        total, content = parts[0], self._known[parts[0]][2]
        for part in parts[1:]:
            content |= self._known[part][2]
            total = self._note(self._rows.added(total, part), chunk, rank, content)
        return total

    def attached(self, schedule: Schedule) -> Schedule:
        """Return the schedule of the transfers with their partial sums."""
        table, gpus = self._problem.chunks, self._problem.topology.gpus.tolist()
        rank_of = {node: rank for rank, node in enumerate(gpus)}
        results: dict[tuple[int, int], int] = {}
        for row, (chunk, rank, content) in self._known.items():
            wanted = sum(1 << rank_of[node] for node in table.sources(chunk).tolist())
            if gpus[rank] in table.destinations(chunk) and content == wanted:
                results.setdefault((chunk, rank), row)
        numbers = {chunk: chunk for chunk in range(len(table))}
        return self._rows.attached(schedule, numbers, list(results.values()))

    def _own(self, rank: int, chunk: int) -> int:
        return self._note(self._rows.own(rank, chunk), chunk, rank, 1 << rank)

    def _note(self, row: int, chunk: int, rank: int, content: int) -> int:
        self._known[row] = chunk, rank, content
        return row
