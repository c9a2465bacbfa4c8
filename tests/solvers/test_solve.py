"""Every back end: known answers, statuses, limits, starts, progress and seeds."""

import numpy as np
import pytest
from tests.solvers.programs import contradiction, diet, knapsack, market_split

from teccl.errors import SolverError
from teccl.linear_model import RowBlock, stack
from teccl.progress import CancelToken
from teccl.solvers import BACKENDS, LinearMethod, SolverOptions, SolverStatus, solve

BOTH = pytest.mark.parametrize("name", ["highs", "cpsat"])


@BOTH
def test_integer_optimum(name):
    """The best knapsack is worth nine, and proven."""
    solution = solve(knapsack(), name)
    assert solution.status is SolverStatus.OPTIMAL
    assert solution.objective == -9
    assert solution.bound == pytest.approx(-9)
    assert solution.values.tolist() == [1, 1, 0]


@pytest.mark.parametrize("method", [m for m in LinearMethod if m is not LinearMethod.HIPO])
def test_linear_optimum_by_every_algorithm(method):
    """Simplex, interior point and first-order methods agree on a linear program."""
    solution = solve(diet(), options=SolverOptions(method=method))
    assert solution.status is SolverStatus.OPTIMAL
    assert solution.objective == pytest.approx(8.5, abs=1e-3)


def test_hipo_solves_or_says_what_is_missing():
    """HiPO is an extra of HiGHS: with it the answer is right, without it the remedy is named."""
    solution = solve(diet(), options=SolverOptions(method=LinearMethod.HIPO))
    if solution.status is SolverStatus.UNAVAILABLE:
        assert "highspy-extras" in solution.message
    else:
        assert solution.objective == pytest.approx(8.5, abs=1e-3)


@BOTH
def test_infeasible_is_a_status(name):
    """A contradiction yields a status and no values."""
    solution = solve(contradiction(), name)
    assert solution.status is SolverStatus.INFEASIBLE
    assert not solution.has_values


@BOTH
def test_bounds_that_contradict_themselves_need_no_solver(name):
    """A column whose lower bound is above its upper one is infeasible."""
    row = RowBlock.sums(np.array([[0]]), lower=0.0, upper=1.0)
    model = stack([row], cost=np.ones(1), lower=2, upper=1, integer=True)
    assert solve(model, name).status is SolverStatus.INFEASIBLE


def test_unbounded_is_a_status():
    """A cost that falls for ever is unbounded."""
    row = RowBlock.sums(np.array([[0]]), lower=0.0, upper=np.inf)
    model = stack([row], cost=-np.ones(1), lower=0, upper=np.inf, integer=False)
    assert solve(model).status is SolverStatus.UNBOUNDED


@BOTH
def test_time_limit_keeps_the_best(name):
    """A limit ends the work with the best solution, a bound below it and news on the way."""
    news = []
    solution = solve(market_split(), name, SolverOptions(time_limit=1.0), on_progress=news.append)
    assert solution.status is SolverStatus.TIME_LIMIT
    assert solution.has_values
    assert solution.bound <= solution.objective
    assert any(progress.values is not None for progress in news)
    best = min(p.objective for p in news if p.values is not None)
    assert solution.objective == pytest.approx(best)


@BOTH
def test_gap_ends_early(name):
    """With a wide gap the first good solution is enough."""
    solution = solve(knapsack(), name, SolverOptions(gap=0.9))
    assert solution.status in (SolverStatus.OPTIMAL, SolverStatus.FEASIBLE)
    assert solution.objective <= -4


@BOTH
def test_first_only(name):
    """Asked for any solution, the back end stops at one."""
    solution = solve(market_split(), name, SolverOptions(first_only=True, time_limit=60))
    assert solution.status in (SolverStatus.FEASIBLE, SolverStatus.OPTIMAL)
    assert solution.has_values


@BOTH
def test_work_is_the_same_everywhere(name):
    """A limit on deterministic work gives the same result twice."""
    options = SolverOptions(work=0.02, time_limit=60, threads=1)
    first, second = (solve(market_split(), name, options) for _ in range(2))
    assert first.objective == second.objective
    assert (first.values is None) == (second.values is None)
    assert first.values is None or (first.values == second.values).all()


@BOTH
def test_start_is_used(name):
    """A start that is a solution is never lost."""
    rng = np.random.default_rng(1)
    model = market_split()
    best = solve(model, name, SolverOptions(time_limit=0.5, seed=int(rng.integers(100))))
    again = solve(model, name, SolverOptions(time_limit=0.3, start=best.values))
    assert again.objective <= best.objective


def test_start_of_another_size_is_refused():
    """A start for another model is a mistake of the caller."""
    with pytest.raises(SolverError, match="does not fit 3 columns"):
        solve(knapsack(), options=SolverOptions(start=np.zeros(2)))


@BOTH
def test_cancelled_before_it_begins(name):
    """A token that is cancelled already ends the work soon."""
    token = CancelToken()
    token.cancel()
    solution = solve(market_split(), name, cancel=token)
    assert solution.status is SolverStatus.INTERRUPTED
    assert solution.seconds < 8


@BOTH
def test_exception_of_the_listener_ends_the_work(name):
    """What a listener raises is passed on, and no process stays behind."""

    class EnoughError(Exception):
        pass

    def listen(progress):
        raise EnoughError

    with pytest.raises(EnoughError):
        solve(market_split(), name, on_progress=listen)


def test_cpsat_takes_whole_numbers_only():
    """Continuous columns and fractions are refused with the remedy."""
    assert "use highs" in solve(diet(), "cpsat").message
    row = RowBlock.of(1, [(0, 0, 0.5)], lower=0.0, upper=1.0)
    model = stack([row], cost=np.ones(1), lower=0, upper=1, integer=True)
    solution = solve(model, "cpsat")
    assert solution.status is SolverStatus.ERROR
    assert "whole coefficients" in solution.message


def test_whole_columns_of_fractional_rows():
    """HiGHS takes them: four portions of whole foods cost ten."""
    solution = solve(diet(integer=True))
    assert solution.objective == 10


def test_unknown_back_end():
    """A name that is no back end is a mistake of the caller."""
    with pytest.raises(SolverError, match=", ".join(BACKENDS)):
        solve(knapsack(), "cplex")


def test_gurobi_solves_or_says_what_is_missing():
    """Gurobi is an extra: with it the answer is right, without it the remedy is named."""
    solution = solve(knapsack(), "gurobi")
    if solution.status is SolverStatus.UNAVAILABLE:
        assert "--solver highs" in solution.message
    else:
        assert solution.objective == -9
