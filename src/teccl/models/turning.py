"""Sums as multicasts on the reversed network, which models are stated for in their place.

A sum for one destination is an in-tree, and backwards a multicast from that destination. Time may
run backwards where rates stay the same, nothing is ready late and relays may keep what they like.
A switch that combines arrivals is, backwards, one that copies; one that does not, does not.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.construct.reversal import can_reverse, transposed_problem
from teccl.errors import MethodError
from teccl.keywords import SwitchMode
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedTask:
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
    def of(problem: Problem, grid: TimeGrid, *, method: str) -> "TurnedTask":
        """Find the multicast to solve.

        Raises
        ------
        MethodError
            If a sum cannot be turned round.
        """
        table = problem.chunks
        if not table.reduce.any():
            return TurnedTask(problem=problem, grid=grid, inner=problem, inner_grid=grid)
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
        return TurnedTask(
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
