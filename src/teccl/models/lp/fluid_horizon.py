"""Horizons of the linear program: the least that is long enough, and the proof that none is."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from teccl.errors import MethodError, SolverError
from teccl.keywords import SwitchMode
from teccl.models.lp.fluid import FluidModel, most_slots
from teccl.models.lp.fluid_network import FluidNetwork
from teccl.models.lp.fluid_proof import refutes
from teccl.problem import Problem
from teccl.progress import CancelToken
from teccl.solvers import LinearMethod, Solution, SolverOptions, SolverStatus, solve
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS

# Seconds that a solver has at least, to say how far it came.
LEAST_TIME_S = 0.1
# Chunks that may be missing for a solution to count as complete: a solver's rounding.
COMPLETE = 1e-6
# Columns beyond which longer slots are tried before slots of one epoch.
FINE_COLUMNS = 30_000
# Columns of the largest program that is built.
MAX_COLUMNS = 20_000_000
# Columns, possible or not, that are gone through in a second at most: a program that takes longer
# than a time limit leaves is not begun.
COLUMNS_PER_SECOND = 3_000_000
# Columns beyond which a first-order method takes the place of the simplex method.
SIMPLEX_COLUMNS = 400_000
# A horizon that is short by a fraction of the demand is lengthened at most by this factor at once.
MOST_GROWTH = 4

Remaining = Callable[[], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One horizon, solved: complete, or too short with or without proof."""

    horizon: int
    model: FluidModel
    solution: Solution
    missing: float

    @property
    def is_complete(self) -> bool:
        """Whether all demand is met."""
        return self.missing <= COMPLETE * max(1.0, float(self.model.network.demand.sum()))

    @property
    def is_refuted(self) -> bool:
        """Whether the horizon is proven too short."""
        duals = self.solution.duals
        if self.is_complete or duals is None:
            return False
        return refutes(self.model.network, self.model.prices(duals))


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidAnswer:
    """What the search over horizons found.

    Parameters
    ----------
    trial
        The shortest complete one, None if it was stopped before or none is within the limit.
    bound
        Horizons below this are proven too short.
    certificate
        What proves it, None for the bound that was known before.
    status
        How the last solve ended: optimal, or why the search stopped.
    """

    trial: Trial | None
    bound: int
    certificate: str | None
    status: SolverStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """How to solve each program."""

    solver: str = "highs"
    method: LinearMethod = LinearMethod.AUTO
    threads: int | None = None
    seed: int = 0
    remaining: Remaining = lambda: None
    cancel: CancelToken | None = None
    news: Callable[[str], None] = lambda _: None

    def attempt(self, network: FluidNetwork, horizon: int, *, coarse: bool) -> Trial:
        """Solve the program of one horizon."""
        columns = _most_columns(network, horizon, coarse=coarse)
        if columns > MAX_COLUMNS:
            raise MethodError(
                f"the linear program would have about {columns} columns; use longer epochs "
                "(--epoch slowest or --epoch-multiplier 4), or --method auto"
            )
        model = FluidModel.build(network, horizon, coarse=coarse)
        solution = self.solve(model)
        missing = math.inf if solution.values is None else model.missing(solution.values)
        what = "all arrives" if missing <= COMPLETE else f"{missing:.4g} chunks are left"
        columns = model.program.num_columns
        self.news(f"{horizon} epochs, {columns} columns: {solution.status.value}, {what}")
        return Trial(horizon=horizon, model=model, solution=solution, missing=missing)

    def is_too_late(self, network: FluidNetwork, horizon: int, *, coarse: bool) -> bool:
        """Whether building a program takes longer than there is time."""
        left = self.remaining()
        columns = _most_columns(network, horizon, coarse=coarse)
        return left is not None and min(columns, MAX_COLUMNS) > left * COLUMNS_PER_SECOND

    def solve(self, model: FluidModel) -> Solution:
        """Solve a program with the algorithm that suits its size."""
        method = self.method
        if method is LinearMethod.AUTO:
            is_large = model.program.num_columns > SIMPLEX_COLUMNS
            method = LinearMethod.PDLP if is_large else LinearMethod.SIMPLEX
        left = self.remaining()
        options = SolverOptions(
            time_limit=None if left is None else max(LEAST_TIME_S, left),
            seed=self.seed,
            threads=self.threads,
            method=method if self.solver == "highs" else LinearMethod.AUTO,
        )
        solution = solve(model.program, self.solver, options, cancel=self.cancel)
        if solution.status in (SolverStatus.ERROR, SolverStatus.UNAVAILABLE):
            raise SolverError(f"the linear program was not solved: {solution.message}")
        return solution


def least_horizon(
    network: FluidNetwork,
    *,
    low: int,
    high: int | None = None,
    gap: Fraction = Fraction(0),
    solving: Solving,
) -> FluidAnswer:
    """Find the least horizon within which all demand can be met.

    Horizons are tried from the bound upwards, by bisection once one is long enough. Long ones
    are solved with longer slots first; what these leave open, slots of one epoch decide.

    Parameters
    ----------
    low
        Proven: nothing shorter is possible.
    high
        Longest horizon to try, None for any.
    gap
        Fraction by which the horizon may exceed what is proven in the end.
    """
    low = max(low, network.least_horizon, 1)
    search = _Bisection(network=network, solving=solving, bound=low, high=high, gap=gap)
    if high is not None and low > high:
        stopped: SolverStatus | None = SolverStatus.INFEASIBLE
    else:
        coarse = _num_columns(network, low) > FINE_COLUMNS and network.shift is not None
        stopped = search.run(low, coarse=coarse)
        if coarse and stopped in (None, SolverStatus.INFEASIBLE):
            stopped = search.refine()
    return FluidAnswer(
        trial=search.best,
        bound=search.bound,
        certificate=search.certificate,
        status=stopped or SolverStatus.OPTIMAL,
    )


@dataclass(slots=True, kw_only=True)
class _Bisection:
    """State of the search over horizons."""

    network: FluidNetwork
    solving: Solving
    bound: int
    high: int | None
    gap: Fraction
    best: Trial | None = None
    certificate: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether what was found is as near to what is proven as was asked for."""
        return self.best is not None and self.best.horizon <= self.bound * (1 + self.gap)

    def run(self, low: int, *, coarse: bool) -> SolverStatus | None:
        """Close in from both sides; return why it stopped early, None if it did not."""
        guess = low
        while self.best is None or (low < self.best.horizon and not self.is_good):
            if self.solving.is_too_late(self.network, guess, coarse=coarse):
                return SolverStatus.TIME_LIMIT
            trial = self.solving.attempt(self.network, guess, coarse=coarse)
            if trial.solution.status is not SolverStatus.OPTIMAL:
                return trial.solution.status
            self._learn(trial)
            if not trial.is_complete:
                low = max(guess + 1, self.bound)
                if self.high is not None and low > self.high:
                    return SolverStatus.INFEASIBLE
            guess = low if self.best is not None else self._longer(trial, low)
            if self.best is not None and self.best.horizon - low > 2:
                guess = (low + self.best.horizon) // 2
        return None

    def refine(self) -> SolverStatus | None:
        """Try one epoch less with slots of one epoch until that is too short."""
        while not self.is_good:
            wanted = self.high if self.best is None else self.best.horizon - 1
            assert wanted is not None
            if self.solving.is_too_late(self.network, wanted, coarse=False):
                return SolverStatus.TIME_LIMIT
            trial = self.solving.attempt(self.network, wanted, coarse=False)
            if trial.solution.status is not SolverStatus.OPTIMAL:
                return trial.solution.status
            self._learn(trial)
            if not trial.is_complete:
                return SolverStatus.INFEASIBLE if self.best is None else None
        return None

    def _learn(self, trial: Trial) -> None:
        if trial.is_complete:
            self.best = trial
        elif trial.horizon >= self.bound and trial.is_refuted:
            self.bound = trial.horizon + 1
            self.certificate = (
                f"{trial.horizon} epochs are too short: prices of links and epochs, checked in "
                "exact arithmetic"
            )

    def _longer(self, trial: Trial, low: int) -> int:
        """Guess a horizon from how much was left: as if what arrives grew with time."""
        total = float(self.network.demand.sum())
        share = max(1 - trial.missing / total, 1 / MOST_GROWTH)
        guess = max(low, math.ceil(trial.horizon / share - 1e-9))
        return guess if self.high is None else min(guess, self.high)


def _num_columns(network: FluidNetwork, horizon: int) -> int:
    return len(network.demand) * (len(network) + network.num_nodes) * horizon


def _most_columns(network: FluidNetwork, horizon: int, *, coarse: bool) -> int:
    """Return how many columns a program has about, before it is built."""
    slots = horizon if not coarse else min(horizon, most_slots(network, horizon))
    return _num_columns(network, slots)


def fluid_bound(problem: Problem, grid: TimeGrid) -> tuple[int, str]:
    """Epochs that no rates can beat, from cuts and ways, and the sentence that says so.

    Rates on the grid are a fluid schedule on the network whose latencies are the grid's, so that
    whatever holds for any chunking there holds here.
    """
    from teccl.bounds.summary import MOST_CUTS, all_bounds

    topology = problem.topology
    if topology.has_profiles or topology.shared:
        # On the grid a link may carry more than it could: rates count from the start of an epoch,
        # and a slow transfer does not keep others from a capacity that it shares.
        return 0, ""
    hyper = problem.switch is SwitchMode.HYPER_EDGE
    links = []
    for link, delta in zip(topology.links, grid.delta.tolist(), strict=True):
        summed = hyper and (topology.is_switch[link.src] or topology.is_switch[link.dst])
        links.append(replace(link, alpha=Fraction(0) if summed else grid.epoch * delta))
    rounded = replace(problem, topology=replace(topology, links=tuple(links)))
    bounds = all_bounds(rounded, most_cuts=MOST_CUTS)
    epochs = [math.ceil(Fraction(bound.value, PICOSECONDS) / grid.epoch) for bound in bounds]
    best = [bound for bound, count in zip(bounds, epochs, strict=True) if count == epochs[0]]
    # Of several that give as many epochs, a cut or a way is easier to see than prices.
    shown = next((bound for bound in best if bound.kind != "lengths"), best[0])
    return epochs[0], shown.certificate


def paper_rates(network: FluidNetwork, horizon: int, solving: Solving) -> tuple[Trial, int] | None:
    """Solve the paper's one-shot objective at a horizon; returns the trial and its last epoch."""
    model = FluidModel.build(network, horizon, paper=True)
    solution = solving.solve(model)
    if solution.values is None:
        return None
    trial = Trial(horizon=horizon, model=model, solution=solution, missing=0.0)
    return trial, model.last_read(solution.values, COMPLETE)
