"""How near bounds and constructions come to the optimum of given chunks, on small problems.

The optimum is that of the independent 0-1 program, where it is found in time.
"""

from fractions import Fraction
from statistics import fmean

import pytest
from tests.bounds.clock import Clock
from tests.bounds.instances import UNIT, random_problem
from tests.bounds.oracle import Oracle, OutOfTimeError

from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.result import Result
from teccl.synthesis import solve

# Problems of which most must be solved, and seconds for each horizon.
SEEDS = range(7000, 7200)
SECONDS = 10.0
# Steps beyond the bound after which a problem is given up.
MOST_STEPS = 12


def solved(problem: Problem) -> Result | None:
    """Solve a problem with its chunks and options; None where nothing serves these."""
    try:
        return solve(
            problem.topology,
            demand=problem.demand,
            chunks=problem.num_chunks,
            switch=str(problem.switch),
            transit=str(problem.transit),
            copy=problem.copy,
            threads=1,
        )
    except MethodError:
        return None


def optimum_s(problem: Problem, bound_s: float) -> Fraction | None:
    """The least finish of whole chunks, in seconds; None if it was not found in time."""
    first = int(Fraction(bound_s).limit_denominator(10**12) / UNIT)
    try:
        for horizon in range(max(1, first), first + MOST_STEPS):
            oracle = Oracle(Clock(problem, UNIT, exact=True), seconds=SECONDS)
            if oracle.starts(horizon) is not None:
                return horizon * UNIT
    except OutOfTimeError:
        pass
    return None


def compared(seed: int) -> tuple[float, float, float] | None:
    """Physical bound, bound for the chunks and finish, each over the optimum less one."""
    problem = random_problem(seed)
    result = solved(problem)
    if result is None or result.chunk_bound_s is None or result.finish_time_s is None:
        return None
    best = optimum_s(problem, result.chunk_bound_s)
    if best is None:
        return None
    found = (result.physical_bound_s or 0.0, result.chunk_bound_s, result.finish_time_s)
    low, chunk, finish = (value / float(best) - 1 for value in found)
    return low, chunk, finish


@pytest.mark.slow
def test_bounds_and_schedules_are_near_the_optimum():
    """No bound is above the optimum, on average chunks' are 4 % below it, schedules 2 % above."""
    found = [each for each in map(compared, SEEDS) if each is not None]
    assert len(found) >= len(SEEDS) * 3 / 4
    physical, chunk, finish = (list(column) for column in zip(*found, strict=True))
    assert max(physical) <= 1e-9
    assert max(chunk) <= 1e-9
    assert min(finish) >= -1e-9
    assert fmean(chunk) >= -0.04
    assert fmean(finish) <= 0.02
