"""Search: the best schedules found so far, and when to stop looking for better ones."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from teccl.demand import Collective
from teccl.errors import ScheduleError, VerificationError
from teccl.problem import Problem
from teccl.progress import CancelToken, Progress, ProgressCallback
from teccl.request import Effort, Request
from teccl.result import Attempt, Status
from teccl.schedule import BoundSummary, Schedule
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS

if TYPE_CHECKING:
    from teccl.check.replay import Replay
    from teccl.construct.instance import Instance
    from teccl.construct.plan import Plan

# Of the numbers of chunks tried, the fewest within this of the best is taken.
CHUNK_TOLERANCE = Fraction(1, 1000)
# Most chunks that are tried unless the user says otherwise.
MAX_CHUNKS = 64
# Part of a link's latency that a chunk takes at least, on some link, to be worth trying for.
FINEST = 16
# A gap below which more chunks are not tried.
GOOD_GAP = Fraction(1, 1000)
# Numbers of chunks without an improvement after which more are not tried.
MAX_STALE_COUNTS = 2
# A gap beyond which more chunks do little about it, unless they close this share of it.
FAR_GAP = Fraction(1, 10)
GAP_SHARE = Fraction(1, 20)
# Processor seconds after the first schedule that cap an effort: the work itself is counted, not
# timed, and a busy machine should change nothing.
MAX_SECONDS = {Effort.QUICK: 3.0, Effort.NORMAL: 10.0, Effort.THOROUGH: float("inf")}
# Sends of the largest schedule that is tried for its chunks: work that is the same everywhere.
MAX_SENDS = {Effort.QUICK: 20_000, Effort.NORMAL: 100_000, Effort.THOROUGH: 1_000_000}
# With symmetry copies cost little, and larger schedules are tried where a gap above this is left:
# how many sends times chunks these may have, since the chunks of one orbit compete for each send.
COPIED_GAP = 0.02
MAX_COPIED_WORK = {Effort.QUICK: 0, Effort.NORMAL: 2_800_000, Effort.THOROUGH: 16_000_000}
# GPUs for each shift of a group that is large enough for that.
MANY_COPIES = 8
# Collectives with trees over all GPUs.
TREE_COLLECTIVES = (Collective.ALLGATHER, Collective.REDUCESCATTER, Collective.ALLREDUCE)


class SearchStoppedError(Exception):
    """The search must end now; `status` says why, and a message if there is more to say."""

    def __init__(self, status: Status, message: str | None = None) -> None:
        super().__init__(status.value)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schedule in its exact replay.

    Parameters
    ----------
    epochs, grid
        Its length on a grid; the grid is given here where the schedule itself is on none.
    """

    schedule: Schedule
    finish_ps: int
    tenant_finish_ps: tuple[int, ...]
    epochs: int | None = None
    grid: TimeGrid | None = None

    @property
    def length(self) -> int:
        """Picoseconds that are minimised: whole epochs on a grid, else the finish."""
        if self.epochs is None or self.schedule.grid is None:
            return self.finish_ps
        return int(self.schedule.grid.epoch * self.epochs * PICOSECONDS)

    @property
    def merit(self) -> tuple[int, int, Fraction, Fraction]:
        """What is to be small: the length, the makespan, the tenants' finishes, the bytes sent."""
        tenants = self.schedule.problem.demand.tenants
        weighted = sum(
            (t.priority * finish for t, finish in zip(tenants, self.tenant_finish_ps, strict=True)),
            Fraction(0),
        )
        return self.length, self.finish_ps, weighted, self.schedule.bytes_on_wire


@dataclass(slots=True, kw_only=True)
class Search:
    """The best candidate for each number of chunks.

    Parameters
    ----------
    request
        What was asked for.
    started
        Clock at the start, `time.perf_counter`.
    progress, cancel
        Whom to tell, and who may stop it.
    bound
        What was proven about the problem; None until it is.
    is_refined
        Whether bounds that take longer were looked for too.
    """

    request: Request
    started: float
    progress: ProgressCallback | None = None
    cancel: CancelToken | None = None
    bound: BoundSummary | None = None
    is_refined: bool = False
    best: dict[int, Candidate] = field(default_factory=dict)
    first_schedule_s: float | None = None
    first_schedule_cpu_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock, for work that is not part of solving, such as compiling."""
        begin, begin_cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.started += time.perf_counter() - begin
            if self.first_schedule_cpu_s is not None:
                self.first_schedule_cpu_s += time.process_time() - begin_cpu

    @property
    def incumbent(self) -> Candidate | None:
        """The candidate to hand out: few chunks, and about as good as any."""
        if not self.best:
            return None
        fastest = self.fastest
        # An AllReduce must not be later than its halves, each of which may be at its best.
        tolerance = CHUNK_TOLERANCE if self.phases == 1 else 0
        good = [
            count
            for count, candidate in self.best.items()
            if candidate.length <= fastest * (1 + tolerance)
        ]
        return self.best[min(good)]

    @property
    def fastest(self) -> int:
        """Least length of any candidate."""
        return min(candidate.length for candidate in self.best.values())

    @property
    def tried(self) -> tuple[Attempt, ...]:
        """What came of each number of chunks, in increasing order."""
        return tuple(
            Attempt(count, found.schedule.method, found.finish_ps / PICOSECONDS)
            for count, found in sorted(self.best.items())
        )

    @property
    def target(self) -> int | None:
        """Picoseconds that an optimal schedule reaches, in whole epochs on a grid."""
        if self.bound is None:
            return None
        if self.request.chunks is not None and self.bound.epochs is not None:
            grid = self.request.time_grid(self.request.problem(self.request.chunks))
            return 0 if grid is None else int(grid.epoch * self.bound.epochs * PICOSECONDS)
        whole = self.bound.chunk_ps if self.request.chunks is not None else None
        return max(self.bound.physical_ps, whole or 0)

    def is_within(self, gap: float | Fraction) -> bool:
        """Whether the fastest schedule is within a gap of the target."""
        return bool(self.best) and self.fastest <= (self.target or 0) * (1 + gap)

    def offer(
        self, schedule: Schedule, *, epochs: int | None = None, grid: TimeGrid | None = None
    ) -> int:
        """Re-time a schedule and keep it if it is the best with its number of chunks.

        Returns its finish in picoseconds.

        Parameters
        ----------
        schedule
            What was found.
        epochs
            Its length on the grid, for schedules that have one.
        grid
            The grid that `epochs` counts on, where the schedule is made of rates on it.
        """
        from teccl.check import simulate

        try:
            replay = simulate(schedule)
        except ScheduleError as reason:
            # Our own schedules keep the rules; a user has done nothing wrong here.
            raise VerificationError(f"{schedule.method} made a wrong schedule: {reason}") from None
        return self.offer_replay(replay, epochs=epochs, grid=grid)

    def offer_replay(
        self, replay: "Replay", *, epochs: int | None = None, grid: TimeGrid | None = None
    ) -> int:
        """Offer a schedule whose times are as early as its order allows, as `offer` does others."""
        schedule = replay.schedule
        candidate = Candidate(
            schedule=schedule,
            finish_ps=int(replay.finish_ps),
            tenant_finish_ps=tuple(int(finish) for finish in replay.tenant_finish_ps),
            epochs=epochs,
            grid=grid,
        )
        if self.first_schedule_cpu_s is None:
            self.first_schedule_s = self.elapsed_s
            self.first_schedule_cpu_s = time.process_time()
        count = schedule.problem.num_chunks
        known = self.best.get(count)
        if known is None or candidate.merit < known.merit:
            self.best[count] = candidate
            self.report("schedule", f"{schedule.method}, {count} chunks")
        return candidate.finish_ps

    def offer_plan(self, instance: "Instance", plan: "Plan") -> None:
        """Offer the schedule that a construction's plan stands for."""
        from teccl.construct.realise import realise

        schedule = realise(instance, plan, method="construct")
        self.offer(schedule, epochs=None if instance.grid is None else plan.finish)

    def checkpoint(self, *, is_capped: bool = True) -> None:
        """End the search if it was cancelled, has no time left or is good enough.

        Parameters
        ----------
        is_capped
            Whether to end it too where the seconds are over that an effort may take.

        Raises
        ------
        SearchStoppedError
            If so. A time limit waits for the first schedule.
        """
        if self.cancel is not None and self.cancel.is_cancelled:
            raise SearchStoppedError(Status.INTERRUPTED)
        best = self.incumbent
        if best is None:
            return
        limit = self.request.time_limit_s
        if limit is not None and self.elapsed_s >= limit:
            raise SearchStoppedError(Status.TIME_LIMIT)
        if is_capped and self.request.method == "auto" and self._has_spent_its_effort():
            raise SearchStoppedError(Status.FEASIBLE)
        target = self.target
        meets = target is not None and best.length <= target * (1 + self.request.gap)
        # Of several tenants' schedules that end together another may be preferred.
        if meets and len(self.request.demand.tenants) == 1:
            raise SearchStoppedError(Status.FEASIBLE)

    def _has_spent_its_effort(self) -> bool:
        """Whether the seconds are over that cap an effort, counted from the first schedule."""
        if self.first_schedule_cpu_s is None:
            return False
        spent_s = time.process_time() - self.first_schedule_cpu_s
        return spent_s > MAX_SECONDS[self.request.effort]

    def problems(self, most: int | None = None) -> Iterator[Problem]:
        """Yield the problem with each number of chunks worth trying, fewest first."""
        if self.request.chunks is not None:
            yield self.request.problem(self.request.chunks)
            return
        stale, fastest, least = 0, None, 1
        limit = most or self.most_chunks()
        for count in self._counts(limit):
            if count < min(least, limit):
                continue
            yield self.request.problem(count)
            found = self.best.get(count)
            if found is None:
                return
            stale = 0 if fastest is None or self._improves(found.length, fastest) else stale + 1
            fastest = found.length if fastest is None else min(fastest, found.length)
            if self.target is not None and fastest <= self.target * (1 + GOOD_GAP):
                return
            if stale >= MAX_STALE_COUNTS or self._is_largest(found):
                return
            least = self._least_useful(found)

    def _improves(self, length: int, fastest: int) -> bool:
        """Whether more chunks closed a part of the gap that makes still more worth trying."""
        target = self.target or 0
        is_far = fastest > target * (1 + FAR_GAP)
        least = GAP_SHARE * (fastest - target) if is_far else 0
        return length * (1 + CHUNK_TOLERANCE) < fastest and fastest - length > least

    def _is_largest(self, found: Candidate) -> bool:
        """Whether a schedule with twice the chunks would be too large to try."""
        if 2 * len(found.schedule) <= self.most_sends:
            return False
        return self._doublings(found) < 1 or self.is_within(COPIED_GAP) or not self.is_symmetric

    def _doublings(self, found: Candidate) -> int:
        """How often chunks may double until there is too much work in copying a schedule's like."""
        work = len(found.schedule) * found.schedule.problem.num_chunks
        most = self.phases * MAX_COPIED_WORK[self.request.effort]
        # Twice the chunks are twice the sends.
        return ((most // max(1, work)).bit_length() - 1) // 2

    def _least_useful(self, found: Candidate) -> int:
        """Fewest chunks to try next: of large schedules only those that may close the gap.

        What remains are the ends of a pipeline, which take less time the more chunks there are.
        """
        count = found.schedule.problem.num_chunks
        if not self.target or 2 * len(found.schedule) <= self.most_sends:
            return 2 * count
        wanted = math.ceil(math.log2((found.length / self.target - 1) / COPIED_GAP))
        return count * 2 ** max(1, min(wanted, self._doublings(found)))

    @property
    def is_exhausted(self) -> bool:
        """Whether symmetry was made use of for as large a schedule as an effort allows."""
        best = self.incumbent
        if best is None or len(best.schedule) <= self.most_sends or self._doublings(best) > 0:
            return False
        return self.is_symmetric

    @property
    def is_symmetric(self) -> bool:
        """Whether trees are asked for, of which most may be copies of others."""
        from teccl.construct.symmetry import find_group

        if not self.asks_for_trees:
            return False
        group = find_group(self.request.topology)
        return group is not None and MANY_COPIES * len(group) >= self.request.topology.num_gpus

    @property
    def asks_for_trees(self) -> bool:
        """Whether all tenants ask for collectives with trees over all of their GPUs."""
        return all(t.collective in TREE_COLLECTIVES for t in self.request.demand.tenants)

    @property
    def most_sends(self) -> int:
        """Sends of the largest schedule worth trying."""
        return self.phases * MAX_SENDS[self.request.effort]

    def most_chunks(self, default: int = MAX_CHUNKS) -> int:
        """Most chunks that may be tried: what the user says, else a default."""
        return self.request.max_chunks or default

    def finest(self, default: int = MAX_CHUNKS) -> int:
        """Most chunks where latencies count as much as rates: each still takes some time on a link.

        With more a pipeline is always a little faster, if only on paper.
        """
        problem = self.request.problem(1)
        alpha = problem.topology.alpha_ps
        if self.request.max_chunks is not None or not alpha.all():
            return self.most_chunks(default)
        finest = int((FINEST * problem.transmission_ps.max(axis=1) / alpha).max())
        return min(default, max(1, finest))

    @property
    def phases(self) -> int:
        """Two for an AllReduce, whose ReduceScatter and AllGather each count like a collective."""
        collectives = {tenant.collective for tenant in self.request.demand.tenants}
        return 2 if Collective.ALLREDUCE in collectives else 1

    def _counts(self, limit: int) -> Iterator[int]:
        count = 1
        while count < limit:
            yield count
            count *= 2
        yield limit

    def report(self, phase: str, message: str | None = None) -> None:
        """Tell whoever listens what is known."""
        if self.progress is None:
            return
        best, target = self.incumbent, self.target
        gap = None
        if best is not None and target:
            gap = best.length / target - 1
        bound_s = None if self.bound is None else self.bound.physical_ps / PICOSECONDS
        self.progress(
            Progress(
                phase=phase,
                incumbent_s=None if best is None else best.finish_ps / PICOSECONDS,
                bound_s=bound_s,
                gap=gap,
                elapsed_s=self.elapsed_s,
                message=message,
            )
        )
