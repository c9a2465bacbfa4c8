"""Partial sums at one rank: every arrival a place, every addition a step of its own."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from teccl.errors import ScheduleError
from teccl.runtime.rank_program import Place, RankStep
from teccl.schedule import Schedule
from teccl.schedule.additions import unmade

if TYPE_CHECKING:
    from teccl.runtime.extract import Builder, Chunk, Event


class _Held(NamedTuple):
    """Where a partial sum lies, the step that puts it there, and when own data may leave."""

    place: Place
    step: int | None
    ready_ps: int = 0


def rows_of_chunks(schedule: Schedule, node: int) -> dict[int, list[int]]:
    """Rows of the partial sums of every chunk at a node, in their order."""
    rows: dict[int, list[int]] = {}
    if schedule.sums is not None:
        for chunk in np.unique(schedule.sums["chunk"]).tolist():
            rows[chunk] = []
        for row in np.flatnonzero(schedule.sums["node"] == node).tolist():
            rows[int(schedule.sums["chunk"][row])].append(row)
    return rows


def add_partial_sums(
    builder: "Builder", chunk: "Chunk", events: list["Event"], rows: list[int]
) -> None:
    """Add what a rank does with a chunk that it keeps in partial sums.

    Parameters
    ----------
    events
        Arrivals and departures of the chunk, in order of time.
    rows
        Its partial sums at this rank.
    """
    maker = _Maker(builder, chunk)
    for event in events:
        if event.arrives:
            maker.receive(event)
        elif event.leaves:
            carried = maker.hold(int(builder.schedule.sends["carries"][event.row]))
            builder.depart(event, carried.place, carried.step, carried.ready_ps)
    for row in rows:
        maker.hold(row)


class _Maker:
    """Makes the partial sums of one chunk at one rank when something needs them."""

    def __init__(self, builder: "Builder", chunk: "Chunk") -> None:
        self._builder, self._chunk = builder, chunk
        self._held: dict[int, _Held] = {}

    def receive(self, event: "Event") -> None:
        """Let an arrival be a partial sum."""
        row = int(self._builder.schedule.sends["becomes"][event.row])
        step = self._builder.arrive(self._chunk, event, None, self._place(row))
        self._held[row] = _Held(self._builder.steps[step].out, step)

    def hold(self, row: int) -> _Held:
        """Return where a partial sum lies, after making what is missing for it."""
        sums, chunk = self._builder.schedule.sums, self._chunk
        if sums is None or row < 0:
            raise ScheduleError("a send names no partial sum; verify the schedule first")
        for part in unmade(sums, row, self._held):
            if sums["left"][part] >= 0:
                self._held[part] = self._add(
                    part, int(sums["left"][part]), int(sums["right"][part])
                )
            elif chunk.own is not None:
                self._held[part] = _Held(chunk.own, None, chunk.ready_ps)
                if sums["result"][part] and chunk.wanted is not None:
                    self._builder.copies.append((chunk.own, chunk.wanted))
            else:
                raise ScheduleError("a gpu has a partial sum of nothing; verify the schedule first")
        return self._held[row]

    def _add(self, row: int, left: int, right: int) -> _Held:
        """Add the step that adds two partial sums."""
        one, other = self._held[left], self._held[right]
        steps = [each.step for each in (one, other) if each.step is not None]
        if not steps:
            raise ScheduleError("a gpu adds its own contribution twice; verify the schedule first")
        step = self._builder.add_step(
            RankStep(
                chunk=self._chunk.number,
                parts=(other.place,),
                before=one.place,
                out=self._place(row),
                waits=len(steps),
                ready_ps=max(one.ready_ps, other.ready_ps),
            ),
            steps,
        )
        return _Held(self._builder.steps[step].out, step)

    def _place(self, row: int) -> Place:
        """Where a partial sum goes: the result to the user's buffer, others to scratch."""
        sums, wanted = self._builder.schedule.sums, self._chunk.wanted
        if sums is not None and sums["result"][row] and wanted is not None:
            return wanted
        return self._builder.new_place(self._chunk.length)
