"""Extraction: one rank's program from a schedule, chunk by chunk in order of time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from teccl.errors import ScheduleError
from teccl.runtime.layout import TenantLayout, tenant_layout
from teccl.runtime.messages import MERGE, OWN, SEND, STORE, Messages, dropped_replacements
from teccl.runtime.rank_program import (
    SCRATCH,
    Departure,
    Place,
    RankProgram,
    RankStep,
    Receive,
    Target,
)
from teccl.runtime.sum_steps import add_partial_sums, rows_of_chunks
from teccl.schedule import Schedule

# Scratch places begin at multiples of this many elements, so that sums are aligned.
_ALIGN = 64


class Event(NamedTuple):
    """Something that happens to a chunk at a rank: when, what, and by which sends and messages."""

    time: int
    kind: int
    row: int
    messages: list[int]

    @property
    def arrives(self) -> bool:
        """Whether something is received."""
        return self.kind in (MERGE, STORE)

    @property
    def leaves(self) -> bool:
        """Whether something is sent."""
        return self.kind == SEND


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A chunk as one rank sees it: where its own data lies, where it is wanted, how long it is."""

    number: int
    own: Place | None
    wanted: Place | None
    length: int
    ready_ps: int
    combines: bool


@dataclass(slots=True)
class State:
    """What a rank has of a chunk while its events are walked through."""

    version: Place | None
    step: int | None
    ready_ps: int = 0
    arrivals: list[int] = field(default_factory=list)
    forwards: int = 0


def rank_program(
    schedule: Schedule,
    messages: Messages,
    rank: int,
    *,
    itemsize: int,
    count: int | None = None,
) -> RankProgram:
    """Extract one rank's part of a correct schedule.

    Parameters
    ----------
    messages
        All messages of the schedule.
    rank
        GPU rank.
    itemsize
        Bytes of an element.
    count
        Elements that replace the size of the demand's only tenant.
    """
    problem = schedule.problem
    tenants = problem.demand.tenants
    if count is not None and len(tenants) > 1:
        raise ScheduleError(
            f"count {count} is ambiguous for {len(tenants)} tenants; drop it or run them apart"
        )
    layouts = tuple(
        tenant_layout(problem, tenant, rank, itemsize=itemsize, count=count) for tenant in tenants
    )
    builder = Builder(schedule, messages, rank, layouts)
    builder.add_self_copies()
    for number in builder.chunks():
        chunk = builder.chunk(number)
        if chunk.length:
            builder.add_chunk(chunk)
    return builder.program()


class Builder:
    """Collects a program chunk by chunk."""

    def __init__(
        self, schedule: Schedule, messages: Messages, rank: int, layouts: Sequence[TenantLayout]
    ) -> None:
        self.schedule, self.messages, self.rank = schedule, messages, rank
        self.problem = schedule.problem
        self.layouts = tuple(layouts)
        self.node = int(self.problem.topology.gpus[rank])
        self.ready = self.problem.ready_ps()[:, self.node]
        self.dropped = dropped_replacements(schedule, messages)
        self.partial = rows_of_chunks(schedule, self.node)
        self.scratch = 0
        self.copies: list[tuple[Place, Place]] = []
        self.receives: list[Receive] = []
        self.departures: list[tuple[int, Departure]] = []
        self.steps: list[RankStep] = []
        self.followers: list[list[int]] = []
        self.local_parts: dict[int, Place] = {}
        self.local_step: dict[int, int] = {}
        here = np.flatnonzero((messages.src == rank) | (messages.dst == rank))
        self.by_chunk: dict[int, list[int]] = {}
        for message in here.tolist():
            self.by_chunk.setdefault(int(messages.chunk[message]), []).append(message)

    def chunks(self) -> Iterable[int]:
        """Chunks that this rank sends, receives or wants."""
        table = self.problem.chunks
        wants = [self.node in set(nodes.tolist()) for nodes in table.sets]
        wanted = np.flatnonzero(np.array(wants, dtype=bool)[table.destination_set])
        return sorted(set(wanted.tolist()) | set(self.by_chunk))

    def chunk(self, number: int) -> Chunk:
        """Return what this rank needs to know of a chunk."""
        table = self.problem.chunks
        tenant, block = int(table.tenant[number]), int(table.block[number])
        layout = self.layouts[tenant]
        piece = layout.piece(block, int(table.piece[number]), self.problem.chunk_bytes)

        def place(buffer: int, begins: dict[int, int]) -> Place | None:
            if block not in begins:
                return None
            return Place(buffer, begins[block] + piece.start, begins[block] + piece.stop)

        return Chunk(
            number=number,
            own=place(2 * tenant, layout.send),
            wanted=place(2 * tenant + 1, layout.recv),
            length=piece.length,
            ready_ps=int(self.ready[tenant]),
            combines=bool(table.reduce[number]),
        )

    def add_self_copies(self) -> None:
        """Copy the blocks that a rank sends to itself."""
        for t, layout in enumerate(self.layouts):
            for send, recv in layout.self_copies:
                if send.length:
                    self.copies.append((Place(2 * t, *send), Place(2 * t + 1, *recv)))

    def add_chunk(self, chunk: Chunk) -> None:
        """Walk through the events of a chunk in order of time."""
        events = self.events(chunk)
        if chunk.number in self.partial:
            add_partial_sums(self, chunk, events, self.partial[chunk.number])
        elif chunk.combines:
            self._reduce_events(chunk, events)
        else:
            self._copy_events(chunk, events)

    def events(self, chunk: Chunk) -> list[Event]:
        """What happens to a chunk here, in order."""
        sent: dict[int, list[int]] = {}
        got: dict[int, list[int]] = {}
        for message in self.by_chunk.get(chunk.number, []):
            if self.messages.src[message] == self.rank:
                sent.setdefault(int(self.messages.root[message]), []).append(message)
            if self.messages.dst[message] == self.rank:
                got.setdefault(int(self.messages.leaf[message]), []).append(message)
        events = [
            Event(int(self.messages.start_ps[group[0]]), SEND, root, group)
            for root, group in sent.items()
        ]
        for leaf, group in got.items():
            kind = MERGE if self.messages.reduce[group[0]] else STORE
            events.append(Event(int(self.messages.arrival_ps[group[0]]), kind, leaf, group))
        if chunk.combines and chunk.own is not None and chunk.ready_ps > 0:
            events.append(Event(chunk.ready_ps, OWN, -1, []))
        return sorted(events)

    def _copy_events(self, chunk: Chunk, events: list[Event]) -> None:
        """Store the first arrival where it is wanted and send from there or from the own data."""
        state = State(None, None)
        if chunk.own is not None and chunk.wanted is not None:
            self.copies.append((chunk.own, chunk.wanted))
        kept = chunk.wanted if chunk.own is None else None
        for event in events:
            if event.kind == SEND:
                if chunk.own is not None and event.time >= chunk.ready_ps:
                    self.depart(event, chunk.own, None, chunk.ready_ps)
                else:
                    self.depart(event, *self._fed(state), 0)
                continue
            is_first = not state.arrivals
            out = kept if kept is not None and is_first else self.new_place(chunk.length)
            state.arrivals.append(self.arrive(chunk, event, None, out))

    def _fed(self, state: State) -> tuple[Place, int]:
        """What a rank without own data forwards, and the arrival that brings it."""
        if not state.arrivals:
            raise ScheduleError("a gpu sends what it does not hold; verify the schedule first")
        # Without copying, each arrival is used up by one forward.
        turn = 0 if self.problem.copy else min(state.forwards, len(state.arrivals) - 1)
        state.forwards += 1
        return self.steps[state.arrivals[turn]].out, state.arrivals[turn]

    def _reduce_events(self, chunk: Chunk, events: list[Event]) -> None:
        """Make a version per arrival, the last one where it is wanted."""
        # What happens before the own data is ready does without it.
        early = any(event.kind != OWN and event.time < chunk.ready_ps for event in events)
        state = State(None if early else chunk.own, None, chunk.ready_ps)
        writes = [
            i
            for i, event in enumerate(events)
            if (event.kind == OWN and early and i > 0)
            or (event.kind in (MERGE, STORE) and event.row not in self.dropped)
        ]
        last = writes[-1] if writes else -1
        for i, event in enumerate(events):
            out = chunk.wanted if i == last else None
            if event.kind == SEND:
                if state.version is None:
                    raise ScheduleError("a gpu sends a sum it does not hold; verify it first")
                self.depart(event, state.version, state.step, state.ready_ps)
            elif event.kind == OWN:
                self._join_own(chunk, state, out)
            elif event.row in self.dropped:
                self.arrive(chunk, event, None, self.new_place(chunk.length))
            else:
                before = state if event.kind == MERGE else None
                step = self.arrive(chunk, event, before, out)
                state.version, state.step, state.ready_ps = self.steps[step].out, step, 0
        if chunk.wanted is not None and last < 0 and chunk.own is not None:
            self.copies.append((chunk.own, chunk.wanted))

    def _join_own(self, chunk: Chunk, state: State, out: Place | None) -> None:
        """Add the own contribution once it is ready, after what came before."""
        if state.version is None:
            state.version, state.step, state.ready_ps = chunk.own, None, chunk.ready_ps
        if state.step is None or chunk.own is None:
            return
        step = self.add_step(
            RankStep(
                chunk=chunk.number,
                parts=(chunk.own,),
                before=state.version,
                out=self.new_place(chunk.length) if out is None else out,
                waits=1,
                ready_ps=chunk.ready_ps,
            ),
            [state.step],
        )
        state.version, state.step, state.ready_ps = self.steps[step].out, step, 0

    def arrive(self, chunk: Chunk, event: Event, before: State | None, out: Place | None) -> int:
        """Add the step that the messages of one arrival make, joined to what was there before."""
        step, before = len(self.steps), before or State(None, None)
        combines = before.version is not None or len(event.messages) > 1
        parts = []
        for message in event.messages:
            if self.messages.src[message] == self.rank:
                parts.append(self.local_parts[message])
                self.local_step[message] = step
                continue
            place = out if out is not None and not combines else self.new_place(chunk.length)
            parts.append(place)
            peer, tag = int(self.messages.src[message]), int(self.messages.tag[message])
            self.receives.append(Receive(peer, tag, place, step, message))
        return self.add_step(
            RankStep(
                chunk=chunk.number,
                parts=tuple(parts),
                before=before.version,
                out=self._free_part(event, parts, chunk.length) if out is None else out,
                waits=len(event.messages) + (before.step is not None),
            ),
            [before.step],
        )

    def _free_part(self, event: Event, parts: list[Place], length: int) -> Place:
        """Reuse a received part for the result; a part that is a version of its own stays.

        Of more than two, all ranks add the parts in their order, none of them first.
        """
        if len(parts) > 2:
            return self.new_place(length)
        for message, part in zip(event.messages, parts, strict=True):
            if self.messages.src[message] != self.rank:
                return part
        return self.new_place(length)

    def add_step(self, step: RankStep, after: Iterable[int | None]) -> int:
        """Add a step behind those that it follows, None for what is there from the start."""
        for before in after:
            if before is not None:
                self.followers[before].append(len(self.steps))
        self.steps.append(step)
        self.followers.append([])
        return len(self.steps) - 1

    def depart(self, event: Event, place: Place, after: int | None, ready_ps: int) -> None:
        """Send what a step has put at a place."""
        for message in event.messages:
            if self.messages.dst[message] == self.rank:
                self.local_parts[message] = place
        departure = Departure(
            place=place,
            after=after,
            link=int(self.schedule.sends["link"][event.row]),
            root=event.row,
            ready_ps=ready_ps,
            targets=tuple(
                Target(int(self.messages.dst[m]), int(self.messages.tag[m]), m)
                for m in event.messages
            ),
        )
        self.departures.append((event.messages[0], departure))

    def new_place(self, length: int) -> Place:
        """Return new scratch for a chunk."""
        place = Place(SCRATCH, self.scratch, self.scratch + length)
        self.scratch += -(-length // _ALIGN) * _ALIGN
        return place

    def program(self) -> RankProgram:
        """Put receives and departures in order and close the program."""
        arrival = self.messages.arrival_ps
        receives = sorted(self.receives, key=lambda r: (int(arrival[r.message]), r.message))
        departures = [departure for _, departure in sorted(self.departures, key=lambda d: d[0])]
        return RankProgram(
            rank=self.rank,
            layouts=self.layouts,
            copies=tuple(self.copies),
            receives=tuple(receives),
            departures=tuple(self._with_local_steps(d) for d in departures),
            steps=tuple(self.steps),
            followers=tuple(tuple(steps) for steps in self.followers),
            scratch=self.scratch,
        )

    def _with_local_steps(self, departure: Departure) -> Departure:
        if not self.local_step:
            return departure
        targets = tuple(t._replace(step=self.local_step.get(t.message)) for t in departure.targets)
        return replace(departure, targets=targets)
