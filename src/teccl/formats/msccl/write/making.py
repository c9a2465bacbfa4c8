"""Making: the steps in which ranks make partial sums, in one order for all of them.

Messages stand in the order of their starts. Each is received right after it is sent, and what can
be added then is added at once, so that everything a step needs stands before it. A partial sum that
only one addition reads lends its place to the sum; what arrives for such an addition is combined
as it comes.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from teccl.errors import ExportError
from teccl.formats.msccl.write.memory_map import NOWHERE, SCRATCH, Place
from teccl.schedule import Schedule

# The same as in `steps.KINDS`.
SEND, RECEIVE, COMBINE, COPY, ADD = range(5)


class Message(NamedTuple):
    """A partial sum that goes from rank to rank; rows are those of the schedule's table."""

    src: int
    dst: int
    chunk: int
    carries: int
    becomes: int


class MadeStep(NamedTuple):
    """One step of a rank; a send names the place at its receiver, a receive that at its sender."""

    kind: int
    rank: int
    source: Place
    target: Place
    message: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Homes:
    """Where ranks have their data.

    Parameters
    ----------
    own, result
        Places of own contributions and of results, by row of the table.
    in_place
        Whether these are the same places.
    """

    own: dict[int, Place]
    result: dict[int, Place]
    in_place: bool


@dataclass(slots=True)
class _Uses:
    """Who reads a partial sum: additions by row, and whether it is sent or a result."""

    added_by: list[int] = field(default_factory=list)
    is_sent: bool = False


class Maker:
    """Walks over messages and makes partial sums as soon as that can be."""

    def __init__(
        self, schedule: Schedule, rank: dict[int, int], messages: list[Message], homes: Homes
    ) -> None:
        if schedule.sums is None:
            raise ExportError("the schedule has no partial sums; nothing is to be made of them")
        sums = schedule.sums
        self.rank = [rank[node] for node in sums["node"].tolist()]
        self.left, self.right = sums["left"].tolist(), sums["right"].tolist()
        self.messages, self.homes = messages, homes
        self.uses = [_Uses() for _ in self.rank]
        for row in np.flatnonzero(sums["left"] >= 0).tolist():
            for summand in (self.left[row], self.right[row]):
                self.uses[summand].added_by.append(row)
        for message in messages:
            self.uses[message.carries].is_sent = True
        self.arrived = {message.becomes for message in messages}
        self.scratch: dict[int, int] = defaultdict(int)
        self.place = self._places()
        self.made = set(homes.own)
        self.actions: list[MadeStep] = []

    def _is_lent(self, row: int) -> bool:
        """Whether only one addition reads a partial sum that is not a rank's own."""
        uses = self.uses[row]
        is_kept = uses.is_sent or row in self.homes.result or row in self.homes.own
        return len(uses.added_by) == 1 and not is_kept

    def _places(self) -> list[Place]:
        """Where every partial sum lies, sums before what they add, so that places can be lent."""
        place: list[Place] = [NOWHERE] * len(self.rank)
        for row in range(len(place) - 1, -1, -1):
            if row in self.homes.own:
                place[row] = self.homes.own[row]
                continue
            if place[row] == NOWHERE:
                home = None if self.homes.in_place else self.homes.result.get(row)
                place[row] = self._new(self.rank[row]) if home is None else home
            if self.left[row] >= 0:
                # An addition that may lend its place goes on the chain; arrivals combine into it.
                lenders = [r for r in (self.left[row], self.right[row]) if self._is_lent(r)]
                lenders.sort(key=lambda r: self.left[r] < 0)
                if lenders and place[lenders[0]] == NOWHERE:
                    place[lenders[0]] = place[row]
        return place

    def _new(self, rank: int) -> Place:
        self.scratch[rank] += 1
        return SCRATCH + self.scratch[rank] - 1

    def run(self) -> list[MadeStep]:
        """Return all steps in their order."""
        for row in sorted(self.homes.own):
            self._go_on(row)
        for number, message in enumerate(self.messages):
            self._exchange(number, message)
        for row, home in sorted(self.homes.result.items()):
            if row not in self.made:
                raise ExportError("a result is never made; verify the schedule first")
            if self.place[row] != home:
                self.actions.append(MadeStep(COPY, self.rank[row], self.place[row], home))
        return self.actions

    def _exchange(self, number: int, message: Message) -> None:
        """Send and receive one message, and go on from what came."""
        if message.carries not in self.made:
            raise ExportError("a partial sum is sent before it is made; verify the schedule first")
        row, source = message.becomes, self.place[message.carries]
        total, other = self._combined(row)
        target = self.place[row if total is None else total]
        self.actions.append(MadeStep(SEND, message.src, source, target, number))
        if total is None:
            self.actions.append(MadeStep(RECEIVE, message.dst, source, target, number))
        else:
            local = self.place[other]
            self.actions.append(MadeStep(COMBINE, message.dst, local, target, number))
        self.made.add(row)
        if total is None:
            self._go_on(row)
        else:
            self.made.add(total)
            self._go_on(total)

    def _combined(self, row: int) -> tuple[int | None, int]:
        """The sum that an arrival is combined into as it comes, and with what; None for none."""
        if not self._is_lent(row):
            return None, -1
        (total,) = self.uses[row].added_by
        other = self.right[total] if self.left[total] == row else self.left[total]
        return (total, other) if other in self.made and other != row else (None, -1)

    def _go_on(self, row: int) -> None:
        """Make all sums for which a partial sum was the last thing missing."""
        stack = [row]
        while stack:
            for total in self.uses[stack.pop()].added_by:
                ready = {self.left[total], self.right[total]} <= self.made
                if ready and total not in self.made:
                    self._add(total)
                    self.made.add(total)
                    stack.append(total)

    def _add(self, total: int) -> None:
        """Add two partial sums that lie at the rank."""
        rank, target = self.rank[total], self.place[total]
        first, second = self.place[self.left[total]], self.place[self.right[total]]
        if second == target:
            first, second = second, first
        if first != target:
            self.actions.append(MadeStep(COPY, rank, first, target))
        self.actions.append(MadeStep(ADD, rank, second, target))
