"""Search: the state of one request, what was proven, found and spent, and whom to tell."""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING

from teccl._numba import solving_clock
from teccl.construct.params import CHUNK_TOLERANCE, COSTLY_CHUNK_TOLERANCE, NARROW_GAP, PART
from teccl.errors import ScheduleError, VerificationError
from teccl.problem import Problem
from teccl.progress import CancelToken, Progress, ProgressCallback
from teccl.schedule import BoundSummary, Schedule
from teccl.synthesis.features import Features
from teccl.synthesis.incumbents import Candidate, Incumbents
from teccl.synthesis.request import Request
from teccl.synthesis.stop import CRITERIA, URGENT, SearchStoppedError
from teccl.synthesis.work import Budget
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS

if TYPE_CHECKING:
    from teccl.construct.instance import Instance
    from teccl.construct.plan import Plan
    from teccl.replay import Replay


@dataclass(slots=True, kw_only=True)
class Search:
    """One request on its way to a result.

    Parameters
    ----------
    request
        What was asked for.
    started
        `solving_clock` at the start; only limits that the user gives read it.
    progress, cancel
        Whom to tell, and who may stop it.
    bound
        What was proven about the problem; None until it is.
    is_refined
        Whether bounds that take longer were looked for too.
    finishes
        What each construction made, one number of chunks after another.
    shares, taken
        Units that each construction has had for each number of chunks and target, and took last.
    latest
        Length of the schedule that was offered last.
    note
        What the user should hear of in the end.
    """

    request: Request
    started: float
    progress: ProgressCallback | None = None
    cancel: CancelToken | None = None
    bound: BoundSummary | None = None
    is_refined: bool = False
    note: str | None = None
    features: Features = field(init=False)
    incumbents: Incumbents = field(init=False)
    budget: Budget = field(init=False)
    finishes: dict[str, list[int]] = field(init=False, default_factory=dict)
    shares: dict[tuple[str, int, int], int] = field(init=False, default_factory=dict)
    taken: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)
    latest: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.features = Features(self.request)
        self.budget = Budget.of(self.request.effort, self.features.offer_work(1))
        self.incumbents = Incumbents(tolerance=self._chunk_tolerance())

    def _chunk_tolerance(self) -> float:
        """Part of the best length by which one with fewer chunks may be longer."""
        if self.request.chunk_tolerance is not None:
            return float(self.request.chunk_tolerance)
        if self.request.topology.has_overheads:
            return 1 / COSTLY_CHUNK_TOLERANCE
        # An AllReduce must not be later than its halves, each of which may be at its best.
        return 1 / CHUNK_TOLERANCE if self.features.phases == 1 else 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, without those in which kernels were compiled."""
        return solving_clock() - self.started

    def snapshot(self) -> "Search":
        """Return the state of now, apart from whoever goes on with this one."""
        now = copy.copy(self)
        now.incumbents = replace(self.incumbents, by_chunks=dict(self.incumbents.by_chunks))
        return now

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock, for work that is not part of solving, such as loading libraries."""
        begin = solving_clock()
        try:
            yield
        finally:
            self.started += solving_clock() - begin

    @property
    def target(self) -> int | None:
        """Picoseconds that an optimal schedule reaches, in whole epochs on a grid."""
        if self.bound is None:
            return None
        chunks = self.request.chunks
        if chunks is not None and self.bound.epochs is not None:
            grid = self.request.time_grid(self.request.problem(chunks))
            return 0 if grid is None else int(grid.epoch * self.bound.epochs * PICOSECONDS)
        whole = self.bound.chunk_ps if chunks is not None else None
        return max(self.bound.physical_ps, whole or 0)

    def is_within(self, gap: float | Fraction) -> bool:
        """Whether the fastest schedule is within a gap of the target."""
        if not self.incumbents or self.target is None:
            return False
        return self.incumbents.fastest <= self.target * (1 + gap)

    def is_worth(self, work: int) -> bool:
        """Whether there is work left for an attempt, and a gap that it is worth trying to close."""
        if not self.incumbents:
            return True
        return work <= self.budget.left and not self.is_within(self.budget.price * work)

    @property
    def worthwhile(self) -> int:
        """Units of work that the gap is worth, as far as they are left."""
        if not self.incumbents or not self.target or not self.budget.price:
            return self.budget.left
        gap = self.incumbents.fastest / self.target - 1
        return min(self.budget.left, int(gap / self.budget.price))

    def is_late(self) -> bool:
        """Whether the user's time is over, also where the limit waits for a first schedule."""
        limit = self.request.time_limit_s
        return limit is not None and self.elapsed_s >= limit

    def is_over(self) -> bool:
        """Whether somebody has cancelled it or its time is over."""
        return any(criterion(self) is not None for criterion in URGENT)

    def checkpoint(self) -> None:
        """End the search if a criterion says so.

        Raises
        ------
        SearchStoppedError
            If so.
        """
        for criterion in CRITERIA:
            status = criterion(self)
            if status is not None:
                raise SearchStoppedError(status)

    def bound_s(self) -> float:
        """Return the seconds that may still go into bounds, infinitely many without a limit.

        A schedule that the search found in time has a gap to be shown with it: looking for bounds
        may take a part of the limit more.
        """
        limit = self.request.time_limit_s
        return inf if limit is None else limit * (1 + 1 / PART) - self.elapsed_s

    def prove(self, problem: Problem, *, narrow: bool = True) -> BoundSummary:
        """Return what can be proven about a problem; `narrow` looks for narrow cuts too."""
        from teccl.bounds import summarise
        from teccl.bounds.patience import limited_to

        # The quick bounds belong to the first schedule, for which the limit waits.
        with limited_to(self.bound_s) if narrow else contextlib.nullcontext():
            return summarise(
                problem,
                grid=self.request.time_grid(problem),
                given_chunks=self.request.chunks is not None,
                narrow=narrow,
            )

    def refine(self) -> None:
        """Look for narrow cuts, unless the bound shows already that the best is very good."""
        tolerance = NARROW_GAP if self.request.chunks is None else 0
        if self.is_refined or not self.incumbents or self.is_within(tolerance):
            return
        with self.paused():
            import_module("scipy.sparse.csgraph")
        before, known = self.target, self.bound
        self.bound = self.prove(self.request.problem(self.request.chunks or 1))
        if known is not None and self.bound_s() <= 0 and (self.target or 0) < (before or 0):
            # What there was no time for is what is known.
            self.bound = known
        self.is_refined = True
        self.report("bound", self.bound.certificate)

    def offer(
        self,
        schedule: Schedule,
        *,
        epochs: int | None = None,
        grid: TimeGrid | None = None,
        plan: "Plan | None" = None,
        instance: "Instance | None" = None,
        note: str | None = None,
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
        plan, instance
            What a construction made it of.
        note
            What the user should hear of it.
        """
        from teccl.replay import simulate

        try:
            replay = simulate(schedule)
        except ScheduleError as reason:
            # Our own schedules keep the rules; a user has done nothing wrong here.
            raise VerificationError(f"{schedule.method} made a wrong schedule: {reason}") from None
        return self.offer_replay(
            replay, epochs=epochs, grid=grid, plan=plan, instance=instance, note=note
        )

    def offer_replay(
        self,
        replay: "Replay",
        *,
        epochs: int | None = None,
        grid: TimeGrid | None = None,
        plan: "Plan | None" = None,
        instance: "Instance | None" = None,
        note: str | None = None,
    ) -> int:
        """Offer a schedule whose times are as early as its order allows, as `offer` does others."""
        schedule = replay.schedule
        candidate = Candidate(
            schedule=schedule,
            finish_ps=int(replay.finish_ps),
            tenant_finish_ps=tuple(int(finish) for finish in replay.tenant_finish_ps),
            epochs=epochs,
            grid=grid,
            plan=plan,
            instance=instance,
            note=note,
        )
        self.latest = candidate.length
        if self.incumbents.add(candidate):
            self.report("schedule", f"{schedule.method}, {schedule.problem.num_chunks} chunks")
        return candidate.finish_ps

    def offer_plan(self, instance: "Instance", plan: "Plan", *, note: str | None = None) -> None:
        """Offer the schedule that a construction's plan stands for."""
        from teccl.construct.realise import realise

        schedule = realise(instance, plan, method="construct")
        epochs = None if instance.grid is None else plan.finish
        self.offer(schedule, epochs=epochs, plan=plan, instance=instance, note=note)

    def report(self, phase: str, message: str | None = None) -> None:
        """Tell whoever listens what is known."""
        if self.progress is None:
            return
        best, target = self.incumbents.best, self.target
        bound_s = None if self.bound is None else self.bound.physical_ps / PICOSECONDS
        self.progress(
            Progress(
                phase=phase,
                incumbent_s=None if best is None else best.finish_ps / PICOSECONDS,
                bound_s=bound_s,
                gap=None if best is None or not target else best.length / target - 1,
                elapsed_s=self.elapsed_s,
                message=message,
            )
        )
