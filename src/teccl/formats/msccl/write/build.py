"""Building a program that fits its target: as close to the schedule as the limits allow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from teccl.demand import Collective
from teccl.errors import ExportError
from teccl.formats.msccl.write.blocks import Blocks, MadeBlock, blocks_of
from teccl.formats.msccl.write.contiguity import order_pieces
from teccl.formats.msccl.write.gpu_transfers import Integers, transfers_of
from teccl.formats.msccl.write.levels import exact_levels, history_of, window_levels
from teccl.formats.msccl.write.limits import DoesNotFit, Limits, TooManyBlocks
from teccl.formats.msccl.write.lowered_sums import lowered_sums
from teccl.formats.msccl.write.memory_map import SUPPORTED, MemoryMap, layout_of
from teccl.formats.msccl.write.operations import OperationParts, Operations, operations_of
from teccl.formats.msccl.write.steps import Steps, steps_of
from teccl.schedule import Schedule

# Windows that may be needed when the schedule's own order has too many steps, as parts of its
# length: the finer, the more of its pipelining is kept.
_PARTS = (1024, 720, 512, 360, 256, 180, 128, 90, 64, 45, 32, 23, 16, 11, 8, 6, 4, 2, 1)
# The same where only whether anything fits is asked.
_COARSE = (8, 2)
_TRIES = 4
# Transfers from which on a try takes so long that only every other window is tried.
_MANY = 60_000
# Pieces of a block of an AllReduce, whose chunks are all alike; ordering them takes the square.
_LARGEST_BLOCK = 4096
# Further dependencies of a step are steps too; room for them saves a second try.
_MARGIN = 1.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A program as thread blocks.

    Parameters
    ----------
    blocks, steps, layout, scratch
        The program.
    window
        Part of the schedule's length within which transfers were joined freely, None where every
        transfer kept its place.
    """

    blocks: list[MadeBlock]
    steps: Steps
    layout: MemoryMap
    scratch: list[int]
    window: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user decided.

    Parameters
    ----------
    in_place
        Whether input and output overlap.
    channels
        Channels to spread every connection over, None for as few as possible.
    instances
        Copies of the program that share the work.
    fenced
        Whether a message comes after what its sender did to memory before, as the protocol says.
    """

    in_place: bool
    channels: int | None
    instances: int
    fenced: bool


def build(
    schedule: Schedule, limits: Limits, wishes: Wishes, *, chunks: int | None = None
) -> Built:
    """Lower a schedule, joining transfers only as much as the limits need.

    Parameters
    ----------
    schedule
        What to lower.
    limits, wishes
        What the target and the user ask for.
    chunks
        Lower only so many chunks of each block, to see whether that would fit.

    Raises
    ------
    ExportError
        If programs cannot express the schedule.
    DoesNotFit
        If no way of lowering respects the limits; the message names the one that is exceeded.
    """
    if schedule.sums is not None:
        return _build_sums(schedule, limits, wishes)
    parts = _PARTS if chunks is None else _COARSE
    return _Builder(schedule, limits, wishes, chunks or schedule.problem.num_chunks).run(parts)


def _build_sums(schedule: Schedule, limits: Limits, wishes: Wishes) -> Built:
    """Lower a schedule with partial sums, which keeps the order of its transfers."""
    problem = schedule.problem
    shared = _share(limits, wishes.instances, problem.num_gpus)
    layout = _layout(schedule, wishes, problem.num_chunks)
    blocks, steps, scratch = lowered_sums(
        schedule, layout, shared, wishes.channels, fenced=wishes.fenced
    )
    return Built(blocks=blocks, steps=steps, layout=layout, scratch=scratch, window=None)


class _Builder:
    """Holds what all attempts share."""

    def __init__(self, schedule: Schedule, limits: Limits, wishes: Wishes, chunks: int) -> None:
        self.wishes = wishes
        self.limits = _share(limits, wishes.instances, schedule.problem.num_gpus)
        self.finish_ps = schedule.finish_ps
        table = schedule.problem.chunks
        self.layout = _layout(schedule, wishes, chunks)
        transfers = transfers_of(schedule)
        self.transfers = transfers.take(table.piece[transfers.chunk] < chunks)
        self.block, self.piece = table.block, np.minimum(table.piece, chunks - 1)
        owners = self.layout.pieces // chunks
        self.block, self.piece = self.block // owners, self.block % owners * chunks + self.piece
        self.history = history_of(self.transfers, table.reduce, self.layout.ranks)
        self.operations: dict[int, Operations] = {}

    def run(self, parts: Sequence[int]) -> Built:
        """Try the schedule's own order, then search for the finest window that fits."""
        try:
            level = exact_levels(self.transfers, self.history, self.layout.ranks)
            return self._fit(self._lowered(level, self.piece))
        except DoesNotFit as problem:
            reason = problem
        if len(self.transfers) > _MANY:
            # The coarsest stays.
            parts = parts[::-1][::2][::-1]
        parts, reason = self._promising(parts, reason)
        for part in parts:
            try:
                return self._fit(self._joined(part), 1 / part)
            except DoesNotFit as problem:
                reason = problem
        raise reason

    def _promising(
        self, parts: Sequence[int], reason: DoesNotFit
    ) -> tuple[Sequence[int], DoesNotFit]:
        """Leave out windows that lack room even if no step waits, and say what they lack."""
        low, high = 0, len(parts)
        while low < high:
            middle = (low + high) // 2
            try:
                self._check_room(self._joined(parts[middle]))
                high = middle
            except DoesNotFit as problem:
                reason = problem
                low = middle + 1
        return parts[low:], reason

    def _joined(self, part: int) -> Operations:
        """Operations where transfers within a part of the schedule's length may be joined."""
        if part not in self.operations:
            level = window_levels(self.transfers, self.history, -(-self.finish_ps // part))
            pieces = self.layout.pieces
            position = order_pieces(self.transfers, level, self.block, self.piece, pieces)
            self.operations[part] = self._lowered(level, position)
        return self.operations[part]

    def _lowered(self, level: Integers, position: Integers) -> Operations:
        """Operations with given levels and positions of pieces in their blocks."""
        plan = OperationParts(self.transfers, self.history, level, self.block, position)
        whole = self.wishes.instances == 1
        return operations_of(plan, self.layout, self.limits, whole_blocks=whole)

    def _fit(self, operations: Operations, window: float | None = None) -> Built:
        """Spread operations over channels, evenly or so that blocks are full."""
        self._check_steps(operations)
        try:
            blocks, steps = self._spread(operations, packed=False)
        except TooManyBlocks:
            if self.wishes.channels is not None:
                raise
            blocks, steps = self._spread(operations, packed=True)
        return Built(
            blocks=blocks,
            steps=steps,
            layout=self.layout,
            scratch=operations.scratch,
            window=window,
        )

    def _check_room(self, operations: Operations) -> None:
        """Refuse operations that do not fit even if nothing has to wait."""
        self._check_steps(operations)
        for packed in (False, True):
            try:
                self._blocks(operations, self._fill(operations), packed=packed)
                return
            except TooManyBlocks:
                if packed or self.wishes.channels is not None:
                    raise

    def _fill(self, operations: Operations) -> Integers:
        """Operations that a block may have, by sender and receiver."""
        asked = self.wishes.channels
        if asked is not None:
            return np.maximum(1, -(-self._count(operations) // asked))
        return np.full((self.layout.ranks,) * 2, int(self.limits.steps / _MARGIN))

    def _blocks(self, operations: Operations, fill: Integers, *, packed: bool) -> Blocks:
        room = self.limits.blocks - any(operations.copies)
        return blocks_of(operations, self.limits, fill, room, packed=packed)

    def _spread(self, operations: Operations, *, packed: bool) -> tuple[list[MadeBlock], Steps]:
        """Give connections as many channels as their steps need."""
        limits = self.limits
        fill = self._fill(operations)
        longest = 0
        for _ in range(_TRIES):
            made = self._blocks(operations, fill, packed=packed)
            blocks, steps = steps_of(operations, made, self.layout, fenced=self.wishes.fenced)
            length = np.bincount(steps.block, weights=steps.lines).astype(np.int64)
            longest = int(length.max())
            if longest <= limits.steps:
                self._check_sizes(blocks, length)
                return blocks, steps
            if self.wishes.channels is not None:
                break
            _leave_room(fill, blocks, length, limits.steps)
        raise DoesNotFit(
            f"a thread block has {longest} steps; {limits.runtime} takes {limits.steps}"
        )

    def _count(self, operations: Operations) -> Integers:
        """Operations by sender and receiver."""
        ranks = self.layout.ranks
        connection = operations.src * ranks + operations.dst
        return np.bincount(connection, minlength=ranks**2).reshape(ranks, ranks)

    def _check_steps(self, operations: Operations) -> None:
        """Refuse what cannot fit whatever thread blocks are made, before they are."""
        count = self._count(operations)
        steps = count.sum(axis=0) + count.sum(axis=1)
        rank, most = int(steps.argmax()), int(steps.max())
        if 1 + self.layout.ranks + most > self.limits.elements:
            raise _too_many_elements(rank, 1 + self.layout.ranks + most, self.limits)
        blocks = -(-most // self.limits.steps)
        if blocks > self.limits.blocks:
            raise TooManyBlocks(rank, blocks, self.limits)

    def _check_sizes(self, blocks: list[MadeBlock], length: Integers) -> None:
        """Check what depends on all blocks of a rank together."""
        ranks = [block.rank for block in blocks]
        elements = np.bincount(ranks, weights=1 + length).astype(np.int64)
        rank, most = int(elements.argmax()), int(elements.max())
        if 1 + self.layout.ranks + most > self.limits.elements:
            raise _too_many_elements(rank, 1 + self.layout.ranks + most, self.limits)
        loop = self.layout.loop * self.wishes.instances
        if loop - 1 > self.limits.offset:
            raise DoesNotFit(f"{loop} chunks are more than offsets reach ({self.limits.offset})")


def _leave_room(fill: Integers, blocks: list[MadeBlock], length: Integers, most: int) -> None:
    """Give fewer operations to blocks that have too many steps, with what they wait for."""
    for number in np.flatnonzero(length > most).tolist():
        block = blocks[number]
        enough = max(1, block.length * most // int(length[number]))
        for connection in ((block.rank, block.send), (block.recv, block.rank)):
            if -1 not in connection:
                fill[connection] = min(fill[connection], enough)


def _too_many_elements(rank: int, elements: int, limits: Limits) -> DoesNotFit:
    return DoesNotFit(
        f"gpu {rank} needs {elements} elements (gpus, thread blocks and steps); {limits.runtime} "
        f"keeps {limits.elements}"
    )


def _share(limits: Limits, instances: int, num_gpus: int) -> Limits:
    """Limits that each of several instances has to respect."""
    fixed = 1 + num_gpus
    return replace(
        limits,
        blocks=limits.blocks // instances,
        channels=limits.channels // instances,
        peers=limits.peers,
        elements=fixed + (limits.elements - fixed) // instances,
    )


def _layout(schedule: Schedule, wishes: Wishes, chunks: int) -> MemoryMap:
    """Check that the demand is one call of a collective that programs know."""
    problem = schedule.problem
    if len(problem.demand.tenants) > 1:
        raise ExportError("the schedule has several tenants; a program is one collective call")
    tenant = problem.demand.tenants[0]
    if tenant.collective not in SUPPORTED:
        known = ", ".join(one.value for one in SUPPORTED)
        raise ExportError(f"programs know no {tenant.collective.value}; export one of {known}")
    members = tenant.members(problem.topology.num_gpus)
    root = members.index(members[0] if tenant.root is None else tenant.root)
    owners, pieces = 1, chunks
    if problem.whole_buffer:
        # The whole buffer is one block already.
        owners = len(members)
    elif tenant.collective is Collective.ALLREDUCE and schedule.sums is None:
        most = max(1, _LARGEST_BLOCK // chunks)
        owners = max(n for n in range(1, len(members) + 1) if n <= most and len(members) % n == 0)
        pieces = owners * chunks
    return layout_of(
        tenant.collective,
        ranks=len(members),
        pieces=pieces,
        owners=owners,
        root=root,
        in_place=wishes.in_place,
    )
