"""Solving with the general model: from a search to schedules whose length is proven."""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from teccl import solvers
from teccl.errors import MethodError
from teccl.footprint import free_memory
from teccl.keywords import Effort, Objective
from teccl.models.milp.general import Milp, MilpGoal, build_milp, estimate_milp
from teccl.models.milp.grid_passages import LoopError, decode
from teccl.models.milp.horizon import Answer, Closing, coarse_horizon
from teccl.models.milp.physical import realise
from teccl.models.turning import TurnedTask
from teccl.result import Status
from teccl.schedule import Schedule
from teccl.solvers import Solution, SolverOptions, SolverProgress, SolverStatus
from teccl.solvers.base import OnProgress
from teccl.synthesis.incumbents import Candidate
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.stop import SearchStoppedError
from teccl.timegrid import TimeGrid

# Seconds for the shortest horizon before a longer one is tried for a first schedule.
FIRST_SECONDS = 120.0
# Seconds for fewer epochs once there is a schedule, or as long as that took, without a limit.
BETTER_SECONDS = 300.0
# Seconds for one coarse model.
COARSE_SECONDS = 10.0
# Work for ties: to choose among schedules of one length, without proof that it is the best.
TIE_WORK = 0.2
TIE_SECONDS = 3.0
TIE_COLUMNS = 30_000
# Columns of a model that auto hands over, and the work it may do.
AUTO_COLUMNS = {Effort.QUICK: 0, Effort.NORMAL: 60_000, Effort.THOROUGH: 1_000_000}
# Triples of chunk, link and epoch for each column, beyond which a model is not even counted.
AUTO_SPARSITY = 3
AUTO_WORK = {Effort.QUICK: 0.0, Effort.NORMAL: 6.0, Effort.THOROUGH: None}
# Back ends that find a first solution far sooner where an objective says what leads to one.
GUIDED = ("highs",)
# Part of the machine's free memory that a model may take, and what back ends need beside it.
MEMORY_SHARE = 0.7
# Triples of chunk, link and epoch beyond which a model is refused at once.
MAX_TRIPLES = 500_000_000
SOLVER_FACTOR = 12
# Columns, and triples that are counted for them or entries of them, that are built and handed over
# in a second at most: a model that takes longer than a time limit leaves is not begun.
COLUMNS_PER_SECOND = 200_000
TRIPLES_PER_SECOND = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a solve yielded: an answer, and a schedule with its epochs if there is one."""

    answer: Answer
    solution: Solution
    schedule: Schedule | None = None
    epochs: int | None = None


def solve_milp(search: Search, start: Candidate | None) -> None:
    """Carry out method milp.

    Parameters
    ----------
    search
        Takes the schedules; its bound rises with what is proven.
    start
        A known schedule to start from, None for none.
    """
    request = search.request
    problem = request.problem(request.chunks or 1)
    grid = request.time_grid(problem)
    assert grid is not None
    task = TurnedTask.of(problem, grid, method="milp")
    run = _Run(search=search, task=task, solver=request.solver.value, start=start)
    try:
        if request.objective is Objective.PAPER:
            run.maximise_sum()
        else:
            run.close()
    finally:
        run.fall_back()
    search.checkpoint()


def close_gap(search: Search) -> None:
    """Let CP-SAT close what the construction left open on a grid, where the model is small."""
    request, best = search.request, search.incumbents.best
    if request.chunks is None or best is None or best.epochs is None or search.bound is None:
        return
    bound = search.bound.epochs
    limit = AUTO_COLUMNS[request.effort]
    if bound is None or best.epochs <= bound * (1 + request.gap) or not limit:
        return
    problem = request.problem(request.chunks)
    if len(problem.chunks) * problem.topology.num_links * best.epochs > AUTO_SPARSITY * limit:
        return
    grid = request.time_grid(problem)
    assert grid is not None
    with suppress(MethodError):
        task = TurnedTask.of(problem, grid, method="milp")
        size = estimate_milp(task.inner, task.inner_grid, best.epochs - 1, task.splits)
        if size.columns <= limit:
            work = AUTO_WORK[request.effort]
            _Run(search=search, task=task, solver="cpsat", start=best, work=work).close()


@dataclass(slots=True, kw_only=True)
class _Run:
    """One problem with one back end.

    Parameters
    ----------
    work
        Deterministic work for each model, None for any.
    """

    search: Search
    task: TurnedTask
    solver: str
    start: Candidate | None = None
    work: float | None = None
    whole_ways: bool = False
    certificate: str | None = None

    def close(self) -> None:
        """Find the least number of epochs, then settle ties."""
        request, search = self.request, self.search
        closing = Closing(
            lower=max(1, self._bound_epochs()),
            upper=None if self.start is None else self.start.epochs,
            limit=request.horizon,
            gap=request.gap,
        )
        limit = request.horizon
        if limit is not None and closing.upper is not None and closing.upper > limit:
            closing.upper = None
        if request.method == "milp":
            self._meet_known(closing)
        for wanted in closing:
            self._checkpoint()
            horizon = wanted
            if closing.upper is None and closing.open_up_to >= closing.lower:
                horizon = self._coarse(closing, wanted)
            found = self._ask(horizon, self._seconds(closing))
            closing.note(horizon, found.answer, found.epochs)
            if found.answer is Answer.TOO_SHORT:
                self._prove(horizon)
            if found.answer is Answer.OPEN and closing.upper is None and limit is not None:
                break
        self._conclude(closing)
        search.report("milp", f"between {closing.lower} and {closing.upper} epochs")

    def maximise_sum(self) -> None:
        """Maximise the paper's sum within one horizon, and keep what is found on the way."""
        horizon = self.request.horizon
        if horizon is None and self.start is not None:
            horizon = self.start.epochs
        lower = max(1, self._bound_epochs())
        if horizon is None:
            closing = Closing(lower=lower)
            horizon = self._coarse(closing, lower)
        found = self._ask(horizon, self._left(), goal=MilpGoal.PAPER)
        while found.answer is Answer.TOO_SHORT and self.request.horizon is None:
            self._prove(horizon)
            horizon = max(horizon + 1, round(horizon * 1.25))
            found = self._ask(horizon, self._left(), goal=MilpGoal.PAPER)
        if found.answer is Answer.TOO_SHORT:
            self._refuse(horizon, max(lower, horizon + 1))

    def fall_back(self) -> None:
        """Offer what the run started from if it found nothing that lasts."""
        limit = self.request.horizon
        start = self.start
        if start is None or self.search.incumbents or start.epochs is None:
            return
        if limit is None or start.epochs <= limit:
            self.search.offer(start.schedule, epochs=start.epochs)

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self.search.request

    def _bound_epochs(self) -> int:
        bound = self.search.bound
        return 1 if bound is None or bound.epochs is None else bound.epochs

    def _meet_known(self, closing: Closing) -> None:
        """Where the start cannot be beaten, let the model find it, or one as long."""
        if closing.upper is not None and closing.is_closed:
            found = self._ask(closing.upper, self._seconds(closing))
            closing.note(closing.upper, found.answer, found.epochs)

    def _coarse(self, closing: Closing, horizon: int) -> int:
        """Choose a horizon by the paper's search, if that says more than the bound."""

        def is_feasible(grid: TimeGrid, epochs: int) -> bool:
            self._checkpoint()
            milp = build_milp(
                self.task.inner,
                grid,
                epochs,
                splits=self.task.splits,
                backwards=self.task.is_turned,
            )
            options = self._options(COARSE_SECONDS)
            options = replace(options, first_only=True)
            return solvers.solve(
                milp.model, self.solver, options, cancel=self.search.cancel
            ).has_values

        found = coarse_horizon(
            self.task.inner, self.task.inner_grid, lower=closing.lower, is_feasible=is_feasible
        )
        return max(horizon, found or 0)

    def _seconds(self, closing: Closing) -> float | None:
        """Seconds for the next model."""
        left = self._left()
        if left is not None or self.request.method != "milp":
            return left
        if closing.upper is None:
            first = closing.open_up_to < closing.lower and closing.limit is None
            return FIRST_SECONDS if first else None
        return max(BETTER_SECONDS, self.search.elapsed_s)

    def _left(self) -> float | None:
        """Seconds that the user's limit leaves, None for any number."""
        limit = self.request.time_limit_s
        return None if limit is None else max(0.1, limit - self.search.elapsed_s)

    def _options(
        self, seconds: float | None, start: npt.NDArray[np.float64] | None = None
    ) -> SolverOptions:
        return SolverOptions(
            time_limit=seconds,
            seed=self.request.seed,
            # Several workers meet in another order each time.
            threads=self.request.threads if self.work is None else 1,
            start=start,
            work=self.work,
        )

    def _ask(self, horizon: int, seconds: float | None, goal: MilpGoal = MilpGoal.NONE) -> Found:
        """Solve the model of one horizon and offer what it finds."""
        guided = goal is MilpGoal.NONE and self.solver in GUIDED
        milp = self._build(horizon, MilpGoal.PAPER if guided else goal)
        self.search.report("milp", f"{horizon} epochs, {milp.model.num_columns} columns")
        options = self._options(seconds, self._hint(milp))
        options = replace(options, gap=float(self.request.gap), first_only=goal is MilpGoal.NONE)
        solution = solvers.solve(
            milp.model,
            self.solver,
            options,
            on_progress=self._on_progress(milp, goal),
            cancel=self.search.cancel,
        )
        return self._read(milp, solution, seconds, goal)

    def _build(self, horizon: int, goal: MilpGoal) -> Milp:
        task = self.task
        # Where whoever wants something has it no epoch is needed, but a model has one at least.
        horizon = max(1, horizon)
        triples = len(task.inner.chunks) * task.inner.topology.num_links * horizon
        if triples > MAX_TRIPLES:
            raise MethodError(
                f"a model of {len(task.inner.chunks)} chunks, "
                f"{task.inner.topology.num_links} links and {horizon} epochs is too large; use "
                "--method construct or astar, fewer chunks or a longer epoch"
            )
        self._check_time(triples / TRIPLES_PER_SECOND)
        size = estimate_milp(task.inner, task.inner_grid, horizon, task.splits)
        self._check_time(size.columns / COLUMNS_PER_SECOND)
        # A chunk on a slow link has an entry in each epoch in which it holds it.
        held = np.minimum(task.inner_grid.kappa, horizon).mean()
        self._check_time(size.columns * float(held) / TRIPLES_PER_SECOND)
        if size.num_bytes * SOLVER_FACTOR > MEMORY_SHARE * free_memory():
            need = size.num_bytes * SOLVER_FACTOR / 2**30
            raise MethodError(
                f"a model of {size.columns} columns over {horizon} epochs needs about "
                f"{need:.0f} GiB, more than is free; use --method construct or astar, fewer "
                "chunks or a longer epoch"
            )
        return build_milp(
            task.inner,
            task.inner_grid,
            horizon,
            goal=goal,
            splits=task.splits,
            whole_ways=self.whole_ways,
            backwards=task.is_turned,
        )

    def _on_progress(self, milp: Milp, goal: MilpGoal) -> OnProgress:
        """Keep the schedules of better solutions, where there is something to be better at."""

        def note(progress: SolverProgress) -> None:
            if progress.values is not None and goal is not MilpGoal.NONE:
                with suppress(LoopError):
                    self._offer(milp, progress.values)
            else:
                self.search.report("milp")

        return note

    def _read(self, milp: Milp, solution: Solution, seconds: float | None, goal: MilpGoal) -> Found:
        self._stop_on(solution)
        if solution.status is SolverStatus.INFEASIBLE:
            return Found(answer=Answer.TOO_SHORT, solution=solution)
        if solution.values is None:
            return Found(answer=Answer.OPEN, solution=solution)
        try:
            schedule, epochs = self._offer(milp, solution.values)
        except LoopError:
            # Rare, and only where switches lead into each other: keep ways whole from now on.
            self.whole_ways = True
            return self._ask(milp.horizon, seconds, goal)
        if schedule is None:
            return Found(answer=Answer.OPEN, solution=solution)
        return Found(answer=Answer.ENOUGH, solution=solution, schedule=schedule, epochs=epochs)

    def _stop_on(self, solution: Solution) -> None:
        """End the search where the back end says that nothing more will come."""
        if solution.status is SolverStatus.UNAVAILABLE:
            raise MethodError(f"solver {self.solver}: {solution.message}")
        if solution.status is SolverStatus.ERROR and self.request.method == "milp":
            self.search.report("milp", solution.message)
            if not solution.has_values and self.start is None and not self.search.incumbents:
                raise SearchStoppedError(Status.FEASIBLE, f"solver failed: {solution.message}")

    def _offer(self, milp: Milp, values: npt.NDArray[np.float64]) -> tuple[Schedule | None, int]:
        passages, epochs = decode(milp, milp.chosen(values))
        schedule = realise(self.task, passages, epochs)
        if schedule is None:
            self.search.report("milp", "a grid schedule has no order in physical time")
            return None, epochs
        self.search.offer(schedule, epochs=epochs)
        return schedule, epochs

    def _hint(self, milp: Milp) -> npt.NDArray[np.float64] | None:
        """Values of the flows of the schedule to start from, other columns unknown."""
        if self.start is None or not self.request.warm_start or self.task.is_turned:
            return None
        from teccl.models.milp.hints import hint_values

        return hint_values(milp, self.start.schedule)

    def _prove(self, horizon: int) -> None:
        """Raise the bound: a horizon is too short."""
        bound = self.search.bound
        if bound is None or bound.epochs is None or bound.epochs > horizon:
            return
        self.certificate = self.certificate or bound.certificate
        name = {"highs": "HiGHS", "cpsat": "CP-SAT", "gurobi": "Gurobi"}[self.solver]
        self.search.bound = replace(
            bound,
            epochs=horizon + 1,
            certificate=f"{self.certificate}; on the grid {name} proves that {horizon} epochs "
            "are too few",
        )

    def _conclude(self, closing: Closing) -> None:
        """Settle ties, or say that a given horizon is too short."""
        search, request = self.search, self.request
        self._checkpoint()
        if closing.upper is None:
            limit = request.horizon
            if limit is not None and closing.lower > limit:
                self._refuse(limit, closing.lower)
            return
        if request.method == "auto":
            return
        several = len(request.demand.tenants) > 1
        if several:
            self._ask(closing.upper, self._seconds(closing), goal=MilpGoal.TENANTS)
        elif search.incumbents:
            self._settle(closing.upper)

    def _settle(self, horizon: int) -> None:
        """Let the paper's sum choose among schedules of one length, for a while."""
        milp = self._build(horizon, MilpGoal.PAPER)
        if milp.model.num_columns > TIE_COLUMNS:
            return
        left = self._left()
        seconds = TIE_SECONDS if left is None else min(left, TIE_SECONDS)
        known = self.search.incumbents.best
        options = self._options(seconds)
        if known is not None and not self.task.is_turned:
            from teccl.models.milp.hints import hint_values

            options = replace(options, start=hint_values(milp, known.schedule))
        options = replace(options, work=TIE_WORK, gap=float(self.request.gap))
        solution = solvers.solve(milp.model, self.solver, options, cancel=self.search.cancel)
        if solution.values is not None:
            with suppress(LoopError):
                self._offer(milp, solution.values)

    @staticmethod
    def _refuse(horizon: int, needed: int) -> None:
        raise SearchStoppedError(
            Status.INFEASIBLE,
            f"no schedule has {horizon} epochs; give --horizon {needed} or more, or auto",
        )

    def _check_time(self, seconds: float) -> None:
        """End where a model takes longer to build than the user's limit leaves."""
        left = self._left()
        if left is not None and seconds > left:
            raise SearchStoppedError(
                Status.TIME_LIMIT,
                f"the model takes about {seconds:.0f} s to build; give more time, a longer epoch "
                "or fewer chunks",
            )

    def _checkpoint(self) -> None:
        """End when cancelled or out of time, not because the start is good enough."""
        search = self.search
        if search.cancel is not None and search.cancel.is_cancelled:
            raise SearchStoppedError(Status.INTERRUPTED)
        limit = self.request.time_limit_s
        if limit is not None and search.elapsed_s >= limit:
            raise SearchStoppedError(Status.TIME_LIMIT)
