"""Incumbents: the best schedule found for each number of chunks, and the one to hand out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from operator import itemgetter

from teccl.construct.instance import Instance
from teccl.construct.params import CHUNK_TOLERANCE
from teccl.construct.plan import Plan, on_routes
from teccl.demand.tenants import MAKESPAN_PART
from teccl.result import Attempt
from teccl.schedule import Schedule
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schedule in its exact replay.

    Parameters
    ----------
    epochs, grid
        Its length on a grid; the grid is given here where the schedule itself is on none.
    plan, instance
        What a construction made it of, for those that go on from there, with the routes it names.
    note
        What the user should hear of it.
    """

    schedule: Schedule
    finish_ps: int
    tenant_finish_ps: tuple[int, ...]
    epochs: int | None = None
    grid: TimeGrid | None = None
    plan: Plan | None = None
    instance: Instance | None = None
    note: str | None = None

    def plan_for(self, instance: Instance) -> Plan | None:
        """Return the plan in an instance's routes; None if there is none, or it takes others."""
        if self.plan is None or self.instance is None:
            return None
        return on_routes(self.plan, self.instance.routes, instance.routes)

    @property
    def length(self) -> int:
        """Picoseconds that are minimised: whole epochs on a grid, else the finish."""
        if self.epochs is None or self.schedule.grid is None:
            return self.finish_ps
        return int(self.schedule.grid.epoch * self.epochs * PICOSECONDS)

    @property
    def weighted(self) -> Fraction:
        """Sum of the tenants' finishes times their priorities."""
        tenants = self.schedule.problem.demand.tenants
        return sum(
            (t.priority * finish for t, finish in zip(tenants, self.tenant_finish_ps, strict=True)),
            Fraction(0),
        )

    @property
    def merit(self) -> tuple[int, int, Fraction, Fraction]:
        """What is to be small: the length, the makespan, the tenants' finishes, the bytes sent."""
        return self.length, self.finish_ps, self.weighted, self.schedule.bytes_on_wire


@dataclass(slots=True, kw_only=True)
class Incumbents:
    """The best candidate for each number of chunks, of each rank's share or of whole buffers.

    Parameters
    ----------
    tolerance
        Part of the least length by which one with fewer chunks may be longer.
    favoured
        Of several tenants' schedules that are about as short, the one with the least sum of
        priorities times finishes.
    """

    tolerance: float = 1 / CHUNK_TOLERANCE
    by_chunks: dict[tuple[bool, int], Candidate] = field(default_factory=dict)
    favoured: Candidate | None = None

    def __bool__(self) -> bool:
        return bool(self.by_chunks)

    def __iter__(self) -> Iterator[int]:
        """Numbers of chunks of shares, those of the shortest schedules first."""
        lengths = {count: x.length for (whole, count), x in self.by_chunks.items() if not whole}
        return iter(sorted(lengths, key=lambda count: lengths[count]))

    def get(self, num_chunks: int) -> Candidate | None:
        """Return the best with so many chunks of each share."""
        return self.by_chunks.get((False, num_chunks))

    def add(self, candidate: Candidate) -> bool:
        """Keep a candidate if it is the best with its number of chunks; say whether it is."""
        problem = candidate.schedule.problem
        if len(problem.demand.tenants) > 1:
            self._favour(candidate)
        cut = problem.whole_buffer, problem.num_chunks
        known = self.by_chunks.get(cut)
        if known is not None and known.merit <= candidate.merit:
            return False
        self.by_chunks[cut] = candidate
        return True

    def _favour(self, candidate: Candidate) -> None:
        """Remember a schedule of several tenants if it serves the important ones sooner."""
        known = [*self.by_chunks.values(), candidate]
        known += [] if self.favoured is None else [self.favoured]
        least = min(x.length for x in known)
        good = [x for x in known if (x.length - least) * MAKESPAN_PART <= least]
        self.favoured = min(good, key=lambda x: (x.weighted, x.merit))

    @property
    def fastest(self) -> int:
        """Least length of any candidate."""
        return min(candidate.length for candidate in self.by_chunks.values())

    @property
    def best(self) -> Candidate | None:
        """The candidate to hand out: few chunks, and about as good as any."""
        if not self.by_chunks or self.favoured is not None:
            return self.favoured
        most = self.fastest * (1 + self.tolerance)
        good = [x for x in self.by_chunks.values() if x.length <= most]
        return min(good, key=lambda x: len(x.schedule.problem.chunks))

    @property
    def tried(self) -> tuple[Attempt, ...]:
        """What came of each number of chunks, in increasing order."""
        return tuple(
            Attempt(count, found.schedule.method, found.finish_ps / PICOSECONDS)
            for (_, count), found in sorted(self.by_chunks.items(), key=itemgetter(0))
        )
