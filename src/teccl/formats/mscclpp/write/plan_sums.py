"""Thread blocks of MSCCL++ plans whose chunks are kept in partial sums."""

from collections.abc import Sequence

from teccl.formats.mscclpp.write.plan_blocks import (
    MAX_OPERANDS,
    BlockBuilder,
    Wave,
    joined_rows,
    local,
)
from teccl.formats.mscclpp.write.plan_slots import Slot, Slots
from teccl.formats.shared.gpu_sends import GpuSend
from teccl.schedule.additions import SumArray


class SumTable:
    """The partial sums of a schedule as plans need them: who adds what, and where it lies.

    Parameters
    ----------
    sums
        The schedule's table.
    sends
        All transfers between GPUs.
    rank
        Rank of each node.
    slots
        Where own data and results lie; scratch is handed out for the rest.
    """

    def __init__(
        self, sums: SumArray, sends: Sequence[GpuSend], rank: dict[int, int], slots: Slots
    ) -> None:
        self.left, self.right = sums["left"].tolist(), sums["right"].tolist()
        self.chunk = sums["chunk"].tolist()
        self.rank = [rank[node] for node in sums["node"].tolist()]
        self.is_result = sums["result"].tolist()
        self.arrived = {send.becomes for send in sends}
        self._slots = slots
        self._sent = {send.carries for send in sends}
        self._uses = [0] * len(self.left)
        for row in (*self.left, *self.right):
            if row >= 0:
                self._uses[row] += 1

    def slot(self, row: int) -> Slot:
        """Where a partial sum lies."""
        chunk, rank = self.chunk[row], self.rank[row]
        own = self._slots.source(chunk, rank)
        if self.left[row] < 0 and row not in self.arrived and own is not None:
            return own
        home = self._slots.result(chunk, rank)
        if self.is_result[row] and home is not None and not self._slots.in_place:
            return home
        return self._slots.scratch(rank, row)

    def home(self, row: int) -> Slot | None:
        """Where a result must lie in the end if it does not lie there, else None."""
        home = self._slots.result(self.chunk[row], self.rank[row])
        return home if self.is_result[row] and home != self.slot(row) else None

    def terms(self, row: int) -> list[int]:
        """What is added up for a sum, from the left: sums that nobody else reads are not made."""
        terms: list[int] = []
        while self.left[row] >= 0:
            left, right = self.left[row], self.right[row]
            if not self._is_passing(left) and self._is_passing(right):
                left, right = right, left
            terms.append(right)
            row = left
            if not self._is_passing(left):
                break
        return [row, *terms[::-1]]

    def _is_passing(self, row: int) -> bool:
        """Whether an addition reads a sum and nothing else does."""
        return (
            self.left[row] >= 0
            and self._uses[row] == 1
            and row not in self._sent
            and not self.is_result[row]
        )


class SumBlockBuilder(BlockBuilder):
    """Writes the operations of a thread block on one rank, with partial sums made when needed."""

    def __init__(
        self,
        rank: int,
        waves: Sequence[Wave],
        slots: Slots,
        groups: Sequence[str | None],
        table: SumTable,
    ) -> None:
        super().__init__(rank, waves, slots, groups, copies_own=False)
        self._table = table
        self._made: set[int] = set()

    def build(self) -> None:
        """Write all operations, results and what is copied to their places last."""
        super().build()
        chunks = {send.chunk for wave in self._waves for sends in wave.values() for send in sends}
        results = [
            row
            for row, chunk in enumerate(self._table.chunk)
            if chunk in chunks and self._table.rank[row] == self.rank and self._table.is_result[row]
        ]
        self._make(results)
        moves = [(self._table.slot(row), self._table.home(row)) for row in results]
        rows = [(source, home) for source, home in moves if home is not None]
        if rows:
            self._sync()
        for (source, target), size in joined_rows(rows):
            self._move("copy", [local(source, size), local(target, size)])

    def _write_wave(self, wave: Wave) -> None:
        for number in sorted(wave):
            outgoing = [send for send in wave[number] if send.src == self.rank]
            if outgoing:
                self._wait()
                self._make([send.carries for send in outgoing])
                self._put(outgoing)
            self._due.update({send.src for send in wave[number] if send.dst == self.rank})

    def _carried(self, send: GpuSend) -> Slot:
        return self._table.slot(send.carries)

    def _landing(self, send: GpuSend) -> Slot:
        return self._table.slot(send.becomes)

    def _make(self, rows: Sequence[int]) -> None:
        """Add up what is needed, a sum behind those that it adds."""
        for row in rows:
            if row in self._made or self._table.left[row] < 0:
                continue
            terms = self._table.terms(row)
            self._make(terms)
            self._add(row, terms)
            self._made.add(row)

    def _add(self, row: int, terms: Sequence[int]) -> None:
        """Write one sum, in as many operations as its terms need."""
        target = self._table.slot(row)
        operands = [self._table.slot(term) for term in terms]
        while len(operands) > 1:
            room = MAX_OPERANDS - 1
            self._sync()
            part = [*operands[:room], target]
            self._move("re", [local(slot, 1) for slot in part], reduce_op="sum")
            operands = [target, *operands[room:]] if len(operands) > room else [target]
