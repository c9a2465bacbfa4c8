"""Method astar: the general model cut into rounds in time, each solved for as much progress.

Every round hands on who has what and what is under way. The last round, which can deliver all that
is missing, is asked to do so in as few epochs as possible.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from teccl import solvers
from teccl.errors import MethodError, SolverError
from teccl.models.arcs import NEVER, Arcs, arcs_of
from teccl.models.astar_hints import greedy_trips, laid, start_values
from teccl.models.astar_round import Round, RoundOptions, State, build_round, look_ahead
from teccl.models.milp import Milp, most_copies, ready_epochs
from teccl.models.passages import LoopError, decode
from teccl.models.physical import realise
from teccl.models.turning import Task
from teccl.problem import Problem
from teccl.request import Request
from teccl.result import Status
from teccl.search import Search, SearchStoppedError
from teccl.solvers import Solution, SolverOptions, SolverStatus

IntArray = npt.NDArray[np.int64]

# Epochs of a round, as a multiple of the look-ahead.
ROUND_FACTOR = 2.0
SHORTEST_ROUND = 4
# Relative difference to the best possible progress at which a round is good enough.
ROUND_GAP = 0.02
# Seconds for one round, and deterministic work where a back end counts it.
ROUND_SECONDS = 60.0
# Seconds for each attempt to end the last round an epoch earlier.
FINAL_SECONDS = 20.0
# Rounds after which something is wrong with the progress that each must make.
MAX_ROUNDS = 10_000


def solve_astar(search: Search) -> None:
    """Carry out method astar."""
    request = search.request
    problem = request.problem(request.chunks or 1)
    grid = request.time_grid(problem)
    assert grid is not None
    if problem.buffer is not None or not problem.copy:
        raise MethodError(
            "method astar copies and keeps what it likes; drop --buffer and --no-copy, "
            "or use --method milp"
        )
    task = Task.of(problem, grid, method="astar")
    try:
        _carry_out(_Run(search=search, task=task))
    except LoopError:
        # Rare, and only where switches lead into each other: keep ways whole.
        _carry_out(_Run(search=search, task=task, whole_ways=True))
    search.checkpoint()


def _carry_out(run: "_Run") -> None:
    run.start()
    run.rounds()
    run.offer()


@dataclass(slots=True, kw_only=True)
class _Run:
    """The rounds of one problem."""

    search: Search
    task: Task
    whole_ways: bool = False
    begin: int = 0
    state: State = field(init=False)
    way: IntArray = field(init=False)
    ahead: int = 0
    last: Round | None = None

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self.search.request

    @property
    def inner(self) -> Problem:
        """What the models are stated for."""
        return self.task.inner

    def start(self) -> None:
        """Set up the state before the first round."""
        table, nodes = self.inner.chunks, self.inner.topology.num_nodes
        has = np.zeros((len(table.sets), nodes), dtype=bool)
        for number, members in enumerate(table.sets):
            has[number, members] = True
        ready = ready_epochs(self.inner, self.task.inner_grid)[table.tenant]
        holds = has[table.source_set]
        wants = has[table.destination_set] & ~holds
        self.state = State(has_from=np.where(holds, ready, NEVER), wants=wants)
        arcs = self._arcs(1)
        self.way = arcs.distances()
        self.ahead = look_ahead(arcs)

    def rounds(self) -> None:
        """Solve round after round until all demand is met or under way."""
        length = self._first_length()
        for number in range(MAX_ROUNDS):
            if self.state.is_done:
                return
            self._checkpoint()
            before = self.state.progress(self.way)
            self._solve_round(number, length)
            waits = self.state.has_from[self.state.has_from < NEVER].max() >= self.begin + length
            if self.state.progress(self.way) >= before and not waits:
                # Nothing came closer: one chunk alone, with all the time it needs, always does.
                self._solve_one_chunk()
            self.begin += length
        raise SolverError("astar made no progress; use another --solver")

    def offer(self) -> None:
        """Make a schedule of all flows."""
        assert self.last is not None or not self.state.flows
        if self.last is None:
            return
        arcs = self._arcs(self._horizon)
        milp = Milp(
            problem=self.inner,
            grid=self.task.inner_grid,
            horizon=self._horizon,
            arcs=arcs,
            flows=self.last.flows,
            model=self.last.model,
        )
        passages, epochs = decode(milp, self.state.flows)
        schedule = realise(self.task, passages, epochs)
        if schedule is None:
            raise SearchStoppedError(
                Status.FEASIBLE, "the rounds' order does not fit physical time; try another --seed"
            )
        self.search.offer(replace(schedule, method="astar"), epochs=epochs)

    @property
    def _horizon(self) -> int:
        """Epochs that hold everything that was started."""
        return 1 + max((k for _, _, k in self.state.flows), default=0)

    def _arcs(self, horizon: int) -> Arcs:
        task = self.task
        return arcs_of(
            task.inner,
            task.inner_grid,
            horizon,
            task.splits,
            whole_ways=self.whole_ways,
            backwards=task.is_turned,
        )

    def _first_length(self) -> int:
        """Epochs of a round: enough that nothing arrives later than in the round after."""
        if self.request.horizon is not None:
            return self.request.horizon
        return max(SHORTEST_ROUND, math.ceil(self.ahead * ROUND_FACTOR))

    def _build(
        self, length: int, ahead: int, options: RoundOptions, begin: int | None = None
    ) -> Round:
        begin = self.begin if begin is None else begin
        arcs = self._arcs(begin + length + ahead)
        return build_round(
            arcs,
            self.state,
            self.way,
            begin=begin,
            length=length,
            ahead=ahead,
            upper=most_copies(self.inner, self.task.inner_grid, arcs),
            options=options,
        )

    def _solve_round(self, number: int, length: int) -> None:
        """Make as much progress as a round can, and end with it if that is all."""
        stated = self._build(length, self.ahead, RoundOptions())
        known = self._greedy(stated)
        solution = self._solve(stated, self._round_seconds(length), start=known, gap=self._gap)
        left = int(self.state.missing.sum())
        flows = known if solution.values is None else stated.chosen(solution.values)
        if flows is None:
            return
        after = self._advanced(stated, flows)
        self.search.report(
            "astar",
            f"round {number}: epochs {self.begin} to {self.begin + length}, "
            f"{left - int(after.missing.sum())} of {left} delivered, {solution.status.value}",
        )
        if after.is_done:
            after = self._shortened(after)
        self.state, self.last = after, stated

    def _greedy(self, stated: Round) -> list[tuple[int, int, int]] | None:
        """Flows of a round to start from, None where none are wanted or known."""
        if not self.request.warm_start:
            return None
        trips = greedy_trips(self.task, stated.arcs, self.state, self.request.seed)
        flows = laid(trips, stated.arcs, self.state, begin=stated.begin, length=stated.length)
        return flows or None

    @property
    def _least_epochs(self) -> int:
        """Epochs that no schedule can beat, as far as is known."""
        bound = self.search.bound
        return 0 if bound is None or bound.epochs is None else bound.epochs

    def _advanced(self, stated: Round, flows: list[tuple[int, int, int]]) -> State:
        """The state after some flows."""
        has_from = self.state.has_from.copy()
        arcs = stated.arcs
        for m, a, k in flows:
            node = int(arcs.end[a])
            if node >= 0 and not arcs.is_switch[node]:
                arrival = k + int(arcs.delay[a, k - stated.begin])
                has_from[m, node] = min(has_from[m, node], arrival)
        return State(has_from=has_from, wants=self.state.wants, flows=self.state.flows + flows)

    def _shortened(self, best: State) -> State:
        """End the last round as early as can be shown within some time."""
        while True:
            horizon = best.finish - 1 - self.begin
            under_way = self.state.wants & (self.state.has_from < NEVER)
            least = int(self.state.has_from[under_way].max(initial=self._least_epochs))
            if horizon < 1 or best.finish <= least:
                return best
            stated = self._build(horizon, 0, RoundOptions(complete=True))
            known = self._greedy(stated)
            solution = self._solve(
                stated, self._seconds(FINAL_SECONDS), start=known, first_only=True
            )
            if solution.values is None:
                return best
            best = self._advanced(stated, stated.chosen(solution.values))
            self.search.report("astar", f"the last round ends in epoch {best.finish}")

    def _solve_one_chunk(self) -> None:
        """Bring one chunk to one who wants it, however long that takes."""
        chunk = int(np.flatnonzero(self.state.missing.any(axis=1))[0])
        options = RoundOptions(chunks=np.array([chunk]))
        longest = int(self.way[self.way < NEVER].max(initial=1)) + self.ahead
        while True:
            stated = self._build(longest, self.ahead, options)
            solution = self._solve(stated, None)
            if solution.values is None:
                raise SolverError(f"astar found no way on: {solution.message or solution.status}")
            after = self._advanced(stated, stated.chosen(solution.values))
            if after.progress(self.way) < self.state.progress(self.way):
                self.state, self.last = after, stated
                return
            longest *= 2

    @property
    def _gap(self) -> float:
        return max(float(self.request.gap), ROUND_GAP)

    def _round_seconds(self, length: int) -> float:
        """Seconds for the next round: a fair share of what a time limit leaves."""
        limit = self.request.time_limit_s
        if limit is None:
            return ROUND_SECONDS
        rounds = 2 + max(0, self._least_epochs - self.begin) // length
        return max(0.1, min(ROUND_SECONDS, (limit - self.search.elapsed_s) / rounds))

    def _seconds(self, most: float) -> float:
        limit = self.request.time_limit_s
        if limit is None:
            return most
        return max(0.1, min(most, limit - self.search.elapsed_s))

    def _solve(
        self,
        stated: Round,
        seconds: float | None,
        *,
        start: list[tuple[int, int, int]] | None = None,
        gap: float = 0.0,
        first_only: bool = False,
    ) -> Solution:
        options = SolverOptions(
            start=None if start is None else start_values(stated, start),
            time_limit=seconds,
            gap=gap,
            seed=self.request.seed,
            threads=self.request.threads,
            first_only=first_only,
        )
        solution = solvers.solve(
            stated.model, self.request.solver.value, options, cancel=self.search.cancel
        )
        if solution.status is SolverStatus.UNAVAILABLE:
            raise MethodError(f"solver {self.request.solver.value}: {solution.message}")
        if solution.status is SolverStatus.INTERRUPTED:
            raise SearchStoppedError(Status.INTERRUPTED)
        return solution

    def _checkpoint(self) -> None:
        """End when cancelled or out of time."""
        search = self.search
        if search.cancel is not None and search.cancel.is_cancelled:
            raise SearchStoppedError(Status.INTERRUPTED)
        limit = self.request.time_limit_s
        if limit is not None and search.elapsed_s >= limit:
            raise SearchStoppedError(Status.TIME_LIMIT)
