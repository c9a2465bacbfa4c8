"""Accumulators spelled out: every sum of a schedule as partial sums, one for each change."""

from dataclasses import dataclass, replace

import numpy as np

from teccl.errors import ScheduleError
from teccl.schedule.additions import SUM_DTYPE
from teccl.schedule.folding import ends_of_messages
from teccl.schedule.sends import SUM_SEND_DTYPE, Schedule
from teccl.schedule.timing import send_times

# What happens at one instant, in this order.
_OWN, _MERGE, _REPLACE, _SEND = range(4)


def spelled_out(schedule: Schedule) -> Schedule:
    """Return the schedule with partial sums in place of accumulators.

    Parameters
    ----------
    schedule
        A correct schedule.

    Raises
    ------
    ScheduleError
        If a switch merges what goes to an accumulator.
    """
    table, sums = schedule.problem.chunks, schedule.sums
    has_rows = np.zeros(len(table), dtype=bool)
    if sums is not None:
        has_rows[sums["chunk"]] = True
    chunks = np.flatnonzero(table.reduce & ~has_rows)
    if not len(chunks):
        return schedule
    speller = _Speller(schedule)
    for chunk in chunks.tolist():
        speller.spell(chunk)
    return speller.schedule()


@dataclass(slots=True)
class _Row:
    """A partial sum, the contributions in it, and whether it is its GPU's own."""

    node: int
    chunk: int
    left: int = -1
    right: int = -1
    content: frozenset[int] = frozenset()
    is_own: bool = False


@dataclass(slots=True)
class _Accumulator:
    """The row that an accumulator holds, and when it was last replaced."""

    row: int | None = None
    replaced: int = -1


class _Speller:
    """Walks through the events of accumulators and writes a row for each change."""

    def __init__(self, original: Schedule) -> None:
        self._original = original
        self._sends = np.full(len(original), -1, dtype=SUM_SEND_DTYPE)
        for name in original.sends.dtype.names or ():
            self._sends[name] = original.sends[name]
        self._first = 0 if original.sums is None else len(original.sums)
        self._rows: list[_Row] = []
        self._results: set[int] = set()
        self._arrival = send_times(original).arrival_ps
        roots, leaves = ends_of_messages(original)
        self._by_chunk: dict[int, list[tuple[int, int]]] = {}
        for root, leaf in zip(roots.tolist(), leaves.tolist(), strict=True):
            chunk = int(original.sends["chunk"][leaf])
            self._by_chunk.setdefault(chunk, []).append((root, leaf))

    def spell(self, chunk: int) -> None:
        """Write the rows of one chunk."""
        problem, topology = self._original.problem, self._original.problem.topology
        messages = self._by_chunk.get(chunk, [])
        if len({leaf for _, leaf in messages}) < len(messages):
            raise ScheduleError(
                f"{problem.chunk_name(chunk)} is added up in a switch; solve without reducing "
                "switches"
            )
        ready = problem.ready_ps()[int(problem.chunks.tenant[chunk])]
        held: dict[int, _Accumulator] = {}
        events = [(int(ready[gpu]), _OWN, gpu, -1) for gpu in problem.chunks.sources(chunk)]
        sends = self._original.sends
        for root, leaf in messages:
            kind = _MERGE if sends["reduce"][leaf] else _REPLACE
            events.append((int(self._arrival[leaf]), kind, leaf, root))
        roots = {root for root, _ in messages}
        events += [(int(sends["start_ps"][root]), _SEND, root, root) for root in roots]
        carried: dict[int, frozenset[int]] = {}
        for time, kind, subject, root in sorted(events):
            if kind == _OWN:
                gpu = int(subject)
                accumulator = held.setdefault(gpu, _Accumulator())
                own = self._join(accumulator, chunk, gpu, frozenset([gpu]))
                self._row(own).is_own = True
            elif kind == _SEND:
                gpu = int(topology.link_src[sends["link"][root]])
                row = held.setdefault(gpu, _Accumulator()).row
                if row is None:
                    raise ScheduleError("a gpu sends a sum it does not hold; verify it first")
                self._sends["carries"][root] = row
                carried[root] = self._row(row).content
            else:
                gpu = int(topology.link_dst[sends["link"][subject]])
                accumulator = held.setdefault(gpu, _Accumulator())
                if kind == _MERGE:
                    arrived = self._join(accumulator, chunk, gpu, carried[root])
                else:
                    arrived = self._replace(accumulator, chunk, gpu, carried[root], time)
                self._sends["becomes"][subject] = arrived
        for gpu in problem.chunks.destinations(chunk).tolist():
            row = held.setdefault(gpu, _Accumulator()).row
            if row is not None:
                self._results.add(row)

    def _join(
        self, accumulator: _Accumulator, chunk: int, node: int, content: frozenset[int]
    ) -> int:
        """Merge a new row into an accumulator; return the new row."""
        new = self._write(_Row(node, chunk, content=content))
        if accumulator.row is None:
            accumulator.row = new
        else:
            both = self._row(accumulator.row).content | content
            accumulator.row = self._write(_Row(node, chunk, accumulator.row, new, both))
        return new

    def _replace(
        self,
        accumulator: _Accumulator,
        chunk: int,
        node: int,
        content: frozenset[int],
        time: int,
    ) -> int:
        """Let a new row take the place of what an accumulator holds; return the new row."""
        new = self._write(_Row(node, chunk, content=content))
        # Of two copies of one instant the smaller may as well have come first.
        is_smaller = (
            accumulator.replaced == time
            and accumulator.row is not None
            and content <= self._row(accumulator.row).content
        )
        if not is_smaller:
            accumulator.row, accumulator.replaced = new, time
        return new

    def _write(self, row: _Row) -> int:
        self._rows.append(row)
        return self._first + len(self._rows) - 1

    def _row(self, number: int) -> _Row:
        return self._rows[number - self._first]

    def schedule(self) -> Schedule:
        """Return the schedule with the rows of all chunks."""
        table = np.zeros(len(self._rows), dtype=SUM_DTYPE)
        used: dict[tuple[int, int], int] = {}
        for i, row in enumerate(self._rows):
            key = (row.chunk, row.node)
            used[key] = used.get(key, 0) + (not row.is_own)
            slot, result = 0 if row.is_own else used[key], self._first + i in self._results
            table[i] = (row.chunk, row.node, slot, row.left, row.right, result)
        kept = self._original.sums
        sums = table if kept is None else np.concatenate([kept, table])
        sends = self._sends
        is_spelled = np.isin(sends["chunk"], list({row.chunk for row in self._rows}))
        sends["reduce"][is_spelled] = False
        return replace(self._original, sends=sends, sums=sums, shifts=())
