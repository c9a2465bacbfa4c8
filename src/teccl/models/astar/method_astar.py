"""Method astar: the general model cut into rounds in time, each solved for as much progress.

Every round hands on who has what and what is under way. The last round, which can deliver all that
is missing, is asked to do so in as few epochs as possible.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from teccl import solvers
from teccl.errors import MethodError, SolverError
from teccl.models.astar.astar_greedy import Flow, greedy_flows
from teccl.models.astar.astar_hints import Trip, greedy_trips, laid, start_values
from teccl.models.astar.astar_round import (
    AstarRound,
    AstarState,
    RoundOptions,
    build_round,
    look_ahead,
    window,
)
from teccl.models.milp.arcs import NEVER, Arcs, arcs_of
from teccl.models.milp.general import most_copies, ready_epochs
from teccl.models.milp.grid_passages import LoopError, decode
from teccl.models.milp.physical import realise
from teccl.models.turning import TurnedTask
from teccl.problem import Problem
from teccl.result import Status
from teccl.solvers import Solution, SolverOptions, SolverStatus
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.stop import SearchStoppedError
from teccl.timegrid import TimeGrid

IntArray = npt.NDArray[np.int64]

# Epochs of a round, as a multiple of the look-ahead.
ROUND_FACTOR = 2.0
SHORTEST_ROUND = 4
# Relative difference to the best possible progress at which a round is good enough.
ROUND_GAP = 0.02
# Seconds for one round.
ROUND_SECONDS = 20.0
# Seconds for each attempt to end the last round an epoch earlier.
FINAL_SECONDS = 10.0
# Rounds after which something is wrong with the progress that each must make.
MAX_ROUNDS = 10_000
# How often a window is doubled that is too short for what is left.
MAX_DOUBLINGS = 12
# Triples of chunk, link and epoch that are stated in a second at most: a round that takes longer
# than a time limit leaves is not begun.
TRIPLES_PER_SECOND = 1_000_000
# Entries of these, one for each epoch in which a chunk holds its link.
ENTRIES_PER_SECOND = 5_000_000
# Time limits after which nobody waits for what completes a schedule.
MOST_LIMITS = 1.5


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
    task = TurnedTask.of(problem, grid, method="astar")
    try:
        _carry_out(_Run(search=search, task=task))
    except LoopError:
        # Rare, and only where switches lead into each other: keep ways whole.
        _carry_out(_Run(search=search, task=task, whole_ways=True))
    search.checkpoint()


def _carry_out(run: "_Run") -> None:
    run.start()
    try:
        run.rounds()
    except (SearchStoppedError, KeyboardInterrupt):
        # What was found is worth keeping, whoever has to bring the rest.
        with suppress(LoopError, SolverError, SearchStoppedError):
            run.complete()
            run.offer()
        raise
    run.offer()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """What all flows together are about."""

    problem: Problem
    grid: TimeGrid
    arcs: Arcs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Completion:
    """A state in which all is done, and the trips that are left until then, if they are known."""

    state: AstarState
    plan: list[Trip]


@dataclass(slots=True, kw_only=True)
class _Run:
    """The rounds of one problem."""

    search: Search
    task: TurnedTask
    whole_ways: bool = False
    begin: int = 0
    state: AstarState = field(init=False)
    way: IntArray = field(init=False)
    ahead: int = 0
    # A complete schedule from the present state on, as trips; none where nothing is constructed.
    plan: list[Trip] = field(default_factory=list)

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
        self.state = AstarState(has_from=np.where(holds, ready, NEVER), wants=wants)
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
                self._move_on(length)
            self.begin += length
        raise SolverError("astar made no progress; use another --solver")

    def complete(self) -> None:
        """Bring what is left without a model: by construction, or along what arrives first."""
        if not self.state.is_done:
            self.state = self._completed(self.state, self.begin).state

    def offer(self) -> None:
        """Make a schedule of all flows, if they are all there."""
        if not self.state.flows or not self.state.is_done:
            return
        task = self.task
        stated = _Stated(problem=task.inner, grid=task.inner_grid, arcs=self._arcs(self._horizon))
        passages, epochs = decode(stated, self.state.flows)
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

    def _wide_arcs(self, horizon: int, state: AstarState | None = None) -> Arcs:
        """Arcs over so many epochs or more: as many as what was started, however late, needs."""
        flows = (self.state if state is None else state).flows
        return self._arcs(max(horizon, 1 + max((k for _, _, k in flows), default=0)))

    def _first_length(self) -> int:
        """Epochs of a round: enough that nothing arrives later than in the round after."""
        if self.request.horizon is not None:
            return self.request.horizon
        return max(SHORTEST_ROUND, math.ceil(self.ahead * ROUND_FACTOR))

    def _build(
        self, length: int, ahead: int, options: RoundOptions, begin: int | None = None
    ) -> AstarRound:
        begin = self.begin if begin is None else begin
        epochs = begin + length + ahead
        triples = len(self.inner.chunks) * self.inner.topology.num_links * epochs
        held = float(np.minimum(self.task.inner_grid.kappa, epochs).mean())
        self._check_time(triples / TRIPLES_PER_SECOND + triples * held / ENTRIES_PER_SECOND)
        arcs = self._wide_arcs(epochs)
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
        if self.request.warm_start and not self.plan:
            self.plan = self._construct(self.state, self.begin)
        known = self._planned(stated)
        solution = self._solve(stated, self._round_seconds(length), start=known, gap=self._gap)
        left = int(self.state.missing.sum())
        solved = None if solution.values is None else stated.chosen(solution.values)
        if known is None and solved is None:
            self.search.report("astar", f"round {number}: nothing found, {solution.status.value}")
            return
        after = self._better(stated, solved, known)
        self.search.report(
            "astar",
            f"round {number}: epochs {self.begin} to {self.begin + length}, "
            f"{left - int(after.missing.sum())} of {left} delivered, {solution.status.value}",
        )
        self.state = self._shortened(after) if after.is_done else after

    def _better(
        self, stated: AstarRound, solved: list[Flow] | None, known: list[Flow] | None
    ) -> AstarState:
        """The state after a solver's round, or after the planned one if that leads further.

        A round sees no further than its look-ahead. Where the rest can be constructed, the round
        whose completion ends first is taken, so that no round loses what was known before it.
        """
        end = stated.begin + stated.length
        options = [
            self.state.after(stated.arcs, flows, stated.begin)
            for flows in (solved, known)
            if flows is not None
        ]
        if known is None:
            return options[0]
        ends = [self._completed(state, end) for state in options]
        best = min(ends, key=lambda found: found.state.finish)
        self.plan = best.plan
        return options[ends.index(best)]

    def _planned(self, stated: AstarRound) -> list[Flow] | None:
        """Flows of a round to start from, None where none are wanted or known."""
        flows = laid(self.plan, stated.arcs, self.state, begin=stated.begin, length=stated.length)
        return flows or None

    def _construct(self, state: AstarState, begin: int) -> list[Trip]:
        """Trips for all that is missing, none where that cannot be constructed."""
        return greedy_trips(self.task, self._arcs(1), state, self.request.seed, begin=begin)

    def _completed(self, state: AstarState, begin: int) -> "_Completion":
        """The shortest way known to end a schedule from a state on."""
        if state.is_done:
            return _Completion(state=state, plan=[])
        plans = [plan for plan in (self.plan, self._construct(state, begin)) if plan]
        length = 2 * (self._least_epochs + self.ahead)
        for _ in range(MAX_DOUBLINGS):
            arcs = window(self._wide_arcs(begin + length, state), state.flows, begin, length)
            found = []
            for plan in plans:
                flows = laid(plan, arcs, state, begin=begin, length=length)
                found.append(_Completion(state=state.after(arcs, flows, begin), plan=plan))
            if not any(option.state.is_done for option in found):
                flows = greedy_flows(arcs, state, begin=begin, length=length, pause=self._pause)
                found.append(_Completion(state=state.after(arcs, flows, begin), plan=[]))
            done = [option for option in found if option.state.is_done]
            if done:
                return min(done, key=lambda option: option.state.finish)
            length *= 2
        raise SolverError("astar found no way on; use another --method")

    @property
    def _least_epochs(self) -> int:
        """Epochs that no schedule can beat, as far as is known."""
        bound = self.search.bound
        return 0 if bound is None or bound.epochs is None else bound.epochs

    def _shortened(self, best: AstarState) -> AstarState:
        """End the last round as early as can be shown within some time."""
        while True:
            horizon = best.finish - 1 - self.begin
            under_way = self.state.wants & (self.state.has_from < NEVER)
            least = int(self.state.has_from[under_way].max(initial=self._least_epochs))
            if horizon < 1 or best.finish <= least:
                return best
            stated = self._build(horizon, 0, RoundOptions(complete=True))
            solution = self._solve(
                stated,
                self._seconds(FINAL_SECONDS),
                start=self._planned(stated),
                first_only=True,
            )
            flows = [] if solution.values is None else stated.chosen(solution.values)
            earlier = self.state.after(stated.arcs, flows, self.begin)
            if not earlier.is_done:
                return best
            best = earlier
            self.search.report("astar", f"the last round ends in epoch {best.finish}")

    def _move_on(self, length: int) -> None:
        """Bring something closer although the solver did not: a round of what arrives first.

        Where a round is too short for any delivery, one is made with all the time it needs.
        """
        arcs = window(
            self._wide_arcs(self.begin + length + self.ahead),
            self.state.flows,
            self.begin,
            length + self.ahead,
        )
        flows = greedy_flows(arcs, self.state, begin=self.begin, length=length, pause=self._pause)
        for _ in range(MAX_DOUBLINGS):
            if flows:
                self.state = self.state.after(arcs, flows, self.begin)
                return
            length *= 2
            arcs = window(
                self._wide_arcs(self.begin + length), self.state.flows, self.begin, length
            )
            flows = greedy_flows(
                arcs,
                self.state,
                begin=self.begin,
                length=length,
                pause=self._pause,
                first_only=True,
            )
        raise SolverError("astar found no way on; use another --method")

    @property
    def _gap(self) -> float:
        return max(float(self.request.gap), ROUND_GAP)

    def _pause(self) -> None:
        """End what is not solved but still takes long."""
        limit = self.request.time_limit_s
        if limit is not None and self.search.elapsed_s > MOST_LIMITS * limit:
            raise SearchStoppedError(Status.TIME_LIMIT)

    def _check_time(self, seconds: float) -> None:
        """End where a round takes longer to state than the user's limit leaves."""
        limit = self.request.time_limit_s
        if limit is not None and seconds > limit - self.search.elapsed_s:
            raise SearchStoppedError(Status.TIME_LIMIT)

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
        stated: AstarRound,
        seconds: float | None,
        *,
        start: list[Flow] | None = None,
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
