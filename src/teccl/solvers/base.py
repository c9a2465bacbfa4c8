"""What back ends have in common: options, statuses, progress and solutions.

========================  ===================================================================
status                    meaning
========================  ===================================================================
optimal                   the solution is the best, proven within the gap that was asked for
feasible                  a solution without that proof, ended by itself or at the first one
infeasible, unbounded     proven
time_limit, interrupted   stopped; `Solution.values` has the best found, if any
unavailable               the back end is not installed or has no licence
error                     it crashed, was killed, ran out of memory or returned nonsense
========================  ===================================================================
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# How far a value of an integer column may lie from a whole number, in any back end.
INTEGER_TOLERANCE = 1e-5
# By how much an integral solution may break a row; coefficients are small whole numbers.
ROW_TOLERANCE = 1e-5
# By how much a continuous solution may break a row of unit size: first-order methods stop early.
LOOSE_ROW_TOLERANCE = 1e-3


class SolverStatus(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    UNAVAILABLE = "unavailable"
    ERROR = "error"


class LinearMethod(StrEnum):
    """Algorithms for linear programs; `AUTO` lets the back end choose."""

    AUTO = "auto"
    SIMPLEX = "simplex"
    IPM = "ipm"
    PDLP = "pdlp"
    HIPO = "hipo"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions:
    """How to solve.

    Parameters
    ----------
    time_limit
        Seconds, None for none.
    gap
        Relative difference of objective and bound that is good enough.
    seed, threads
        Of the back end's own choices; None threads is the back end's reproducible default.
    start
        Values of all columns to start from (NaN: unknown), None for none.
    method
        Algorithm for linear programs (and for the root of an integer one).
    crossover
        Whether interior-point and first-order methods end in a vertex.
    first_only
        Stop at the first solution.
    work
        Deterministic work, about a second each, after which to stop; None for any. Unlike a time
        limit it ends a run at the same place everywhere.
    memory
        Bytes of address space the back end may use, None for any.
    """

    time_limit: float | None = None
    gap: float = 0.0
    seed: int = 0
    threads: int | None = None
    start: FloatArray | None = field(default=None, repr=False)
    method: LinearMethod = LinearMethod.AUTO
    crossover: bool = False
    first_only: bool = False
    work: float | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverProgress:
    """News of a running solve; `values` come with each better solution only."""

    objective: float | None
    bound: float | None
    seconds: float
    values: FloatArray | None = field(default=None, repr=False)


OnProgress = Callable[[SolverProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """How a solve ended and what it found.

    Parameters
    ----------
    status, message
        How it ended; the message is for people, empty if there is nothing to add.
    objective, values
        The best solution, None if there is none. Integer columns hold whole numbers.
    bound
        No solution is below this; -inf if nothing was proven.
    seconds
        Wall time, the start of the back end included.
    duals
        Price of each row of a linear program, where the back end gives them: by how much the
        objective changes with the row's side. They carry the back end's rounding.
    """

    status: SolverStatus
    objective: float | None = None
    bound: float = -np.inf
    values: FloatArray | None = field(default=None, repr=False)
    duals: FloatArray | None = field(default=None, repr=False)
    seconds: float = 0.0
    message: str = ""

    @property
    def has_values(self) -> bool:
        """Whether there is a solution."""
        return self.values is not None
