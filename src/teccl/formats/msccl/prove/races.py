"""Races: accesses to one chunk, one of them a write, that nothing orders.

Vector clocks run along everything that orders steps whatever the timing: the order within a
thread block, dependencies and, with protocols that have a fence before each message, data that
arrives. Without it a message says nothing about memory, not even that of its own sender. A queue
that happens to be full orders nothing here: how much fits it depends on the size of the message
and the protocol.
"""

import numpy as np

from teccl.formats.msccl.prove.actions import LETTERS, Actions, Integers
from teccl.formats.msccl.prove.collectives import Setting
from teccl.formats.msccl.prove.finding import MAX_PER_KIND, FindingKind, Findings
from teccl.formats.msccl.prove.flow import ControlRun
from teccl.formats.msccl.prove.machine import Machine
from teccl.formats.msccl.prove.program_tree import StepType

# Entries of all clocks together that are kept at a time.
_MAX_ENTRIES = 16 * 2**20


def check_races(
    machine: Machine,
    actions: Actions,
    run: ControlRun,
    setting: Setting,
    findings: Findings,
    *,
    fenced: bool,
) -> None:
    """Check every pair of accesses, a few GPUs at a time so that clocks fit into memory."""
    from teccl.formats.msccl.prove.clocks import unordered

    first_source, source = actions.sources(messages=fenced)
    blocks_of: dict[int, list[int]] = {}
    for block, rank in enumerate(machine.rank):
        blocks_of.setdefault(rank, []).append(block)
    for ranks in _groups(blocks_of, max(1, _MAX_ENTRIES // max(1, len(machine.rank)))):
        columns = [block for rank in ranks for block in blocks_of[rank]]
        column = np.full(len(machine.rank), -1)
        column[columns] = np.arange(len(columns))
        cells = _Cells(machine, actions, setting, ranks)
        found = unordered(
            run.order,
            actions.block,
            actions.place,
            cells.accesses,
            first_source,
            source,
            column,
            len(columns),
            cells.count,
            MAX_PER_KIND,
        )
        for row in found.tolist():
            _note(machine, actions, cells, row, findings)


def _groups(blocks_of: dict[int, list[int]], room: int) -> list[list[int]]:
    """Ranks whose blocks together have room."""
    groups: list[list[int]] = [[]]
    used = 0
    for rank in sorted(blocks_of):
        if groups[-1] and used + len(blocks_of[rank]) > room:
            groups.append([])
            used = 0
        groups[-1].append(rank)
        used += len(blocks_of[rank])
    return groups


class _Cells:
    """What the actions of some ranks read and write, all their chunks numbered through."""

    def __init__(
        self, machine: Machine, actions: Actions, setting: Setting, ranks: list[int]
    ) -> None:
        self.bases = {rank: setting.bases(rank) for rank in ranks}
        self.title = setting.title
        base = np.zeros((max(machine.rank) + 1, len(LETTERS)), dtype=np.int64)
        for rank, bases in self.bases.items():
            base[rank] = [bases[letter] for letter in LETTERS]
        rank_of = np.array(machine.rank)[actions.block]
        is_here = np.isin(rank_of, ranks)
        source, target = base[rank_of, actions.buffer] + actions.offset
        used = (
            (source, actions.has("reads_source")),
            (target, actions.is_a(StepType.REDUCE)),
            (target, actions.has("writes_target")),
        )
        accesses = np.zeros((len(actions), 3, 2), dtype=np.int64)
        for column, (begin, is_used) in enumerate(used):
            accesses[:, column, 0] = np.where(is_used & is_here, begin, 0)
            accesses[:, column, 1] = np.where(is_used & is_here, actions.count, 0)
        # Most cells of the address space are never touched; the others are numbered closely.
        ends = accesses.sum(axis=2)
        edge = np.zeros(int(ends.max(initial=0)) + 1, dtype=np.int64)
        counts = (accesses[:, :, 1] > 0).astype(np.int64)
        np.add.at(edge, accesses[:, :, 0], counts)
        np.add.at(edge, ends, -counts)
        is_touched = np.cumsum(edge) > 0
        self.touched = np.flatnonzero(is_touched)
        number: Integers = np.cumsum(is_touched) - is_touched
        place = np.full(max(machine.rank) + 1, 0)
        place[ranks] = np.arange(len(ranks))
        of_rank = place[rank_of] * len(self.touched)
        accesses[:, :, 0] = number[accesses[:, :, 0]] + of_rank[:, None]
        self.count = len(ranks) * len(self.touched)
        self.accesses = accesses.reshape(-1, 6)

    def name(self, rank: int, cell: int) -> str:
        """Name a chunk by the buffer that begins nearest below it."""
        place, bases = int(self.touched[cell % len(self.touched)]), self.bases[rank]
        letter = max((x for x in LETTERS if bases[x] <= place), key=lambda x: (bases[x], x == "o"))
        return f"{letter}[{place - bases[letter]}]"


def _note(
    machine: Machine, actions: Actions, cells: _Cells, row: list[int], findings: Findings
) -> None:
    """Say which two accesses race."""
    action, cell, is_write, other, other_is_write = row
    block, other_block = int(actions.block[action]), int(actions.block[other])
    step = machine.actions[block][int(actions.place[action])].step
    other_step = machine.actions[other_block][int(actions.place[other])].step
    verbs = ("reads", "writes")
    findings.add(
        FindingKind.RACE,
        f"called {cells.title}, {step.type.code} {verbs[is_write]} "
        f"{cells.name(machine.rank[block], cell)} while step {other_step.number} of tb "
        f"{machine.block_id[other_block]} {verbs[other_is_write]} it; nothing orders them",
        gpu=machine.rank[block],
        block=machine.block_id[block],
        step=step.number,
    )
