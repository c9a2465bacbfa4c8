"""Case: the sends of an orbit schedule with all that rules look at, and what they found."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from teccl._arrays import BoolArray, IntArray, ints
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule
from teccl.units import format_duration
from teccl.verification.violation import MAX_PER_KIND, Violation, ViolationKind

_PS_PER_S = 10**12


def to_ps(seconds: Fraction) -> int:
    """Whole picoseconds, rounded up."""
    return -((-seconds * _PS_PER_S) // 1)


def show(moment: int) -> str:
    """A moment in picoseconds as people read it."""
    return format_duration(Fraction(int(moment), _PS_PER_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a rule judges, one array entry per send of a first chunk.

    Parameters
    ----------
    schedule
        What is judged.
    chunk, link, start, is_reduce
        As in the schedule.
    orbit
        The link's orbit.
    src, dst
        Nodes the link leads from and to; ranks come first.
    transfer
        Number of the send's transfer, counted without gaps.
    held, arrival
        For how long it holds its link, and when it is at the far end, in picoseconds.
    element
        For sends of single images, the element that takes the orbit's first chunk to theirs.
    found
        Violations so far.
    """

    schedule: OrbitSchedule
    chunk: IntArray
    link: IntArray
    start: IntArray
    is_reduce: BoolArray
    orbit: IntArray
    src: IntArray
    dst: IntArray
    transfer: IntArray
    held: IntArray
    arrival: IntArray
    element: IntArray | None = None
    found: list[Violation] = field(default_factory=list)
    _counts: Counter[ViolationKind] = field(default_factory=Counter)

    @staticmethod
    def of(schedule: OrbitSchedule) -> "Case":
        """Take a schedule apart; lengths are computed anew from its fabric."""
        sends, fabric = schedule.sends, schedule.problem.fabric
        orbit = fabric.link_orbit(sends["link"])
        src, dst = fabric.link_ends(sends["link"])
        size, held, alpha = schedule.problem.chunk_bytes, [], []
        for link in fabric.links:
            slowest = min([link.bandwidth, *(fabric.shared[i].bandwidth for i in link.shares)])
            held.append(to_ps(link.overhead) + to_ps(size / slowest))
            alpha.append(to_ps(link.alpha))
        holds = ints(held)[orbit]
        return Case(
            schedule=schedule,
            chunk=sends["chunk"],
            link=sends["link"],
            start=sends["start_ps"],
            is_reduce=sends["reduce"],
            orbit=orbit,
            src=src,
            dst=dst,
            transfer=np.unique(sends["transfer"], return_inverse=True)[1].reshape(-1),
            held=holds,
            arrival=sends["start_ps"] + holds + ints(alpha)[orbit],
        )

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def problem(self) -> FabricProblem:
        """What the schedule solves."""
        return self.schedule.problem

    @property
    def from_gpu(self) -> BoolArray:
        """Whether sends leave a GPU."""
        leave: BoolArray = self.src < self.problem.fabric.num_gpus
        return leave

    @property
    def to_gpu(self) -> BoolArray:
        """Whether sends enter a GPU."""
        enter: BoolArray = self.dst < self.problem.fabric.num_gpus
        return enter

    @property
    def finish(self) -> int:
        """The last arrival."""
        return int(self.arrival.max(initial=0))

    def name(self, node: int) -> str:
        """Name of a node."""
        return self.problem.fabric.node_name(int(node))

    def shift(self, element: int) -> str:
        """An element of the group as people read it."""
        return str(self.problem.fabric.group.digits(ints([element]))[:, 0].tolist())

    def add(
        self,
        kind: ViolationKind,
        detail: str,
        *,
        chunk: int | None = None,
        row: int | None = None,
    ) -> None:
        """Note one violation, of a send, of a chunk or of the whole schedule."""
        self._counts[kind] += 1
        if self._counts[kind] > MAX_PER_KIND:
            return
        subject, chunk = "", chunk if row is None else int(self.chunk[row])
        if chunk is not None:
            subject = self.problem.chunk_name(chunk)
        if row is not None and self.element is not None:
            subject += f", moved by {self.shift(int(self.element[row]))}"
        if row is not None:
            subject += f" on {self.name(self.src[row])} > {self.name(self.dst[row])}"
        self.found.append(
            Violation(
                kind=kind,
                chunk=chunk,
                link=None if row is None else int(self.link[row]),
                time_s=None if row is None else float(self.start[row]) / _PS_PER_S,
                detail=f"{subject}: {detail}" if subject else detail,
            )
        )

    def add_each(self, kind: ViolationKind, rows: IntArray, detail: Callable[[int], str]) -> None:
        """Note a violation of each of some sends, as many as are kept."""
        for row in rows[:MAX_PER_KIND].tolist():
            self.add(kind, detail(row), row=row)
