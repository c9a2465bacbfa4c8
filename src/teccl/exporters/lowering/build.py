"""Building a program that fits its target: as close to the schedule as the limits allow."""

from dataclasses import dataclass, replace

import numpy as np

from teccl.errors import ExportError
from teccl.exporters.lowering.blocks import Block, blocks_of
from teccl.exporters.lowering.contiguity import order_pieces
from teccl.exporters.lowering.layout import SUPPORTED, Layout, layout_of
from teccl.exporters.lowering.levels import exact_levels, history_of, window_levels
from teccl.exporters.lowering.limits import DoesNotFit, Limits
from teccl.exporters.lowering.operations import Operations, Plan, operations_of
from teccl.exporters.lowering.steps import Steps, steps_of
from teccl.exporters.lowering.transfers import Integers, transfers_of
from teccl.schedule import Schedule

# Windows that are tried when the schedule's own order needs too many steps, as parts of its
# length: the finer, the more of its pipelining is kept.
_PARTS = (256, 64, 32, 16, 8, 4, 2)
_TRIES = 6
# Parts of the limits that an estimate may use: what is far above them is not tried, and what
# leaves little room is passed over, because dependencies and pieces out of place come on top.
_HOPELESS = 1.2
_LIKELY = 0.4
# Where nothing is likely to fit: how much worse than the best window one may be, and how many
# are tried.
_ABOUT = 1.1
_FEW = 3
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

    blocks: list[Block]
    steps: Steps
    layout: Layout
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
    """

    in_place: bool
    channels: int | None
    instances: int


def build(schedule: Schedule, limits: Limits, wishes: Wishes) -> Built:
    """Lower a schedule, joining transfers only as much as the limits need.

    Raises
    ------
    ExportError
        If programs cannot express the schedule.
    DoesNotFit
        If no way of lowering respects the limits; the message names the one that is exceeded.
    """
    return _Builder(schedule, limits, wishes).run()


class _Builder:
    """Holds what all attempts share."""

    def __init__(self, schedule: Schedule, limits: Limits, wishes: Wishes) -> None:
        self.wishes = wishes
        self.limits = _share(limits, wishes.instances, schedule.problem.num_gpus)
        self.finish_ps = schedule.finish_ps
        table = schedule.problem.chunks
        self.layout = _layout(schedule, wishes)
        self.transfers = transfers_of(schedule)
        self.block, self.piece = table.block, table.piece
        self.history = history_of(self.transfers, table.reduce, self.layout.ranks)

    def run(self) -> Built:
        """Try the schedule's own order, then windows that grow until the program fits."""
        level = exact_levels(self.transfers, self.history, self.layout.ranks)
        reason = DoesNotFit("nothing was tried")
        # Several blocks in one operation are rare in the schedule's own order, but possible.
        if self._estimate(level) <= _HOPELESS:
            try:
                return self._attempt(level, None)
            except DoesNotFit as problem:
                reason = problem
        for part in self._likely_parts():
            try:
                return self._attempt(self._windows(part), 1 / part)
            except DoesNotFit as problem:
                reason = problem
        raise reason

    def _windows(self, part: int) -> Integers:
        window = max(1, -(-self.finish_ps // part))
        return window_levels(self.transfers, self.history, window)

    def _likely_parts(self) -> list[int]:
        """Windows worth trying, finest first: likely to fit, or else about as good as any."""
        used = {}
        for part in _PARTS:
            used[part] = self._estimate(self._windows(part))
            if used[part] <= _LIKELY:
                return list(_PARTS[_PARTS.index(part) :])
        best = min(used.values())
        return [part for part in _PARTS if used[part] <= best * _ABOUT][:_FEW]

    def _estimate(self, level: Integers) -> float:
        """Part of the limits that the joined transfers alone would use; above 1 nothing can fit.

        Transfers of one level, connection and block are taken as one operation, which they become
        where positions suit.
        """
        transfers, ranks, limits = self.transfers, self.layout.ranks, self.limits
        block = self.block[transfers.chunk]
        blocks, levels = int(block.max()) + 1, int(level.max()) + 1
        connection = transfers.src * ranks + transfers.dst
        joined = np.unique((connection * levels + level) * blocks + block) // (blocks * levels)
        room = min(limits.elements - 1 - ranks, limits.blocks * limits.steps)
        return float(_steps_by_rank(joined, ranks).max() / room)

    def _attempt(self, level: Integers, window: float | None) -> Built:
        """Lower with given levels."""
        position = self.piece
        if window is not None:
            position = order_pieces(
                self.transfers, level, self.block, self.piece, self.layout.pieces
            )
        plan = Plan(self.transfers, self.history, level, self.block, position)
        whole = self.wishes.instances == 1
        operations = operations_of(plan, self.layout, self.limits, whole_blocks=whole)
        blocks, steps = self._fit(operations)
        return Built(
            blocks=blocks,
            steps=steps,
            layout=self.layout,
            scratch=operations.scratch,
            window=window,
        )

    def _fit(self, operations: Operations) -> tuple[list[Block], Steps]:
        """Give connections as many channels as their steps need."""
        limits, ranks, asked = self.limits, self.layout.ranks, self.wishes.channels
        connection = operations.src * ranks + operations.dst
        self._check_steps(connection)
        room = limits.blocks - any(operations.copies)
        count = np.bincount(connection, minlength=ranks**2).reshape(ranks, ranks)
        needed = np.ceil(count * _MARGIN / limits.steps).astype(np.int64)
        width = np.full_like(count, asked) if asked is not None else needed
        longest = 0
        for _ in range(_TRIES):
            blocks, steps = steps_of(
                operations, blocks_of(operations, limits, width, room), self.layout
            )
            length = np.bincount(steps.block, weights=steps.lines).astype(np.int64)
            longest = int(length.max())
            if longest <= limits.steps:
                self._check_sizes(blocks, length)
                return blocks, steps
            if asked is not None:
                break
            _widen(width, blocks, length, limits.steps)
        raise DoesNotFit(
            f"a thread block has {longest} steps; {limits.runtime} takes {limits.steps}"
        )

    def _check_steps(self, connection: Integers) -> None:
        """Refuse what cannot fit whatever thread blocks are made, before they are."""
        steps = _steps_by_rank(connection, self.layout.ranks)
        rank, most = int(steps.argmax()), int(steps.max())
        if 1 + self.layout.ranks + most > self.limits.elements:
            raise _too_many_elements(rank, 1 + self.layout.ranks + most, self.limits)
        blocks = -(-most // self.limits.steps)
        if blocks > self.limits.blocks:
            raise _too_many_blocks(rank, blocks, self.limits)

    def _check_sizes(self, blocks: list[Block], length: Integers) -> None:
        """Check what depends on all blocks of a rank together."""
        ranks = [block.rank for block in blocks]
        elements = np.bincount(ranks, weights=1 + length).astype(np.int64)
        rank, most = int(elements.argmax()), int(elements.max())
        if 1 + self.layout.ranks + most > self.limits.elements:
            raise _too_many_elements(rank, 1 + self.layout.ranks + most, self.limits)
        loop = self.layout.loop * self.wishes.instances
        if loop - 1 > self.limits.offset:
            raise DoesNotFit(f"{loop} chunks are more than offsets reach ({self.limits.offset})")


def _steps_by_rank(connection: Integers, ranks: int) -> Integers:
    """Steps of each rank, given the connection of every operation."""
    count = np.bincount(connection, minlength=ranks**2).reshape(ranks, ranks)
    return count.sum(axis=0) + count.sum(axis=1)


def _widen(width: Integers, blocks: list[Block], length: Integers, most: int) -> None:
    """Give more channels to connections whose blocks have too many steps."""
    needed = width.copy()
    for number in np.flatnonzero(length > most).tolist():
        block = blocks[number]
        for connection in ((block.rank, block.send), (block.recv, block.rank)):
            if -1 not in connection:
                enough = -(-int(width[connection] * length[number]) // most)
                needed[connection] = max(needed[connection], width[connection] + 1, enough)
    width[:] = needed


def _too_many_elements(rank: int, elements: int, limits: Limits) -> DoesNotFit:
    return DoesNotFit(
        f"gpu {rank} needs {elements} elements (gpus, thread blocks and steps); {limits.runtime} "
        f"keeps {limits.elements}"
    )


def _too_many_blocks(rank: int, blocks: int, limits: Limits) -> DoesNotFit:
    return DoesNotFit(
        f"gpu {rank} needs {blocks} thread blocks; {limits.runtime} takes {limits.blocks}"
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


def _layout(schedule: Schedule, wishes: Wishes) -> Layout:
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
    return layout_of(
        tenant.collective,
        ranks=len(members),
        pieces=problem.num_chunks,
        root=root,
        in_place=wishes.in_place,
    )
