"""MSCCL and RCCL XML: what a program moves from GPU to GPU, found out by running it.

A program names places in buffers, not chunks. It is run on symbolic data, and each transfer becomes
the chunk that it carries. What a runtime leaves open, the order of two channels that share a link,
is what the file states about it, or else chosen so that the whole ends early.
"""

import re
from collections import deque
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from teccl import _files as files
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.errors import ScheduleError
from teccl.formats.msccl.prove import RUNTIMES, Program, Proof, prove, read_program
from teccl.formats.msccl.prove.actions import actions_of
from teccl.formats.msccl.prove.collectives import Setting, Value, settings_of
from teccl.formats.msccl.prove.finding import Findings
from teccl.formats.msccl.prove.flow import run_control
from teccl.formats.msccl.prove.machine import Machine, build_machine
from teccl.formats.msccl.prove.program_tree import ProgramStep, StepType
from teccl.formats.shared.good_order import in_a_good_order
from teccl.formats.shared.placing import FilePassage, FileWays, place
from teccl.formats.shared.sum_rows import SumRows
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.topology import Topology
from teccl.verification import verify

MAX_BYTES = 64 * 2**20
_LONG_TAG = re.compile(r"<[^>]{65536}")
_MERGING = (
    StepType.RECEIVE_REDUCE_COPY,
    StepType.RECEIVE_REDUCE_SEND,
    StepType.RECEIVE_REDUCE_COPY_SEND,
)


def read_schedule(path: Path, topology: Topology, size: Fraction, notes: list[str]) -> Schedule:
    """Read a program file.

    Raises
    ------
    ScheduleError
        If the file is no program, fails its proof, or does something a schedule cannot express.
    """
    text = files.read_text(path, ScheduleError, max_bytes=MAX_BYTES)
    if _LONG_TAG.search(text):
        raise ScheduleError(f"{path}: has a tag of more than 64 KiB; no runtime reads such a file")
    program = read_program(text)
    if len(program.gpus) != topology.num_gpus:
        raise ScheduleError(
            f"{path}: is for {len(program.gpus)} GPUs, but {topology.name} has "
            f"{topology.num_gpus}; give the topology it was made for"
        )
    proof = _prove(program)
    if not proof.ok:
        raise ScheduleError(
            f"{path}: the program does not run on {proof.runtime.title}: {proof.findings[0]}; "
            "'teccl verify' lists everything"
        )
    setting = settings_of(program, proof.runtime, Findings())[0]
    if setting.collective is None:
        raise ScheduleError(f"{path}: its collective is not one that teccl knows")
    tracing = _Tracing(program, setting)
    tracing.run()
    problem, numbers = _problem(topology, setting, size, tracing)
    notes.append(f"judged by the rules of {proof.runtime.title}, called {setting.title}")
    notes.append(
        "where channels share a link, which the runtime leaves open, the order that the file "
        "states is taken, else a good one"
    )
    found = _placed(problem, tracing, numbers)
    if problem.has_reductions and (isinstance(found, ScheduleError) or verify(found)):
        # One accumulator for each chunk does not do: the program keeps several sums apart.
        problem, numbers = _whole_problem(topology, setting, size) or (problem, numbers)
        apart = _placed(problem, tracing, numbers, apart=True)
        if not isinstance(apart, ScheduleError):
            notes.append("the program keeps several partial sums of a chunk apart")
            return tracing.rows.attached(apart, numbers, tracing.results())
    if isinstance(found, ScheduleError):
        raise found
    return found


def _placed(
    problem: Problem, tracing: "_Tracing", numbers: dict[int, int], *, apart: bool = False
) -> Schedule | ScheduleError:
    """Give transfers times in the order that the file states or, where that cannot be, in another.

    Runtimes pass over the order that is stated, so that one which cannot be is no fault.
    """
    reason: ScheduleError | None = None
    for follow in (True, False):
        try:
            order, stated = _in_order(tracing.transfers, follow=follow)
            passages = _passages(problem.topology, tracing, numbers, order, stated)
            if apart:
                # Nothing is added on arrival, and nothing that is sent later is overwritten.
                passages = [replace(each, reduce=False, behind=()) for each in passages]
            made = place(problem, in_a_good_order(problem, passages), "msccl")
            sends = made.sends.copy()
            sends["transfer"] = np.array(order, dtype=np.int64)[sends["transfer"]]
            return replace(made, sends=sends) if apart else made
        except ScheduleError as problem_with_it:
            reason = problem_with_it
    assert reason is not None
    return reason


def _whole_problem(
    topology: Topology, setting: Setting, size: Fraction
) -> tuple[Problem, dict[int, int]] | None:
    """Return an AllReduce whose buffer is cut as the program cuts it, None for others."""
    if setting.collective != Collective.ALLREDUCE.value:
        return None
    demand = Demand.collective(Collective.ALLREDUCE, size=size)
    problem = Problem(topology=topology, demand=demand, num_chunks=setting.loop, whole_buffer=True)
    return problem, {k: k for k in range(setting.loop)}


def _prove(program: Program) -> Proof:
    """Judge a program by the runtime it is meant for: the one that finds least wrong with it."""
    proofs = [prove(program, runtime) for runtime in RUNTIMES.values()]
    return min(proofs, key=lambda proof: len(proof.findings))


class _Datum(NamedTuple):
    """What a cell holds: contributions, the transfers that brought them, the one it came as.

    `row` is its partial sum, None for a rank's own data.
    """

    value: Value
    after: frozenset[int] = frozenset()
    raw: int | None = None
    row: int | None = None


@dataclass(slots=True)
class _Transfer:
    """One chunk that a step sends; whether it is added is known once it is used."""

    datum: _Datum
    src: int
    dst: int
    connection: int
    place: int
    order: int
    reduce: bool = False
    behind: set[int] = field(default_factory=set)


class _Tracing:
    """Runs a program on symbolic data and notes what every step sends.

    Attributes
    ----------
    transfers
        In an order in which they can take place.
    memory
        What every cell of every rank holds in the end.
    """

    def __init__(self, program: Program, setting: Setting) -> None:
        self.setting = setting
        self.machine: Machine = build_machine(program, Findings())
        self.transfers: list[_Transfer] = []
        ranks = range(setting.ranks)
        self._bases = [setting.bases(rank) for rank in ranks]
        self.memory = [
            {cell: _Datum(value) for cell, value in setting.initial(rank).items()} for rank in ranks
        ]
        self._travelling: list[deque[int]] = [deque() for _ in range(self.machine.num_connections)]
        self._receiver = dict(zip(self.machine.receives_on, self.machine.rank, strict=True))
        self._places = [0] * self.machine.num_connections
        self._sent: dict[tuple[int, int], list[int]] = {}
        self.rows = SumRows()

    def run(self) -> None:
        """Run all steps."""
        actions = actions_of(self.machine)
        order = run_control(actions, None).order
        blocks, places = actions.block[order].tolist(), actions.place[order].tolist()
        for block, place_in_block in zip(blocks, places, strict=True):
            action = self.machine.actions[block][place_in_block]
            for k in range(action.step.cnt):
                self._step(block, action.step, k)

    def _step(self, block: int, step: ProgramStep, k: int) -> None:
        """Run a step on one of its chunks."""
        kind, rank = step.type, self.machine.rank[block]
        datum = self._read(rank, step.srcbuf, step.srcoff + k) if kind.reads_source else None
        if kind.receives:
            number = self._travelling[self.machine.receives_on[block]].popleft()
            arrived = self._arrival(number)
            if kind in _MERGING:
                assert datum is not None
                datum = self._merged(rank, datum, arrived)
            else:
                datum = arrived
        elif kind is StepType.REDUCE:
            assert datum is not None
            held = self._read(rank, step.dstbuf, step.dstoff + k)
            datum = self._merged(rank, held, datum)
        assert datum is not None
        if kind.writes_target:
            self.memory[rank][self._bases[rank][step.dstbuf] + step.dstoff + k] = datum
        if kind.sends:
            self._send(block, datum, step.order)

    def _read(self, rank: int, letter: str, place_in_buffer: int) -> _Datum:
        cell = self._bases[rank][letter] + place_in_buffer
        datum = self.memory[rank].get(cell)
        if datum is None:
            raise ScheduleError(f"rank {rank} uses {letter}[{place_in_buffer}] that nobody wrote")
        return datum

    def _arrival(self, number: int) -> _Datum:
        transfer = self.transfers[number]
        row = self.rows.arrived(number, transfer.dst, self.chunk_of(transfer.datum.value))
        after = frozenset({number})
        return _Datum(value=transfer.datum.value, after=after, raw=number, row=row)

    def _merged(self, rank: int, one: _Datum, other: _Datum) -> _Datum:
        """Add two data; what arrived as it is was sent to be added."""
        for datum in (one, other):
            if datum.raw is None:
                continue
            transfer = self.transfers[datum.raw]
            transfer.reduce = True
            # What this rank sent before without it must leave before it comes.
            for earlier in self._sent.get((rank, self.chunk_of(datum.value)), ()):
                if datum.raw not in self.transfers[earlier].datum.after:
                    transfer.behind.add(earlier)
        value = self.setting.combine(one.value, other.value)
        row = self.rows.added(self._row(rank, one), self._row(rank, other))
        return _Datum(value=value, after=one.after | other.after, row=row)

    def _row(self, rank: int, datum: _Datum) -> int:
        """Return the partial sum that a rank has in a cell."""
        if datum.row is not None:
            return datum.row
        return self.rows.own(rank, self.chunk_of(datum.value))

    def results(self) -> list[int]:
        """Return the partial sums that lie in the output where they are wanted."""
        found = []
        for rank in range(self.setting.ranks):
            root = self.root() if self.setting.collective == "reduce" else rank
            base = self._bases[rank]["o"]
            for chunk in self.setting.wanted(rank, root):
                datum = self.memory[rank].get(base + chunk)
                if datum is not None:
                    found.append(self._row(rank, datum))
        return found

    def _send(self, block: int, datum: _Datum, order: int) -> None:
        connection, rank = self.machine.sends_on[block], self.machine.rank[block]
        number = len(self.transfers)
        self.rows.sent(number, self._row(rank, datum))
        self.transfers.append(
            _Transfer(
                datum=datum,
                src=rank,
                dst=self._receiver[connection],
                connection=connection,
                place=self._places[connection],
                order=order,
            )
        )
        self._places[connection] += 1
        self._travelling[connection].append(number)
        self._sent.setdefault((rank, self.chunk_of(datum.value)), []).append(number)

    def chunk_of(self, value: Value) -> int:
        """Return the chunk that a value belongs to: by place, and by owner if it is not summed."""
        setting = self.setting
        ranks, place_in_input = setting.contributors(value), value >> setting.ranks
        if not ranks:
            raise ScheduleError(
                f"a step sends {setting.describe(value)}; a schedule cannot say that"
            )
        if setting.collective in ("allgather", "alltoall", "broadcast"):
            if len(ranks) != 1:
                raise ScheduleError(f"a step sends {setting.describe(value)}, which nobody wants")
            return ranks[0] * setting.loop + place_in_input
        return place_in_input

    def root(self) -> int:
        """Return the rank that a broadcast starts from, or a reduction ends at."""
        if self.setting.collective == "broadcast":
            sent = {transfer.datum.value for transfer in self.transfers}
            owners = {rank for value in sent for rank in self.setting.contributors(value)}
            if len(owners) != 1:
                raise ScheduleError(f"{len(owners)} ranks send data of their own in a broadcast")
            return owners.pop()
        for rank in range(self.setting.ranks):
            wanted, base = self.setting.wanted(rank, rank), self._bases[rank]["o"]
            found = (self.memory[rank].get(base + chunk) for chunk in wanted)
            values = (None if datum is None else datum.value for datum in found)
            if all(value == want for value, want in zip(values, wanted.values(), strict=True)):
                return rank
        raise ScheduleError("no rank ends with the sum")


def _problem(
    topology: Topology, setting: Setting, size: Fraction, tracing: _Tracing
) -> tuple[Problem, dict[int, int]]:
    """Return the problem, and its number of each chunk that the program moves."""
    assert setting.collective is not None
    kind = Collective(setting.collective)
    loop, share = setting.loop, setting.share
    table: dict[int, tuple[int, int]] = {}
    everyone = tuple(range(setting.ranks))
    if kind.has_root:
        root = tracing.root()
        demand, count = Demand.collective(kind, size=size, root=root), loop
        first = root * loop if kind is Collective.BROADCAST else 0
        table = {first + k: (0, k) for k in range(loop)}
    elif kind is Collective.ALLREDUCE and loop % setting.ranks:
        chunks = (ExplicitChunk(everyone, everyone, reduce=True),) * loop
        tenant = Tenant(collective=Collective.EXPLICIT, size=size / loop, chunks=chunks)
        demand, count = Demand(tenants=(tenant,)), 1
        table = {k: (k, 0) for k in range(loop)}
    else:
        demand, count = Demand.collective(kind, size=size), share
        for rank in everyone:
            for k in range(share if kind is Collective.ALLGATHER else loop):
                table |= _named(kind, setting, rank, k)
    problem = Problem(topology=topology, demand=demand, num_chunks=count)
    blocks, pieces = problem.chunks.block.tolist(), problem.chunks.piece.tolist()
    numbers = {pair: i for i, pair in enumerate(zip(blocks, pieces, strict=True))}
    return problem, {atom: numbers[pair] for atom, pair in table.items() if pair in numbers}


def _named(kind: Collective, setting: Setting, rank: int, k: int) -> dict[int, tuple[int, int]]:
    """Return block and piece of what a rank's input holds at a place."""
    part, piece = divmod(k, setting.share)
    atom = rank * setting.loop + k
    if kind is Collective.ALLGATHER:
        return {atom: (rank, piece)}
    if kind is Collective.ALLTOALL:
        return {atom: (rank * setting.ranks + part, piece)}
    return {k: (part, piece)}


def _in_order(
    transfers: list[_Transfer], *, follow: bool
) -> tuple[list[int], set[tuple[int, int]]]:
    """Numbers of transfers in the order in which to list them, and ranks whose order is stated."""
    return _in_stated_order(transfers) if follow else (list(range(len(transfers))), set())


def _passages(
    topology: Topology,
    tracing: _Tracing,
    numbers: dict[int, int],
    numbers_of: list[int],
    stated: set[tuple[int, int]],
) -> list[FilePassage]:
    """Return the transfers of given numbers as passages."""
    ways = FileWays(topology)
    gpus = topology.gpus.tolist()
    new_of = dict(zip(numbers_of, range(len(numbers_of)), strict=True))
    passages = []
    for number in numbers_of:
        transfer = tracing.transfers[number]
        pair = (transfer.src, transfer.dst)
        chunk = numbers.get(tracing.chunk_of(transfer.datum.value))
        if chunk is None:
            raise ScheduleError(
                f"rank {transfer.src} sends what it keeps for itself; a schedule cannot say that"
            )
        root = gpus[transfer.src]
        passages.append(
            FilePassage(
                chunk=chunk,
                root=root,
                hops=ways.way(root, gpus[transfer.dst]),
                reduce=transfer.reduce,
                rank=(transfer.place, transfer.connection),
                after=tuple(sorted(new_of[before] for before in transfer.datum.after)),
                behind=tuple(sorted(new_of[before] for before in transfer.behind)),
                queues=(pair if pair in stated else transfer.connection,),
            )
        )
    return passages


def _in_stated_order(transfers: list[_Transfer]) -> tuple[list[int], set[tuple[int, int]]]:
    """Put transfers between two ranks in the order that the file states for all of them.

    Returns
    -------
    numbers, pairs
        Numbers of the transfers, those of such ranks exchanged among themselves, and the ranks.
    """
    of_pair: dict[tuple[int, int], list[int]] = {}
    for number, transfer in enumerate(transfers):
        of_pair.setdefault((transfer.src, transfer.dst), []).append(number)
    numbers, pairs = list(range(len(transfers))), set()
    for pair, members in of_pair.items():
        ordered = sorted(members, key=lambda number: _stated(transfers[number]))
        places: dict[int, list[int]] = {}
        for number in ordered:
            transfer = transfers[number]
            places.setdefault(transfer.connection, []).append(transfer.place)
        keeps = all(transfers[number].order >= 0 for number in members) and all(
            found == sorted(found) for found in places.values()
        )
        if keeps:
            pairs.add(pair)
            for place_in_list, number in zip(members, ordered, strict=True):
                numbers[place_in_list] = number
    return numbers, pairs


def _stated(transfer: _Transfer) -> tuple[int, int, int]:
    return transfer.order, transfer.connection, transfer.place
