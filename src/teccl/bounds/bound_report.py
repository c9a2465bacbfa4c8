"""Report: every bound of a problem, for people and for `teccl bound`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from teccl.bounds.model import Bound
from teccl.bounds.summary import all_bounds
from teccl.problem import Problem
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS


class Scope(StrEnum):
    """What a bound holds for."""

    PHYSICAL = "physical"
    CHUNKS = "chunks"
    GRID = "grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReport:
    """Every bound of a problem, each scope's best first.

    Parameters
    ----------
    problem
        What is bounded.
    grid
        The epochs that bounds of scope ``grid`` count, None off the grid.
    bounds
        Bounds by scope: for any chunking, for the problem's whole chunks, and on the grid.
    finish_ps
        When a schedule of the problem ends that bounds are set beside, None without one.
    """

    problem: Problem
    grid: TimeGrid | None
    bounds: dict[Scope, tuple[Bound, ...]]
    finish_ps: int | None = None

    @property
    def physical_bound_s(self) -> float:
        """Seconds that no schedule can beat, into however many equal chunks the data is cut."""
        return self.bounds[Scope.PHYSICAL][0].value / PICOSECONDS

    @property
    def chunk_bound_s(self) -> float | None:
        """Seconds that no schedule with these whole chunks can beat, where it was asked for."""
        if Scope.CHUNKS not in self.bounds:
            return None
        # What holds for any chunking holds for these chunks too.
        return max(self.physical_bound_s, self.bounds[Scope.CHUNKS][0].value / PICOSECONDS)

    @property
    def bound_epochs(self) -> int | None:
        """Epochs that no schedule on the grid can beat, on a grid."""
        return self.bounds[Scope.GRID][0].value if self.grid is not None else None

    @property
    def epoch_s(self) -> float | None:
        """Duration of an epoch in seconds, on a grid."""
        return None if self.grid is None else float(self.grid.epoch)

    @property
    def grid_bound_s(self) -> float | None:
        """The bound in epochs as seconds, on a grid."""
        return None if self.grid is None else self.seconds(Scope.GRID, self.bounds[Scope.GRID][0])

    @property
    def winner(self) -> tuple[Scope, Bound]:
        """The bound that a schedule has to meet to be optimal, and its scope."""
        if self.grid is not None:
            return Scope.GRID, self.bounds[Scope.GRID][0]
        physical = self.bounds[Scope.PHYSICAL][0]
        whole = self.bounds.get(Scope.CHUNKS, (physical,))[0]
        if whole.value > physical.value:
            return Scope.CHUNKS, whole
        return Scope.PHYSICAL, physical

    @property
    def certificate(self) -> str:
        """A sentence that names what binds."""
        return self.winner[1].certificate

    def seconds(self, scope: Scope, bound: Bound) -> float:
        """Return the value of a bound in seconds."""
        if scope is not Scope.GRID:
            return bound.value / PICOSECONDS
        assert self.grid is not None
        return float(bound.value * self.grid.epoch)

    @property
    def finish_time_s(self) -> float | None:
        """Seconds that the schedule takes, where there is one."""
        return None if self.finish_ps is None else self.finish_ps / PICOSECONDS

    def gap(self, scope: Scope, bound: Bound) -> float | None:
        """Return what a bound leaves of the schedule's time, as a part of the bound.

        None without a schedule, and for epochs, in which no physical time is counted.
        """
        if self.finish_ps is None or scope is Scope.GRID or not bound.value:
            return None
        return self.finish_ps / bound.value - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it; keys without a value are left out."""
        figures = {
            "physical_bound_s": self.physical_bound_s,
            "chunk_bound_s": self.chunk_bound_s,
            "epoch_s": self.epoch_s,
            "bound_epochs": self.bound_epochs,
            "grid_bound_s": self.grid_bound_s,
            "finish_time_s": self.finish_time_s,
            "certificate": self.certificate,
        }
        return {
            **{key: value for key, value in figures.items() if value is not None},
            "bounds": [
                self._entry(scope, bound)
                for scope, bounds in self.bounds.items()
                for bound in bounds
            ],
        }

    def _entry(self, scope: Scope, bound: Bound) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "kind": bound.kind,
            "scope": scope.value,
            "value_s": self.seconds(scope, bound),
        }
        if scope is Scope.GRID:
            entry["epochs"] = bound.value
        gap = self.gap(scope, bound)
        if gap is not None:
            entry["gap"] = gap
        return {**entry, "certificate": bound.certificate}


def report(
    problem: Problem, grid: TimeGrid | None = None, given_chunks: bool = False
) -> BoundReport:
    """Evaluate every bound of a problem.

    Parameters
    ----------
    problem
        Its demand must be within reach; see `teccl.reachability.find_unreachable`.
    grid
        Also count epochs of this grid.
    given_chunks
        Off the grid, also bound schedules with just the problem's whole chunks.

    Examples
    --------
    >>> from teccl import Demand, Topology
    >>> demand = Demand.collective("allgather", size="1MB")
    >>> problem = Problem(topology=Topology.parse("ring:gpus=4"), demand=demand)
    >>> report(problem, given_chunks=True).chunk_bound_s
    1.1e-05
    """
    bounds = {Scope.PHYSICAL: tuple(all_bounds(problem))}
    if grid is not None:
        bounds[Scope.GRID] = tuple(all_bounds(problem, grid=grid))
    elif given_chunks:
        bounds[Scope.CHUNKS] = tuple(all_bounds(problem, fluid=False))
    return BoundReport(problem=problem, grid=grid, bounds=bounds)
