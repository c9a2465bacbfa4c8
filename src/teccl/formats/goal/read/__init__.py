"""GOAL files as schedules.

The tag of a message modulo the number of chunks is the chunk that it carries. Messages of a chunk
between two ranks are, in order of their tags, pieces of transfers, each of which has the chunk's
bytes. What a computation requires is added to what the rank holds, or kept apart where the file has
partial sums; a send that requires another one follows it.
"""

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

from teccl import _files as files
from teccl.demand import Demand
from teccl.errors import DemandError, ProblemError, ScheduleError
from teccl.formats.goal.prove.goal_program import (
    Dependency,
    GoalKind,
    GoalProgram,
    Operation,
    Rank,
    Spot,
    at,
    match_messages,
    parse,
)
from teccl.formats.goal.read.file_sums import FileSums
from teccl.formats.shared.placing import FilePassage, FileWays, place
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.topology import Topology

MAX_BYTES = 64 * 2**20
# Messages that computations of a file add up, each counted for every computation after it. Real
# sums have as many as there are ranks.
MAX_ADDED = 5_000_000


def read_schedule(path: Path, topology: Topology, size: Fraction, notes: list[str]) -> Schedule:
    """Read a GOAL file as a schedule.

    Raises
    ------
    ScheduleError
        If the file is damaged, does not say what its messages carry, or does not fit.
    """
    program = parse(files.read_text(path, ScheduleError, max_bytes=MAX_BYTES))
    problem = _problem(program, topology, size)
    notes.append(
        f"a {problem.demand.title} in {len(problem.chunks)} chunks, by the comment of the file; "
        "parameters of a simulator are not part of it, times are those of the topology"
    )
    has_sums = program.title is not None and program.title.has_sums
    if has_sums and not problem.has_reductions:
        raise ScheduleError(f"its comment is wrong: {problem.demand.title} has no partial sums")
    sums = FileSums(problem) if has_sums else None
    placed = place(problem, _Passages(program, problem, sums).all(), "goal")
    return placed if sums is None else sums.attached(placed)


def _problem(program: GoalProgram, topology: Topology, size: Fraction) -> Problem:
    title = program.title
    if title is None:
        raise ScheduleError(
            "does not say what its messages carry; add a comment such as "
            "'// collective allgather, chunks 1'"
        )
    if len(program.ranks) != topology.num_gpus:
        raise ScheduleError(
            f"is for {len(program.ranks)} ranks, but {topology.name} has {topology.num_gpus} GPUs; "
            "give the topology it was made for"
        )
    num_operations = sum(len(rank.operations) for rank in program.ranks)
    if not 1 <= title.num_chunks <= max(1, num_operations):
        raise ScheduleError(f"chunks {title.num_chunks} are more than operations; mend the comment")
    try:
        return Problem(
            topology=topology,
            demand=Demand.collective(title.collective, size=size, root=title.root),
            num_chunks=title.num_chunks,
            whole_buffer=title.whole_buffer,
        )
    except (DemandError, ProblemError) as problem:
        raise ScheduleError(f"its comment is wrong: {problem}") from None


class _Passages:
    """Turns messages into passages: what each carries, and what it waits for."""

    def __init__(self, program: GoalProgram, problem: Problem, sums: FileSums | None) -> None:
        self._program = program
        self._problem = problem
        self._sums = sums
        self._ways = FileWays(problem.topology)
        self._passages: list[FilePassage] = []
        # The passage of each transfer, and the passages that a receive or a computation holds.
        self._number_of: dict[int, int] = {}
        self._carried: dict[Spot, frozenset[int]] = {}
        # The partial sum that it leaves.
        self._row: dict[Spot, int] = {}
        pairs = match_messages(program)
        self._transfer_of = self._transfers(pairs)
        self._before: dict[Spot, list[Spot]] = {}
        for number, rank in enumerate(program.ranks):
            for dependency in rank.dependencies:
                if not (dependency.on_start and self._is(dependency, rank, GoalKind.RECEIVE)):
                    self._before.setdefault(Spot(number, dependency.after), []).append(
                        Spot(number, dependency.before)
                    )
        self._pairs = pairs
        self._added = self._merged()
        # Of parallel links between two ranks, the interfaces that name them, in order.
        nics: dict[tuple[int, int], set[int]] = {}
        for send, _ in pairs:
            operation = at(program, send)
            nics.setdefault((send.rank, operation.peer), set()).add(operation.nic)
        self._lanes = {ends: sorted(found) for ends, found in nics.items()}

    @staticmethod
    def _is(dependency: Dependency, rank: Rank, kind: GoalKind) -> bool:
        return rank.operations[dependency.before].kind is kind

    def _merged(self) -> set[int]:
        """Return the transfers whose receive a computation requires."""
        return {
            self._transfer_of[before]
            for place, deps in self._before.items()
            if at(self._program, place).kind is GoalKind.COMPUTE
            for before in deps
            if at(self._program, before).kind is GoalKind.RECEIVE
        }

    def all(self) -> list[FilePassage]:
        """Return the passages in an order in which they can begin."""
        added = 0
        for spot in self._order():
            kind = at(self._program, spot).kind
            if kind is GoalKind.RECEIVE:
                self._receive(spot)
                continue
            data = [d for d in self._before.get(spot, ()) if d in self._carried]
            after = frozenset[int]().union(*(self._carried[d] for d in data))
            added += len(after)
            if added > MAX_ADDED:
                line = at(self._program, spot).line
                raise ScheduleError(f"line {line}: sums of too many messages; cut them")
            if kind is GoalKind.COMPUTE:
                self._compute(spot, data, after)
            elif self._transfer_of[spot] not in self._number_of:
                self._send(spot, data, after)
        return self._passages

    def _receive(self, spot: Spot) -> None:
        transfer = self._number_of[self._transfer_of[spot]]
        self._carried[spot] = frozenset({transfer})
        if self._sums is not None:
            self._row[spot] = self._sums.receive(transfer, spot.rank)

    def _compute(self, spot: Spot, data: Sequence[Spot], after: frozenset[int]) -> None:
        self._carried[spot] = after
        rows = [self._row[d] for d in data if d in self._row]
        if self._sums is not None and rows:
            line = at(self._program, spot).line
            self._row[spot] = self._sums.compute(spot.rank, rows, line)

    def _send(self, spot: Spot, data: Sequence[Spot], after: frozenset[int]) -> None:
        operation, transfer = at(self._program, spot), self._transfer_of[spot]
        gpus, table = self._problem.topology.gpus, self._problem.chunks
        ends = int(gpus[spot.rank]), int(gpus[operation.peer])
        number = self._number_of[transfer] = len(self._passages)
        chunk = operation.tag % len(table)
        if self._sums is not None:
            rows = [self._row[d] for d in data if d in self._row]
            self._sums.send(number, spot.rank, chunk, rows, operation.line)
        is_added = transfer in self._added and bool(table.reduce[chunk])
        lane = self._lanes[spot.rank, operation.peer].index(operation.nic)
        self._passages.append(
            FilePassage(
                chunk=chunk,
                root=ends[0],
                hops=self._ways.way(*ends, lane),
                reduce=is_added and self._sums is None,
                rank=(number,),
                after=tuple(sorted(after)),
                behind=tuple(sorted(self._sends_before(spot))),
            )
        )

    def _sends_before(self, spot: Spot) -> set[int]:
        return {
            self._number_of[self._transfer_of[d]]
            for d in self._before.get(spot, ())
            if at(self._program, d).kind is GoalKind.SEND
        }

    def _transfers(self, pairs: Sequence[tuple[Spot, Spot]]) -> dict[Spot, int]:
        """Return the transfer that each message is a piece of: pieces add up to their chunk."""
        table, found = self._problem.chunks, dict[Spot, int]()
        # Of each chunk between two ranks: the transfer, and bytes that it still lacks.
        open_transfers: dict[tuple[int, int, int], tuple[int, int]] = {}
        count = 0
        for send, receive in pairs:
            operation = at(self._program, send)
            key = (send.rank, receive.rank, operation.tag % len(table))
            transfer, lacking = open_transfers.get(key, (count, 0))
            if not lacking:
                size = table.size(key[2])
                transfer, lacking = count, -(-size.numerator // size.denominator)
                count += 1
            if operation.amount > lacking:
                self._refuse(operation, key[2])
            open_transfers[key] = transfer, lacking - operation.amount
            found[send] = found[receive] = transfer
        for (rank, peer, chunk), (_, lacking) in open_transfers.items():
            if lacking:
                places = (send for send, to in pairs if (send.rank, to.rank) == (rank, peer))
                self._refuse(at(self._program, next(places)), chunk)
        return found

    def _refuse(self, operation: Operation, chunk: int) -> NoReturn:
        raise ScheduleError(
            f"line {operation.line} has {operation.amount} bytes, but a chunk has "
            f"{float(self._problem.chunks.size(chunk)):g}; give the size of the collective that "
            "the file is for"
        )

    def _order(self) -> list[Spot]:
        """Return the operations in an order in which they can begin."""
        receive_of = dict(self._pairs)
        left: dict[Spot, int] = {}
        followers: dict[Spot, list[Spot]] = {}
        for number, rank in enumerate(self._program.ranks):
            for position, op in enumerate(rank.operations):
                place = Spot(number, position)
                deps = self._before.get(place, ())
                left[place] = len(deps) + (op.kind is GoalKind.RECEIVE)
                for before in deps:
                    followers.setdefault(before, []).append(place)
        ready = deque(place for place, count in left.items() if not count)
        order = []
        while ready:
            place = ready.popleft()
            order.append(place)
            receive = receive_of.get(place)
            for follower in (*followers.get(place, ()), *([receive] if receive else ())):
                left[follower] -= 1
                if not left[follower]:
                    ready.append(follower)
        if len(order) < len(left):
            stuck = min(at(self._program, p).line for p in left.keys() - set(order))
            raise ScheduleError(f"line {stuck} waits for itself, over others")
        return order
