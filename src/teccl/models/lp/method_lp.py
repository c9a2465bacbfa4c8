"""Method lp: the least horizon of the linear program, and a schedule of its rates."""

import math
from dataclasses import replace

from teccl.errors import MethodError
from teccl.keywords import Objective, Solver
from teccl.models.lp.fluid_horizon import (
    FluidAnswer,
    Solving,
    Trial,
    fluid_bound,
    least_horizon,
    paper_rates,
)
from teccl.models.lp.fluid_network import fluid_network
from teccl.models.lp.lp_schedule import schedule_journeys, slowest_transmission_ps
from teccl.models.lp.peeling import journeys, peel
from teccl.result import Status
from teccl.solvers import SolverStatus
from teccl.synthesis.search import Search
from teccl.synthesis.stop import SearchStoppedError
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS

# Numbers of equal parts into which chunks are split, in the order in which they are tried.
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Sends of the largest schedule that is tried; the first split is tried whatever its size.
MAX_SENDS = 200_000
# A finish this near to that of the rates needs no finer split.
NEAR = 1e-4

_STOPPED = {
    SolverStatus.TIME_LIMIT: Status.TIME_LIMIT,
    SolverStatus.INTERRUPTED: Status.INTERRUPTED,
}


def solve_lp(search: Search) -> None:
    """Carry out method lp.

    The search's bound becomes that of the rates, and its schedules are split so that they end no
    later than the rates do, up to the time of one sub-chunk.
    """
    request = search.request
    if request.solver is Solver.CPSAT:
        raise MethodError("solver cpsat takes whole numbers only; use --solver highs with lp")
    problem = request.problem(request.chunks or 1)
    if problem.buffer is not None and problem.topology.has_profiles:
        raise MethodError(
            "method lp serves no buffer limit together with bandwidth profiles; "
            "use --method milp or drop --buffer"
        )
    grid = request.time_grid(problem)
    assert grid is not None
    network = fluid_network(problem, grid)
    low, certificate = fluid_bound(problem, grid)
    _state_bound(search, max(low, network.least_horizon), certificate or None)
    solving = _solving(search)
    if request.objective is Objective.PAPER and request.horizon is not None:
        found = paper_rates(network, request.horizon, solving)
        if found is None:
            raise _too_short(request.horizon)
        _offer_splits(search, grid, found[0], epochs=found[1])
        return
    answer = least_horizon(network, low=low, high=request.horizon, gap=request.gap, solving=solving)
    _state_bound(search, answer.bound, answer.certificate)
    _finish(search, grid, answer, solving)


def _finish(search: Search, grid: TimeGrid, answer: FluidAnswer, solving: Solving) -> None:
    """Make schedules of what was found, and say why it is not more."""
    trial = answer.trial
    if trial is None:
        if answer.status is SolverStatus.INFEASIBLE and search.request.horizon is not None:
            raise _too_short(search.request.horizon)
        raise SearchStoppedError(_STOPPED.get(answer.status, Status.FEASIBLE))
    if search.request.objective is Objective.PAPER:
        better = paper_rates(trial.model.network, trial.horizon, solving)
        trial = trial if better is None else better[0]
    _offer_splits(search, grid, trial, epochs=trial.horizon)
    if answer.status in _STOPPED:
        raise SearchStoppedError(_STOPPED[answer.status])


def _solving(search: Search) -> Solving:
    request = search.request

    def remaining() -> float | None:
        limit = request.time_limit_s
        return None if limit is None else limit - search.elapsed_s

    return Solving(
        solver=request.solver.value,
        threads=request.threads,
        seed=request.seed,
        remaining=remaining,
        cancel=search.cancel,
        news=lambda message: search.report("lp", message),
    )


def _state_bound(search: Search, epochs: int, certificate: str | None) -> None:
    """Let the search's bound speak of rates, which may beat whole chunks."""
    assert search.bound is not None
    text = certificate or search.bound.certificate
    search.bound = replace(search.bound, epochs=epochs, certificate=text)


def _too_short(horizon: int) -> SearchStoppedError:
    return SearchStoppedError(
        Status.INFEASIBLE,
        f"no rates end within {horizon} epochs; give --horizon {horizon + 1} or more, or auto",
    )


def _offer_splits(search: Search, grid: TimeGrid, trial: Trial, *, epochs: int) -> None:
    """Split chunks into more and more parts until a schedule ends as early as the rates."""
    values = trial.solution.values
    assert values is not None
    network = trial.model.network
    parcels = peel(network, trial.model.rates(values))
    target_ps = math.ceil(grid.epoch * epochs * PICOSECONDS)
    for parts in PARTS:
        split = journeys(network, parcels, parts)
        schedule = schedule_journeys(split, target_ps=target_ps)
        finish_ps = search.offer(schedule, epochs=epochs, grid=grid)
        if not len(schedule):
            return
        late = finish_ps - target_ps
        search.report(
            "lp",
            f"{parts} parts end {late / PICOSECONDS:.4g} s after the rates, "
            f"{late / slowest_transmission_ps(schedule):.3g} of a part on the slowest link",
        )
        if late <= NEAR * target_ps or len(schedule) * 2 > MAX_SENDS:
            return
        search.checkpoint()
