"""From passages on the grid to a schedule in physical time.

A grid rounds, so every passage is placed again in picoseconds, in the grid's order, as early as its
feeder and its links allow. Where buffers are limited a relay must not wait: then what one copy
of own data sets off moves as one rigid body.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import lcm

from teccl.construct.calendars import Calendar, ExclusiveCalendar, RateCalendar
from teccl.keywords import SwitchMode, Transit
from teccl.models.milp.grid_passages import Passage
from teccl.models.turning import TurnedTask
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array
from teccl.schedule.timing import transmission_from
from teccl.verification import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """A passage that begins at some time: starts of its hops, holding time, arrivals."""

    starts: tuple[int, ...]
    holds: tuple[int, ...]
    arrivals: tuple[int, ...]


def realise(task: TurnedTask, passages: list[Passage], epochs: int) -> Schedule | None:
    """Return a verified schedule of passages, None if they have no order in physical time.

    Parameters
    ----------
    task
        Whose passages they are; where its model runs backwards, they are turned round.
    epochs
        Their length on the grid.
    """
    rigid = [False] if task.problem.buffer is None else [False, True]
    for whole in rigid:
        starts = _Placement(task, passages).place(rigid=whole)
        if starts is None:
            continue
        schedule = _schedule(task, passages, starts, epochs)
        if not verify(schedule):
            return schedule
    return None


def _schedule(
    task: TurnedTask, passages: list[Passage], starts: list[tuple[int, ...]], epochs: int
) -> Schedule:
    rows = [
        (passage.chunk, hop.link, start, number, hop.epoch, hop.usable)
        for number, (passage, times) in enumerate(zip(passages, starts, strict=True))
        for hop, start in zip(passage.hops, times, strict=True)
    ]
    chunk, link, start, transfer, begins, usable = zip(*rows, strict=True) if rows else ((),) * 6
    epoch = [epochs - moment for moment in usable] if task.is_turned else begins
    sends = send_array(chunk, link, start, transfer=transfer, epoch=epoch, reduce=task.is_turned)
    return Schedule(problem=task.problem, sends=sends, grid=task.grid, method="milp")


class _Placement:
    """Books passages one after another on links that are free."""

    def __init__(self, task: TurnedTask, passages: list[Passage]) -> None:
        problem = task.problem
        topology = problem.topology
        self.problem, self.passages, self.is_turned = problem, passages, task.is_turned
        # Backwards, what a passage fed feeds it: by passage and end.
        self.fed_by: dict[tuple[int, int], list[int]] = {}
        for number, passage in enumerate(passages):
            if passage.feeder is not None and task.is_turned:
                self.fed_by.setdefault(passage.feeder, []).append(number)
        self.hyper = topology.num_switches > 0 and problem.switch is SwitchMode.HYPER_EDGE
        self.cut = topology.num_switches > 0 and problem.transit is Transit.CUT_THROUGH
        self.cut = self.cut and not self.hyper
        self.hold = problem.hold_ps.tolist()
        self.overhead = topology.overhead_ps.tolist()
        self.alpha = topology.alpha_ps.tolist()
        self.size = problem.chunks.size_index.tolist()
        self.ready = problem.ready_ps().tolist()
        self.steps = [topology.rate_steps(link) for link in topology.links]
        self.rate = _whole_rates(problem)
        shared = {name: ExclusiveCalendar() for name in topology.shared}
        self.calendars: list[list[Calendar]] = [
            [
                RateCalendar(self.rate[e]) if self.cut else ExclusiveCalendar(),
                *(shared[name] for name in link.shares),
            ]
            for e, link in enumerate(topology.links)
        ]

    def place(self, *, rigid: bool) -> list[tuple[int, ...]] | None:
        """Return the starts of every passage's hops, None if a body cannot be placed."""
        bodies = self._bodies() if rigid else [[i] for i in range(len(self.passages))]
        order = sorted(bodies, key=self._key)
        placed: dict[int, _Layout] = {}
        for body in order:
            layouts = self._fit(body, placed)
            if layouts is None:
                return None
            placed |= layouts
        return [placed[i].starts for i in range(len(self.passages))]

    def _key(self, body: list[int]) -> tuple[int, int]:
        """When a body begins on the grid; backwards, when it arrives, after all that feeds it."""
        epoch = self.passages[body[0]].epoch
        return (-epoch if self.is_turned else epoch, body[0])

    def _bodies(self) -> list[list[int]]:
        """Passages by the own data that sets them off, feeders first."""
        bodies: dict[int, list[int]] = {}
        root: dict[int, int] = {}
        for i in sorted(range(len(self.passages)), key=lambda i: (self.passages[i].epoch, i)):
            feeder = self.passages[i].feeder
            root[i] = i if feeder is None else root[feeder[0]]
            bodies.setdefault(root[i], []).append(i)
        return list(bodies.values())

    def _fit(self, body: list[int], placed: dict[int, _Layout]) -> dict[int, _Layout] | None:
        """Find the earliest time at which a body fits, and book it."""
        start = self._release(body[0], placed)
        while True:
            layouts = self._lay(body, start)
            uses = self._uses(body, layouts)
            if _clashes_with_itself(uses):
                return None
            later = max(
                (cal.first_free(at, hold, rate) - at for cal, at, hold, rate in uses), default=0
            )
            if later <= 0:
                break
            start += later
        for calendar, at, hold, rate in uses:
            calendar.add(at, hold, rate)
        return layouts

    def _release(self, number: int, placed: dict[int, _Layout]) -> int:
        """When a passage may begin: its own data is ready, what feeds it is there."""
        passage = self.passages[number]
        if self.is_turned:
            layout = self._layout(passage, 0)
            # What leaves a GPU some time after the start may be fed as much later.
            return max(
                [0]
                + [
                    placed[q].arrivals[0] - layout.starts[hop]
                    for end, (_, hop, _) in enumerate(passage.ends)
                    for q in self.fed_by.get((number, end), ())
                ]
            )
        if passage.feeder is None:
            tenant = self.problem.chunks.tenant[passage.chunk]
            return int(self.ready[tenant][passage.src])
        feeder, end = passage.feeder
        return placed[feeder].arrivals[end]

    def _lay(self, body: list[int], start: int) -> dict[int, _Layout]:
        """Time the passages of a body that begins at some time, each when it is fed."""
        layouts: dict[int, _Layout] = {}
        for i in body:
            feeder = self.passages[i].feeder
            begins = (
                start if i == body[0] or feeder is None else layouts[feeder[0]].arrivals[feeder[1]]
            )
            layouts[i] = self._layout(self.passages[i], begins)
        return layouts

    def _layout(self, passage: Passage, begin: int) -> _Layout:
        size = self.size[passage.chunk]
        slowest = self._circuit_hold(passage, size)
        starts: list[int] = []
        holds: list[int] = []
        late: list[int] = []
        for hop in passage.hops:
            alpha = self.alpha[hop.link]
            before = hop.before
            if self.hyper:
                starts.append(begin)
                holds.append(slowest)
                late.append(alpha + (late[before] if before >= 0 else 0))
                continue
            if before < 0:
                starts.append(begin)
            else:
                kept = 0 if self.cut else holds[before]
                starts.append(starts[before] + kept + late[before])
            holds.append(slowest if self.cut else self._length(hop.link, size, starts[-1]))
            late.append(alpha)
        ends = [start + hold + more for start, hold, more in zip(starts, holds, late, strict=True)]
        if self.is_turned:
            return self._turned(begin, ends, holds)
        arrivals = tuple(ends[hop] for _, hop, _ in passage.ends)
        return _Layout(starts=tuple(starts), holds=tuple(holds), arrivals=arrivals)

    def _circuit_hold(self, passage: Passage, size: int) -> int:
        """How long a circuit holds its links: the largest overhead, then the slowest's bytes."""
        links = [hop.link for hop in passage.hops]
        overhead = max(self.overhead[e] for e in links)
        return overhead + max(self.hold[e][size] - self.overhead[e] for e in links)

    def _turned(self, begin: int, ends: list[int], holds: list[int]) -> _Layout:
        """Turn a layout round within its own length; its one arrival is where it began."""
        last = max(ends)
        starts = [begin + last - end for end in ends]
        if self.hyper:
            starts = [begin] * len(ends)
        return _Layout(starts=tuple(starts), holds=tuple(holds), arrivals=(last,))

    def _length(self, link: int, size: int, start: int) -> int:
        if not self.problem.topology.links[link].profile:
            return int(self.hold[link][size])
        size_bytes, overhead = self.problem.chunks.sizes[size], self.overhead[link]
        return transmission_from(self.steps[link], size_bytes, start, overhead_ps=overhead)

    def _uses(
        self, body: list[int], layouts: dict[int, _Layout]
    ) -> list[tuple[Calendar, int, int, int]]:
        uses = []
        for i in body:
            passage, layout = self.passages[i], layouts[i]
            rate = min(self.rate[hop.link] for hop in passage.hops)
            for hop, start, hold in zip(passage.hops, layout.starts, layout.holds, strict=True):
                uses += [(cal, start, hold, rate) for cal in self.calendars[hop.link]]
        return uses


def _clashes_with_itself(uses: list[tuple[Calendar, int, int, int]]) -> bool:
    """Whether a body needs an exclusive resource twice at one time."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for calendar, start, hold, _ in uses:
        if isinstance(calendar, ExclusiveCalendar):
            spans.setdefault(id(calendar), []).append((start, start + hold))
    for held in spans.values():
        held.sort()
        if any(late[0] < early[1] for early, late in pairwise(held)):
            return True
    return False


def _whole_rates(problem: Problem) -> list[int]:
    """Rates of all links as whole numbers of one unit."""
    rates = problem.topology.rates
    unit = lcm(*(rate.denominator for rate in rates)) if rates else 1
    return [int(rate * unit) for rate in rates]
