"""GOAL programs executed by the LogGOPS model, as its simulator's authors define it.

A send holds its processor for o and a time O for each byte but the first, and its network
interface for g and G for each byte but the first. Its first byte is at the receiver L later, where
the message waits for the processor and the interface of the *sender's* numbers, holds the
processor for o and the longer of O and G a byte, and the interface as a send does. What depends on
it begins when that processor is free. Messages of up to S bytes are sent eagerly: what requires the
send may begin as soon as it has begun.
"""

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

from teccl.errors import ScheduleError
from teccl.formats.goal.prove.goal_program import (
    GoalKind,
    GoalProgram,
    Operation,
    Spot,
    match_messages,
)


class Parameters(NamedTuple):
    """Parameters of the model, times in one unit of the user's choice.

    Parameters
    ----------
    latency, overhead, gap
        L, o and g: a message on its way, at a processor, at an interface.
    gap_per_byte, overhead_per_byte
        G and O.
    eager_bytes
        S, the largest message that is sent eagerly.
    """

    latency: int
    overhead: int
    gap: int
    gap_per_byte: int
    overhead_per_byte: int
    eager_bytes: int

    def arguments(self) -> tuple[str, ...]:
        """Return the options of LogGOPSim."""
        names = ("-L", "-o", "-g", "-G", "-O", "-S")
        return tuple(
            part for name, value in zip(names, self, strict=True) for part in (name, str(value))
        )


@dataclass(slots=True)
class _Rank:
    """When processors and interfaces of a rank are free, and what its operations wait for."""

    left: list[int]
    on_start: list[list[int]]
    on_end: list[list[int]]
    cpu: dict[int, int] = field(default_factory=dict)
    sending: dict[int, int] = field(default_factory=dict)
    receiving: dict[int, int] = field(default_factory=dict)


def finish_time(program: GoalProgram, parameters: Parameters) -> int:
    """Execute a program and return when the last processor is done.

    Raises
    ------
    ScheduleError
        If messages do not match, something waits for ever, or a message is too large to be eager.
    """
    return _Execution(program, parameters).run()


class _Execution:
    """Events in order of time; what finds its processor or interface busy tries again later."""

    def __init__(self, program: GoalProgram, parameters: Parameters) -> None:
        self._program = program
        self._parameters = parameters
        self._receive_of = dict(match_messages(program))
        self._ranks = [_Rank([], [], []) for _ in program.ranks]
        # Time, place in line, the operation, and whether it is a message at its receiver.
        self._events: list[tuple[int, int, Spot, bool]] = []
        self._arrived: set[Spot] = set()
        self._posted: set[Spot] = set()
        self._count = 0
        self._done = 0

    def run(self) -> int:
        """Execute all operations."""
        for number, (rank, state) in enumerate(zip(self._program.ranks, self._ranks, strict=True)):
            state.left = [0] * len(rank.operations)
            state.on_start = [[] for _ in rank.operations]
            state.on_end = [[] for _ in rank.operations]
            for after, before, on_start in rank.dependencies:
                state.left[after] += 1
                (state.on_start if on_start else state.on_end)[before].append(after)
            for position, left in enumerate(state.left):
                if not left:
                    self._push(0, Spot(number, position))
        while self._events:
            time, line, place, is_message = heapq.heappop(self._events)
            free = self._free_at(place, is_message)
            if free > time:
                heapq.heappush(self._events, (free, line, place, is_message))
            elif is_message:
                self._arrive(time, place)
            else:
                self._begin(time, place)
        self._check_all_done()
        return max((max(rank.cpu.values(), default=0) for rank in self._ranks), default=0)

    def _operation(self, place: Spot) -> Operation:
        return self._program.ranks[place.rank].operations[place.position]

    def _push(self, time: int, place: Spot, *, is_message: bool = False) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, place, is_message))

    def _free_at(self, place: Spot, is_message: bool) -> int:
        """Return when what an event needs is free."""
        operation = self._operation(place)
        rank = self._ranks[operation.peer if is_message else place.rank]
        cpu = rank.cpu.get(operation.cpu, 0)
        if operation.kind is GoalKind.SEND:
            side = rank.receiving if is_message else rank.sending
            return max(cpu, side.get(operation.nic, 0))
        return cpu if operation.kind is GoalKind.COMPUTE else 0

    def _begin(self, time: int, place: Spot) -> None:
        operation, rank = self._operation(place), self._ranks[place.rank]
        self._release(place, rank.on_start)
        if operation.kind is GoalKind.COMPUTE:
            rank.cpu[operation.cpu] = time + operation.amount
            self._end(place)
        elif operation.kind is GoalKind.SEND:
            self._send(time, place, operation)
        elif place in self._arrived:
            self._end(place)
        else:
            self._posted.add(place)

    def _send(self, time: int, place: Spot, operation: Operation) -> None:
        model, rank = self._parameters, self._ranks[place.rank]
        if operation.amount > model.eager_bytes:
            raise ScheduleError(
                f"line {operation.line}: {operation.amount} bytes are more than S, "
                f"{model.eager_bytes}; only eager messages are modelled"
            )
        rest = operation.amount - 1
        rank.cpu[operation.cpu] = time + model.overhead + rest * model.overhead_per_byte
        rank.sending[operation.nic] = time + model.gap + rest * model.gap_per_byte
        self._push(time + model.overhead + model.latency, place, is_message=True)
        self._end(place)

    def _arrive(self, time: int, place: Spot) -> None:
        model, operation = self._parameters, self._operation(place)
        rank, rest = self._ranks[operation.peer], operation.amount - 1
        longest = max(model.overhead_per_byte, model.gap_per_byte)
        rank.cpu[operation.cpu] = time + model.overhead + rest * longest
        rank.receiving[operation.nic] = time + model.gap + rest * model.gap_per_byte
        receive = self._receive_of[place]
        if receive in self._posted:
            self._end(receive)
        else:
            self._arrived.add(receive)

    def _end(self, place: Spot) -> None:
        self._done += 1
        self._release(place, self._ranks[place.rank].on_end)

    def _release(self, place: Spot, waiting: list[list[int]]) -> None:
        rank = self._ranks[place.rank]
        for position in waiting[place.position]:
            rank.left[position] -= 1
            if not rank.left[position]:
                freed = Spot(place.rank, position)
                operation = self._operation(freed)
                begin = rank.cpu.get(operation.cpu, 0)
                if operation.kind is GoalKind.SEND:
                    begin = max(begin, rank.sending.get(operation.nic, 0))
                self._push(begin, freed)

    def _check_all_done(self) -> None:
        if self._done == sum(len(rank.operations) for rank in self._program.ranks):
            return
        stuck = min(
            operation.line
            for rank, state in zip(self._program.ranks, self._ranks, strict=True)
            for operation, left in zip(rank.operations, state.left, strict=True)
            if left
        )
        raise ScheduleError(f"line {stuck} waits for what never happens")
