"""GOAL files as schedules.

The tag of a message modulo the number of chunks is the chunk that it carries. Messages of a chunk
between two ranks are, in order of their tags, pieces of transfers, each of which has the chunk's
bytes. What a computation requires is added to what the rank holds; a send that requires another
one follows it.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

from teccl import _files as files
from teccl.demand import Demand
from teccl.errors import DemandError, ScheduleError
from teccl.formats.goal.operations import (
    Dependency,
    GoalProgram,
    Kind,
    Operation,
    Place,
    Rank,
    at,
    match_messages,
    parse,
)
from teccl.importers.passages import Passage, Ways, place
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.topology import Topology

MAX_BYTES = 64 * 2**20
# Messages that computations of a file add up, each counted for every computation after it. Real
# sums have as many as there are ranks.
MAX_ADDED = 5_000_000


def read(path: Path, topology: Topology, size: Fraction, notes: list[str]) -> Schedule:
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
    return place(problem, _Passages(program, problem).all(), "goal")


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
        demand = Demand.collective(title.collective, size=size, root=title.root)
    except DemandError as problem:
        raise ScheduleError(f"its comment is wrong: {problem}") from None
    return Problem(topology=topology, demand=demand, num_chunks=title.num_chunks)


class _Passages:
    """Turns messages into passages: what each carries, and what it waits for."""

    def __init__(self, program: GoalProgram, problem: Problem) -> None:
        self._program = program
        self._problem = problem
        pairs = match_messages(program)
        self._transfer_of = self._transfers(pairs)
        self._before: dict[Place, list[Place]] = {}
        for number, rank in enumerate(program.ranks):
            for dependency in rank.dependencies:
                if not (dependency.on_start and self._is(dependency, rank, Kind.RECEIVE)):
                    self._before.setdefault(Place(number, dependency.after), []).append(
                        Place(number, dependency.before)
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
    def _is(dependency: Dependency, rank: Rank, kind: Kind) -> bool:
        return rank.operations[dependency.before].kind is kind

    def _merged(self) -> set[int]:
        """Return the transfers whose receive a computation requires."""
        return {
            self._transfer_of[before]
            for place, deps in self._before.items()
            if at(self._program, place).kind is Kind.COMPUTE
            for before in deps
            if at(self._program, before).kind is Kind.RECEIVE
        }

    def all(self) -> list[Passage]:
        """Return the passages in an order in which they can begin."""
        ways, gpus = Ways(self._problem.topology), self._problem.topology.gpus.tolist()
        number_of: dict[int, int] = {}
        carried: dict[Place, frozenset[int]] = {}
        passages: list[Passage] = []
        added = 0
        for spot in self._order():
            operation = at(self._program, spot)
            if operation.kind is Kind.RECEIVE:
                carried[spot] = frozenset({number_of[self._transfer_of[spot]]})
                continue
            deps = self._before.get(spot, ())
            after = frozenset[int]().union(
                *(carried[d] for d in deps if at(self._program, d).kind is not Kind.SEND)
            )
            added += len(after)
            if added > MAX_ADDED:
                raise ScheduleError(f"line {operation.line}: sums of too many messages; cut them")
            if operation.kind is Kind.COMPUTE:
                carried[spot] = after
                continue
            transfer = self._transfer_of[spot]
            if transfer in number_of:
                continue
            number_of[transfer] = len(passages)
            chunk = operation.tag % len(self._problem.chunks)
            lane = self._lanes[spot.rank, operation.peer].index(operation.nic)
            passages.append(
                Passage(
                    chunk=chunk,
                    root=gpus[spot.rank],
                    hops=ways.way(gpus[spot.rank], gpus[operation.peer], lane),
                    reduce=transfer in self._added and bool(self._problem.chunks.reduce[chunk]),
                    rank=(len(passages),),
                    after=tuple(sorted(after)),
                    behind=tuple(sorted(self._sends_before(deps, number_of))),
                )
            )
        return passages

    def _sends_before(self, deps: Iterable[Place], number_of: dict[int, int]) -> set[int]:
        return {
            number_of[self._transfer_of[d]] for d in deps if at(self._program, d).kind is Kind.SEND
        }

    def _transfers(self, pairs: Sequence[tuple[Place, Place]]) -> dict[Place, int]:
        """Return the transfer that each message is a piece of: pieces add up to their chunk."""
        table, found = self._problem.chunks, dict[Place, int]()
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

    def _order(self) -> list[Place]:
        """Return the operations in an order in which they can begin."""
        receive_of = dict(self._pairs)
        left: dict[Place, int] = {}
        followers: dict[Place, list[Place]] = {}
        for number, rank in enumerate(self._program.ranks):
            for position, op in enumerate(rank.operations):
                place = Place(number, position)
                deps = self._before.get(place, ())
                left[place] = len(deps) + (op.kind is Kind.RECEIVE)
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
