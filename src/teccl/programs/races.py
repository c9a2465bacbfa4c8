"""Races: accesses to one chunk, one of them a write, that nothing orders.

Vector clocks run along everything that orders steps whatever the timing: the order within a
thread block, dependencies, and data that arrives. A queue that happens to be full orders nothing
here: how much fits it depends on the size of the message and the protocol.
"""

from bisect import bisect_left
from collections import Counter, deque

import numpy as np
import numpy.typing as npt

from teccl.programs.collectives import Setting
from teccl.programs.finding import FindingKind, Findings
from teccl.programs.flow import Run
from teccl.programs.machine import Machine
from teccl.programs.model import Step, StepType

# Entries of all clocks together that are kept at a time.
_MAX_ENTRIES = 16 * 2**20
_LETTERS = "ios"

Clock = npt.NDArray[np.int16]


def check_races(machine: Machine, run: Run, setting: Setting, findings: Findings) -> None:
    """Check every pair of accesses, a few GPUs at a time so that clocks fit into memory."""
    blocks_of: dict[int, list[int]] = {}
    for block, rank in enumerate(machine.rank):
        blocks_of.setdefault(rank, []).append(block)
    room = max(1, _MAX_ENTRIES // max(1, len(machine.rank)))
    group: list[int] = []
    for rank in sorted(blocks_of):
        if group and sum(len(blocks_of[r]) for r in (*group, rank)) > room:
            _Clocks(machine, setting, {r: blocks_of[r] for r in group}, findings).run(run)
            group = []
        group.append(rank)
    _Clocks(machine, setting, {r: blocks_of[r] for r in group}, findings).run(run)


class _Clocks:
    """What every block knows to have happened on some of the GPUs, step by step."""

    def __init__(
        self,
        machine: Machine,
        setting: Setting,
        blocks_of: dict[int, list[int]],
        findings: Findings,
    ) -> None:
        self.machine = machine
        self.setting = setting
        self.findings = findings
        columns = [block for blocks in blocks_of.values() for block in blocks]
        self.column = {block: i for i, block in enumerate(columns)}
        self.clock: Clock = np.zeros((len(machine.rank), len(columns)), dtype=np.int16)
        self.bases = {rank: setting.bases(rank) for rank in blocks_of}
        self.written: dict[int, dict[int, tuple[int, int]]] = {rank: {} for rank in blocks_of}
        self.read: dict[int, dict[int, dict[int, int]]] = {rank: {} for rank in blocks_of}
        self.travelling: list[deque[Clock]] = [deque() for _ in range(machine.num_connections)]
        self.publisher = _publishers(machine)
        self.uses = Counter(
            self.publisher[wait]
            for actions in machine.actions
            for action in actions
            for wait in action.waits
        )
        self.published: dict[tuple[int, int], Clock] = {}

    def run(self, run: Run) -> None:
        """Replay the steps in an order in which they can complete."""
        machine, clock = self.machine, self.clock
        for block, place in run.order:
            action = machine.actions[block][place]
            now = clock[block]
            for wait in action.waits:
                np.maximum(now, self._published(wait), out=now)
            if action.receives:
                np.maximum(now, self.travelling[machine.receives_on[block]].popleft(), out=now)
            if block in self.column:
                self._access(block, place, action.step, now)
                now[self.column[block]] = place + 1
            if action.sends:
                self.travelling[machine.sends_on[block]].append(now.copy())
            if (block, place) in self.uses:
                self.published[block, place] = now.copy()

    def _published(self, wait: tuple[int, int]) -> Clock:
        """Return the clock of the step that ends a wait, dropping it after its last use."""
        source = self.publisher[wait]
        self.uses[source] -= 1
        return self.published[source] if self.uses[source] else self.published.pop(source)

    def _access(self, block: int, place: int, step: Step, now: Clock) -> None:
        """Check the chunks of a step against earlier accesses, then note them."""
        rank, kind, count = self.machine.rank[block], step.type, step.cnt
        bases, written, read = self.bases[rank], self.written[rank], self.read[rank]
        firsts = [bases[step.srcbuf] + step.srcoff] if kind.reads_source else []
        if kind is StepType.REDUCE:
            firsts.append(bases[step.dstbuf] + step.dstoff)
        for first in firsts:
            for cell in range(first, first + count):
                if cell in written and not self._knows(block, now, written[cell]):
                    self._note(block, step, cell, "reads", written[cell], "writes")
                read.setdefault(cell, {})[block] = place
        if kind.writes_target:
            first = bases[step.dstbuf] + step.dstoff
            for cell in range(first, first + count):
                if cell in written and not self._knows(block, now, written[cell]):
                    self._note(block, step, cell, "writes", written[cell], "writes")
                for reader in read.pop(cell, {}).items():
                    if not self._knows(block, now, reader):
                        self._note(block, step, cell, "writes", reader, "reads")
                written[cell] = (block, place)

    def _knows(self, block: int, now: Clock, other: tuple[int, int]) -> bool:
        """Whether another access is ordered before this one."""
        return other[0] == block or bool(now[self.column[other[0]]] > other[1])

    def _note(  # noqa: PLR0917, two accesses to one chunk
        self, block: int, step: Step, cell: int, verb: str, other: tuple[int, int], verb2: str
    ) -> None:
        machine = self.machine
        other_step = machine.actions[other[0]][other[1]].step
        self.findings.add(
            FindingKind.RACE,
            f"called {self.setting.title}, {step.type.code} {verb} "
            f"{self._cell_name(machine.rank[block], cell)} while step {other_step.number} of tb "
            f"{machine.block_id[other[0]]} {verb2} it; nothing orders them",
            gpu=machine.rank[block],
            block=machine.block_id[block],
            step=step.number,
        )

    def _cell_name(self, rank: int, cell: int) -> str:
        """Name a chunk by the buffer that begins nearest below it."""
        bases = self.bases[rank]
        letter = max((x for x in _LETTERS if bases[x] <= cell), key=lambda x: (bases[x], x == "o"))
        return f"{letter}[{cell - bases[letter]}]"


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
