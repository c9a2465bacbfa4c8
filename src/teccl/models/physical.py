"""From passages on the grid to a schedule in physical time.

A grid rounds, so every passage is placed again in picoseconds, in the grid's order, as early as its
feeder and its links allow. Where buffers are limited a relay must not wait: then what one copy
of own data sets off moves as one rigid body.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import lcm

from teccl.check import verify
from teccl.construct.calendars import Calendar, ExclusiveCalendar, RateCalendar
from teccl.models.passages import Passage
from teccl.problem import Problem, SwitchMode, Transit
from teccl.schedule import Schedule, send_array
from teccl.schedule.timing import transmission_from
from teccl.timegrid import TimeGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """A passage that begins at some time: starts of its hops, holding time, arrivals."""

    starts: tuple[int, ...]
    holds: tuple[int, ...]
    arrivals: tuple[int, ...]


def realise(problem: Problem, grid: TimeGrid, passages: list[Passage]) -> Schedule | None:
    """Return a verified schedule of passages, None if they have no order in physical time."""
    rigid = [False] if problem.buffer is None else [False, True]
    for whole in rigid:
        starts = _Placement(problem, passages).place(rigid=whole)
        if starts is None:
            continue
        schedule = _schedule(problem, grid, passages, starts)
        if not verify(schedule):
            return schedule
    return None


def _schedule(
    problem: Problem, grid: TimeGrid, passages: list[Passage], starts: list[tuple[int, ...]]
) -> Schedule:
    rows = [
        (passage.chunk, hop.link, start, number, hop.epoch)
        for number, (passage, times) in enumerate(zip(passages, starts, strict=True))
        for hop, start in zip(passage.hops, times, strict=True)
    ]
    chunk, link, start, transfer, epoch = zip(*rows, strict=True) if rows else ((),) * 5
    sends = send_array(chunk, link, start, transfer=transfer, epoch=epoch)
    return Schedule(problem=problem, sends=sends, grid=grid, method="milp")


class _Placement:
    """Books passages one after another on links that are free."""

    def __init__(self, problem: Problem, passages: list[Passage]) -> None:
        topology = problem.topology
        self.problem, self.passages = problem, passages
        self.hyper = topology.num_switches > 0 and problem.switch is SwitchMode.HYPER_EDGE
        self.cut = topology.num_switches > 0 and problem.transit is Transit.CUT_THROUGH
        self.cut = self.cut and not self.hyper
        self.hold = problem.transmission_ps.tolist()
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
        order = sorted(bodies, key=lambda body: (self.passages[body[0]].epoch, body[0]))
        placed: dict[int, _Layout] = {}
        for body in order:
            layouts = self._fit(body, placed)
            if layouts is None:
                return None
            placed |= layouts
        return [placed[i].starts for i in range(len(self.passages))]

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
        first = self.passages[body[0]]
        start = self._release(first, placed)
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

    def _release(self, passage: Passage, placed: dict[int, _Layout]) -> int:
        if passage.feeder is None:
            tenant = self.problem.chunks.tenant[passage.chunk]
            return int(self.ready[tenant][passage.src])
        number, end = passage.feeder
        return placed[number].arrivals[end]

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
        slowest = max(self.hold[hop.link][size] for hop in passage.hops)
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
        arrivals = [starts[hop] + holds[hop] + late[hop] for _, hop, _ in passage.ends]
        return _Layout(starts=tuple(starts), holds=tuple(holds), arrivals=tuple(arrivals))

    def _length(self, link: int, size: int, start: int) -> int:
        if not self.problem.topology.links[link].profile:
            return int(self.hold[link][size])
        return transmission_from(self.steps[link], self.problem.chunks.sizes[size], start)

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
