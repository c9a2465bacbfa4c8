"""Running a plan on symbolic data, with vector clocks for everything that orders accesses.

A thread block is many threads: what one of its operations wrote, another may read only after a
`nop`, the block's barrier. So a block's own operations, and what it waited for, count as known to
it from the next `nop` on, and a signal tells what was known by then. Port channels copy in an
engine of their own, which works through its orders one after the other.

One run decides. Every channel has one block that signals and one that waits at each end, so a
block that can go on stays able to go on, and all interleavings end alike unless there is a race.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.formats.msccl.prove.collectives import UNWRITTEN, Setting, Value
from teccl.formats.msccl.prove.finding import FindingKind, Findings
from teccl.formats.mscclpp.prove.execution_plan import (
    CHANNEL_TYPES,
    ExecutionPlan,
    Op,
    Operand,
    PlanBlock,
)

Clock = npt.NDArray[np.int32]


class _End(NamedTuple):
    """One end of a channel: the rank, the type and the place among its channels."""

    rank: int
    kind: str
    place: int


@dataclass(slots=True)
class _Cell:
    """Who accessed a chunk: the last write and the reads since, as (actor, time)."""

    value: Value = UNWRITTEN
    write: tuple[int, int] | None = None
    reads: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Thread:
    """A thread block on its way: its place, clock and what it knows from the next `nop` on."""

    number: int
    rank: int
    block: PlanBlock
    clock: Clock
    pending: Clock
    place: int = 0
    time: int = 0
    at_barrier: int | None = None


def execute(plan: ExecutionPlan, setting: Setting, findings: Findings) -> None:
    """Run a plan whose structure is sound and check that it ends, with the right result."""
    run = _Run(plan, setting, findings)
    run.check_users()
    if findings:
        return
    run.go()
    run.check_end()


class _Run:
    """The state of all ranks."""

    def __init__(self, plan: ExecutionPlan, setting: Setting, findings: Findings) -> None:
        self.plan = plan
        self.setting = setting
        self.findings = findings
        self.bases = [setting.bases(rank) for rank in range(len(plan.gpus))]
        self.cells: list[dict[int, _Cell]] = [
            {k: _Cell(value=value) for k, value in setting.initial(rank).items()}
            for rank in range(len(plan.gpus))
        ]
        self.peer_end = _pair_ends(plan)
        blocks = [(rank, block) for rank, gpu in enumerate(plan.gpus) for block in gpu.blocks]
        ports = [end for end in self.peer_end if end.kind == "port"]
        # Actors of a clock: thread blocks, engines of port channels, and the starts of ranks.
        self.engine = {end: len(blocks) + i for i, end in enumerate(ports)}
        self.starts = len(blocks) + len(ports)
        width = self.starts + len(plan.gpus)
        self.threads = [
            _Thread(i, rank, block, self._fresh(rank, width), np.zeros(width, dtype=np.int32))
            for i, (rank, block) in enumerate(blocks)
        ]
        self.engine_clock = {end: np.zeros(width, dtype=np.int32) for end in ports}
        self.signals: dict[_End, deque[Clock]] = {end: deque() for end in self.peer_end}
        self.released: dict[tuple[int, int], deque[Clock]] = {}
        for rank, gpu in enumerate(plan.gpus):
            for i, count in enumerate(gpu.semaphores):
                initial = [np.zeros(width, dtype=np.int32)] * min(count, 1000)
                self.released[rank, i] = deque(initial)

    def _fresh(self, rank: int, width: int) -> Clock:
        clock = np.zeros(width, dtype=np.int32)
        clock[self.starts + rank] = 1
        return clock

    def check_users(self) -> None:
        """Check that only one thread block waits on each channel and semaphore."""
        users: dict[object, int] = {}
        for thread in self.threads:
            for place, op in enumerate(thread.block.ops):
                waited: list[object] = []
                if op.name in ("wait", "rlxwait"):
                    waited += [self._end(thread, op, channel) for channel in op.channels]
                if op.name == "sem_acquire":
                    waited += [(thread.rank, i) for i in op.semaphores]
                for what in waited:
                    if users.setdefault(what, thread.number) != thread.number:
                        detail = "waits for what another thread block waits for, too"
                        self._note(FindingKind.PEER, detail, thread, place)

    def go(self) -> None:
        """Let thread blocks run until all have ended or none can go on."""
        moved = True
        while moved:
            moved = False
            for thread in self.threads:
                while thread.place < len(thread.block.ops) and self._step(thread):
                    thread.place += 1
                    moved = True
            moved |= self._open_barriers()

    def check_end(self) -> None:
        """Check that every thread block ended, nothing is left over and the output is right."""
        for thread in self.threads:
            if thread.place < len(thread.block.ops):
                op = thread.block.ops[thread.place]
                detail = f"{op.name} waits for ever"
                self._note(FindingKind.DEADLOCK, detail, thread, thread.place)
        if self.findings:
            return
        for end, left in self.signals.items():
            if left:
                detail = (
                    f"{len(left)} signals on {end.kind} channel {end.place} are never waited for"
                )
                self.findings.add(FindingKind.UNMATCHED, detail, gpu=end.rank)
        for rank in range(len(self.plan.gpus)):
            self._check_settled(rank)
            base = self.bases[rank]["o"]
            for chunk, wanted in self.setting.wanted(rank, 0).items():
                cell = self.cells[rank].get(base + chunk)
                value = UNWRITTEN if cell is None else cell.value
                if value != wanted:
                    has, wants = self.setting.describe(value), self.setting.describe(wanted)
                    detail = f"output chunk {chunk} holds {has}; it must hold {wants}"
                    self.findings.add(FindingKind.WRONG_RESULT, detail, gpu=rank)

    def _check_settled(self, rank: int) -> None:
        """Check that a rank's input and output are at rest when its last thread block ends."""
        known = np.zeros_like(self.threads[0].clock)
        for thread in self.threads:
            if thread.rank == rank:
                np.maximum(known, thread.clock, out=known)
                np.maximum(known, thread.pending, out=known)
                known[thread.number] = thread.time
        for letter in ("i", "o"):
            base = self.bases[rank][letter]
            for chunk in range(self.plan.gpus[rank].chunks[letter]):
                cell = self.cells[rank].get(base + chunk)
                uses = {} if cell is None else dict(cell.reads)
                if cell is not None and cell.write is not None:
                    uses[cell.write[0]] = max(cell.write[1], uses.get(cell.write[0], 0))
                late = next((actor for actor, time in uses.items() if known[actor] < time), None)
                if late is not None:
                    detail = f"may end while {self._name(late)} still uses {letter}[{chunk}]"
                    self.findings.add(FindingKind.RACE, detail, gpu=rank)

    def _step(self, thread: _Thread) -> bool:
        """Run one operation if it can run."""
        op = thread.block.ops[thread.place]
        if op.name in ("wait", "rlxwait", "sem_acquire"):
            return self._wait(thread, op)
        if op.name == "barrier":
            thread.at_barrier = op.barrier
            return False
        if op.name == "nop":
            np.maximum(thread.clock, thread.pending, out=thread.clock)
            thread.clock[thread.number] = thread.time
        elif op.name in ("signal", "rlxsignal"):
            for channel in op.channels:
                self._signal(thread, self._end(thread, op, channel), relaxed=op.name != "signal")
        elif op.name == "sem_release":
            for i in op.semaphores:
                self.released[thread.rank, i].append(thread.clock.copy())
        else:
            self._move(thread, op)
        return True

    def _wait(self, thread: _Thread, op: Op) -> bool:
        if op.name == "sem_acquire":
            queues = [self.released[thread.rank, i] for i in op.semaphores]
        else:
            queues = [self.signals[self._end(thread, op, channel)] for channel in op.channels]
        if not all(queues):
            return False
        for queue in queues:
            np.maximum(thread.pending, queue.popleft(), out=thread.pending)
        return True

    def _signal(self, thread: _Thread, end: _End, *, relaxed: bool) -> None:
        """Raise the semaphore at the other end; a relaxed one tells only who has started."""
        clock = thread.clock.copy()
        if end.kind == "port":
            clock = np.maximum(self.engine_clock[end], clock)
        if relaxed:
            clock[: self.starts] = 0
        self.signals[self.peer_end[end]].append(clock)

    def _open_barriers(self) -> bool:
        """Let thread blocks pass barriers that all of their number have reached."""
        waiting: dict[tuple[int, int], list[_Thread]] = {}
        for thread in self.threads:
            if thread.at_barrier is not None:
                waiting.setdefault((thread.rank, thread.at_barrier), []).append(thread)
        opened = False
        for members in waiting.values():
            wanted = members[0].block.ops[members[0].place].num_blocks
            if len(members) < max(1, wanted):
                continue
            for thread in members:
                thread.clock[thread.number] = thread.time
                np.maximum(thread.clock, thread.pending, out=thread.clock)
            joined = np.maximum.reduce([thread.clock for thread in members])
            for thread in members:
                thread.clock = joined.copy()
                thread.at_barrier = None
                thread.place += 1
            opened = True
        return opened

    def _move(self, thread: _Thread, op: Op) -> None:
        """Run an operation that reads and writes chunks."""
        size = op.sources[0].size
        by_port = op.channel_type == "port"
        actor, clock, time = self._actor(thread, op) if by_port else self._own(thread)
        for k in range(size):
            value: Value | None = None
            for source in op.sources:
                cell = self._cell(thread.rank, source, k)
                self._check(cell, (actor, time), clock, thread, source, write=False)
                cell.reads[actor] = time
                value = cell.value if value is None else self.setting.combine(value, cell.value)
            assert value is not None
            target = op.targets[0]
            rank, letter = self._place(thread, op, target)
            cell = self._cell(rank, target._replace(letter=letter), k)
            self._check(cell, (actor, time), clock, thread, target, write=True)
            cell.value, cell.write, cell.reads = value, (actor, time), {}
            self._check_target(thread, rank, letter, target.first + k, clock)
        if op.name in ("pws", "pwsf"):
            for channel in op.channels:
                end = self._end(thread, op, channel)
                self._signal(thread, end, relaxed=False)
                if op.name == "pwsf":
                    np.maximum(thread.pending, self.engine_clock[end], out=thread.pending)

    def _own(self, thread: _Thread) -> tuple[int, Clock, int]:
        thread.time += 1
        return thread.number, thread.clock, thread.time

    def _actor(self, thread: _Thread, op: Op) -> tuple[int, Clock, int]:
        """Return the engine that copies for a port channel, told what the block knows."""
        end = self._end(thread, op, op.channels[0])
        clock, actor = self.engine_clock[end], self.engine[end]
        np.maximum(clock, thread.clock, out=clock)
        clock[actor] += 1
        return actor, clock, int(clock[actor])

    def _check(
        self,
        cell: _Cell,
        access: tuple[int, int],
        clock: Clock,
        thread: _Thread,
        operand: Operand,
        *,
        write: bool,
    ) -> None:
        """Check that an access is ordered after those it conflicts with."""
        others = dict(cell.reads) if write else {}
        if cell.write is not None:
            writer, time = cell.write
            others[writer] = max(time, others.get(writer, 0))
        for other, time in others.items():
            # What an operation reads itself, it may overwrite: each thread keeps to its elements.
            if clock[other] < time and (other, time) != access:
                verb = "writes" if write else "reads"
                detail = f"{verb} a chunk of {self._buffer(operand)} while {self._name(other)} may"
                detail += " still use it" if write else " still write it"
                self._note(FindingKind.RACE, detail, thread, thread.place)
                return

    def _check_target(
        self, thread: _Thread, rank: int, letter: str, index: int, clock: Clock
    ) -> None:
        if rank != thread.rank and not clock[self.starts + rank]:
            detail = f"writes to rank {rank} before it is known to have started"
            self._note(FindingKind.RACE, detail, thread, thread.place)
        if letter == "i" and not self.setting.in_place:
            detail = f"writes the caller's input i[{index}] of rank {rank}; use o or s"
            self._note(FindingKind.INPUT_OVERWRITTEN, detail, thread, thread.place)

    def _place(self, thread: _Thread, op: Op, operand: Operand) -> tuple[int, str]:
        """Return the rank and letter of an operand's buffer."""
        if operand.letter is not None:
            return thread.rank, operand.letter
        assert op.channel_type is not None
        assert operand.remote is not None
        place = thread.block.remote_buffers[op.channel_type][operand.remote]
        buffer = self.plan.gpus[thread.rank].remote_buffers[place]
        return buffer.rank, buffer.letter

    def _cell(self, rank: int, operand: Operand, k: int) -> _Cell:
        assert operand.letter is not None
        number = self.bases[rank][operand.letter] + operand.first + k
        return self.cells[rank].setdefault(number, _Cell())

    def _end(self, thread: _Thread, op: Op, channel: int) -> _End:
        assert op.channel_type is not None
        place = thread.block.channels[op.channel_type][channel]
        return _End(thread.rank, op.channel_type, place)

    def _note(self, kind: FindingKind, detail: str, thread: _Thread, place: int) -> None:
        self.findings.add(kind, detail, gpu=thread.rank, block=thread.block.id, step=place)

    def _name(self, actor: int) -> str:
        if actor < len(self.threads):
            thread = self.threads[actor]
            return f"thread block {thread.block.id} of rank {thread.rank}"
        end = next(end for end, number in self.engine.items() if number == actor)
        return f"port channel {end.place} of rank {end.rank}"

    @staticmethod
    def _buffer(operand: Operand) -> str:
        return f"buffer {operand.letter}" if operand.letter else "a remote buffer"


def _pair_ends(plan: ExecutionPlan) -> dict[_End, _End]:
    """Pair the ends: the j-th channel from A to B with the j-th from B to A."""
    ends: dict[tuple[str, int, int], list[_End]] = {}
    for rank, gpu in enumerate(plan.gpus):
        for kind in CHANNEL_TYPES:
            for place, peer in enumerate(gpu.peers[kind]):
                ends.setdefault((kind, rank, peer), []).append(_End(rank, kind, place))
    return {
        one: other
        for (kind, rank, peer), mine in ends.items()
        for one, other in zip(mine, ends[kind, peer, rank], strict=True)
    }
