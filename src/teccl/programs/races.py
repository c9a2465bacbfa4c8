"""Races: accesses to one chunk, one of them a write, that nothing orders.

Vector clocks run along everything that orders steps whatever the timing: the order within a
thread block, dependencies, and data that arrives. A queue that happens to be full orders nothing
here: how much fits it depends on the size of the message and the protocol.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.programs.collectives import Setting
from teccl.programs.finding import MAX_PER_KIND, FindingKind, Findings
from teccl.programs.flow import Run
from teccl.programs.machine import Machine
from teccl.programs.model import StepType

# Entries of all clocks together that are kept at a time.
_MAX_ENTRIES = 16 * 2**20
_LETTERS = "ios"

Integers = npt.NDArray[np.int64]


def check_races(machine: Machine, run: Run, setting: Setting, findings: Findings) -> None:
    """Check every pair of accesses, a few GPUs at a time so that clocks fit into memory."""
    from teccl.programs.clocks import unordered

    actions = _Actions.of(machine)
    order = np.array([actions.start[block] + place for block, place in run.order], dtype=np.int64)
    blocks_of: dict[int, list[int]] = {}
    for block, rank in enumerate(machine.rank):
        blocks_of.setdefault(rank, []).append(block)
    for ranks in _groups(blocks_of, max(1, _MAX_ENTRIES // max(1, len(machine.rank)))):
        columns = [block for rank in ranks for block in blocks_of[rank]]
        column = np.full(len(machine.rank), -1)
        column[columns] = np.arange(len(columns))
        cells = _Cells(machine, actions, setting, ranks)
        found = unordered(
            order,
            actions.block,
            actions.place,
            cells.accesses,
            actions.first_source,
            actions.source,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Actions:
    """All actions of all blocks, numbered through.

    Parameters
    ----------
    start
        Number of each block's first.
    block, place
        Of every action.
    first_source, source
        Where in `source` each one's own stand: actions that end before it can.
    """

    start: list[int]
    block: Integers
    place: Integers
    first_source: Integers
    source: Integers

    @staticmethod
    def of(machine: Machine) -> "_Actions":
        """Number the actions and find out what each waits for."""
        lengths = np.array([len(actions) for actions in machine.actions], dtype=np.int64)
        start: list[int] = (np.cumsum(lengths) - lengths).tolist()
        publisher = {
            wait: start[block] + place for wait, (block, place) in _publishers(machine).items()
        }
        # Blocks without a peer have connection -1: the last list, which stays empty.
        sent: list[list[int]] = [[] for _ in range(machine.num_connections + 1)]
        for block, actions in enumerate(machine.actions):
            connection = machine.sends_on[block]
            sent[connection] += [
                number for number, action in enumerate(actions, start[block]) if action.sends
            ]
        first, source = [0], []
        for block, actions in enumerate(machine.actions):
            arriving = iter(sent[machine.receives_on[block]])
            for action in actions:
                source += [publisher[wait] for wait in action.waits]
                if action.receives:
                    source.append(next(arriving))
                first.append(len(source))
        return _Actions(
            start=start,
            block=np.repeat(np.arange(len(lengths)), lengths),
            place=np.arange(lengths.sum()) - np.repeat(np.array(start, dtype=np.int64), lengths),
            first_source=np.array(first, dtype=np.int64),
            source=np.array(source, dtype=np.int64),
        )


class _Cells:
    """What the actions of some ranks read and write, all their chunks numbered through."""

    def __init__(
        self, machine: Machine, actions: _Actions, setting: Setting, ranks: list[int]
    ) -> None:
        self.bases = {rank: setting.bases(rank) for rank in ranks}
        self.title = setting.title
        none = (0, 0)
        rows: list[tuple[int, ...]] = []
        for rank, own in zip(machine.rank, machine.actions, strict=True):
            bases = self.bases.get(rank)
            if bases is None:
                rows += [none * 3] * len(own)
                continue
            for step, *_ in own:
                kind, count = step.type, step.cnt
                source = (bases[step.srcbuf] + step.srcoff, count)
                target = (bases[step.dstbuf] + step.dstoff, count)
                rows.append(
                    (
                        *(source if kind.reads_source else none),
                        *(target if kind is StepType.REDUCE else none),
                        *(target if kind.writes_target else none),
                    )
                )
        accesses = np.array(rows, dtype=np.int64).reshape(-1, 3, 2)
        # Most cells of the address space are never touched; the others are numbered closely.
        ends = accesses.sum(axis=2)
        edge = np.zeros(int(ends.max(initial=0)) + 1, dtype=np.int64)
        counts = (accesses[:, :, 1] > 0).astype(np.int64)
        np.add.at(edge, accesses[:, :, 0], counts)
        np.add.at(edge, ends, -counts)
        used = np.cumsum(edge) > 0
        self.touched = np.flatnonzero(used)
        number: Integers = np.cumsum(used) - used
        place = np.full(max(machine.rank) + 1, 0)
        place[ranks] = np.arange(len(ranks))
        of_rank = place[np.array(machine.rank)][actions.block] * len(self.touched)
        accesses[:, :, 0] = number[accesses[:, :, 0]] + of_rank[:, None]
        self.count = len(ranks) * len(self.touched)
        self.accesses = accesses.reshape(-1, 6)

    def name(self, rank: int, cell: int) -> str:
        """Name a chunk by the buffer that begins nearest below it."""
        place, bases = int(self.touched[cell % len(self.touched)]), self.bases[rank]
        letter = max((x for x in _LETTERS if bases[x] <= place), key=lambda x: (bases[x], x == "o"))
        return f"{letter}[{place - bases[letter]}]"


def _note(
    machine: Machine, actions: _Actions, cells: _Cells, row: list[int], findings: Findings
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


def _publishers(machine: Machine) -> dict[tuple[int, int], tuple[int, int]]:
    """For every wait, the first step that ends it: published numbers only grow."""
    waits = {wait for actions in machine.actions for action in actions for wait in action.waits}
    published: dict[int, list[tuple[int, int]]] = {}
    for target in {target for target, _ in waits}:
        published[target] = [
            (action.step.number, place)
            for place, action in enumerate(machine.actions[target])
            if action.step.hasdep
        ]
    return {
        (target, number): (target, _first(published[target], number)) for target, number in waits
    }


def _first(published: list[tuple[int, int]], number: int) -> int:
    return published[bisect_left(published, (number, -1))][1]
