"""Sums as multicasts on the reversed network: solve those, then turn the schedule round.

A sum for one destination is an in-tree, and backwards a multicast from that destination. Time may
run backwards where rates stay the same, nothing is ready late and relays may keep what they like.
A switch that combines arrivals is, backwards, one that copies; one that does not, does not.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.construct.reversal import can_reverse, transposed_problem
from teccl.errors import MethodError
from teccl.problem import Problem, SwitchMode, Transit
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times
from teccl.timegrid import TimeGrid

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a model is stated for: the problem itself, or the multicast behind its sums.

    Parameters
    ----------
    problem, grid
        What is asked for.
    inner, inner_grid
        What the model is stated for.
    splits
        Which nodes copy as switches in it, None for what the inner problem says.
    """

    problem: Problem
    grid: TimeGrid
    inner: Problem
    inner_grid: TimeGrid
    splits: BoolArray | None = None

    @staticmethod
    def of(problem: Problem, grid: TimeGrid, *, method: str) -> "Task":
        """Find the multicast to solve.

        Raises
        ------
        MethodError
            If a sum cannot be turned round.
        """
        table = problem.chunks
        if not table.reduce.any():
            return Task(problem=problem, grid=grid, inner=problem, inner_grid=grid)
        title = problem.demand.title
        several = any(len(table.destinations(m)) > 1 for m in np.flatnonzero(table.reduce).tolist())
        if several or not table.reduce.all():
            what = "sums that several want" if several else "sums beside copies"
            raise MethodError(f"method {method} takes no {what} ({title}); use --method auto")
        if not can_reverse(problem) or problem.buffer is not None or not problem.copy:
            raise MethodError(
                f"method {method} makes {title} backwards in time, which profiles, ready times, "
                "buffer limits and --no-copy forbid; drop them or use --method auto"
            )
        inner = transposed_problem(problem)
        reduces = np.array([node.reduce for node in problem.topology.nodes], dtype=bool)
        hyper = problem.switch is SwitchMode.HYPER_EDGE
        return Task(
            problem=problem,
            grid=grid,
            inner=inner,
            inner_grid=TimeGrid(problem=inner, epoch=grid.epoch),
            splits=None if hyper or not reduces.any() else reduces,
        )

    @property
    def is_turned(self) -> bool:
        """Whether the model runs backwards."""
        return self.inner is not self.problem

    def outer_schedule(self, schedule: Schedule, epochs: int) -> Schedule:
        """Return the schedule of the problem itself from that of the inner one."""
        if not self.is_turned:
            return schedule
        sends = schedule.sends.copy()
        times = send_times(schedule)
        # All sends end by the last arrival, so backwards none begins before zero.
        sends["start_ps"] = times.arrival_ps.max(initial=0) - times.arrival_ps
        sends["epoch"] = epochs - _usable(schedule, self.inner_grid)
        sends["reduce"] = True
        if self.problem.switch is SwitchMode.HYPER_EDGE:
            _start_together(schedule, sends)
        return Schedule(problem=self.problem, sends=sends, grid=self.grid, method=schedule.method)


def _usable(schedule: Schedule, grid: TimeGrid) -> IntArray:
    """Epoch from which what each send carries is at its far end."""
    sends, problem = schedule.sends, schedule.problem
    held = grid.kappa[sends["link"]]
    has_switches = problem.topology.num_switches > 0
    hyper = problem.switch is SwitchMode.HYPER_EDGE
    if has_switches and (hyper or problem.transit is Transit.CUT_THROUGH):
        longest = np.zeros(int(sends["transfer"].max(initial=0)) + 1, dtype=np.int64)
        np.maximum.at(longest, sends["transfer"], held)
        held = longest[sends["transfer"]]
    late = grid.delta[sends["link"]]
    if has_switches and hyper:
        late = _late_of_way(schedule, grid)
    return sends["epoch"].astype(np.int64) + held + late


def _late_of_way(schedule: Schedule, grid: TimeGrid) -> IntArray:
    """Epochs of latency of each send's whole way, which a hyper-edge rounds once."""
    sends, links = schedule.sends, schedule.problem.topology.links
    total: dict[int, Fraction] = {}
    for transfer, link in zip(sends["transfer"].tolist(), sends["link"].tolist(), strict=True):
        total[transfer] = total.get(transfer, Fraction(0)) + links[link].alpha
    late = {t: grid.epochs_of_latency(alpha) for t, alpha in total.items()}
    return np.array([late[t] for t in sends["transfer"].tolist()], dtype=np.int64)


def _start_together(schedule: Schedule, sends: npt.NDArray[np.void]) -> None:
    """Let all hops of a hyper-edge start when its last one does, as its rules want."""
    transfer = schedule.sends["transfer"]
    first = np.full(int(transfer.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, transfer, sends["start_ps"])
    sends["start_ps"] = first[transfer]
