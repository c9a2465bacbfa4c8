"""Method milp and auto through `solve`: limits, proofs, starts, and solvers that fail."""

import os
from itertools import product

import pytest
from tests.models.asking import chunks, network
from tests.sampling import thinned
from tests.solvers.test_process import children

import teccl
from teccl.errors import MethodError
from teccl.models.milp import exact
from teccl.progress import CancelToken
from teccl.result import Status
from teccl.solvers import Solution, SolverStatus

BOTH = pytest.mark.parametrize("solver", ["highs", "cpsat"])


def gather(chunks: int = 1, topology: str = "dgx1", **options) -> teccl.Result:
    """An AllGather with chunks of 25 KB."""
    options = {"method": "milp", **options}
    return teccl.solve(topology, "allgather", size=f"{200 * chunks}KB", chunks=chunks, **options)


@pytest.mark.parametrize(
    ("solver", "warm_start"), thinned(product(["highs", "cpsat"], [True, False]), 3)
)
def test_fewest_epochs_are_proven(solver, warm_start):
    """Two chunks take nine epochs; that eight are too few is the model's own proof."""
    result = gather(2, solver=solver, warm_start=warm_start)
    assert (result.status, result.method) == (Status.OPTIMAL, "milp")
    assert (result.epochs, result.bound.epochs) == (9, 9)
    assert "8 epochs are too few" in result.bound.certificate
    assert result.verified


@pytest.mark.parametrize("objective", ["finish", "paper"])
def test_long_horizon_does_not_make_long_schedules(objective):
    """With room for five epochs the answer is still two."""
    options = {"epoch": "slowest", "horizon": 5, "objective": objective}
    result = gather(topology="dgx1:alpha=0", **options)
    assert result.epochs == 2


def test_horizon_that_is_too_short():
    """Then there is no schedule, and the message says how many epochs are needed."""
    result = gather(horizon=3)
    assert result.status is Status.INFEASIBLE
    assert result.schedule is None
    assert "--horizon 7" in result.message


def test_gap_accepts_a_longer_schedule():
    """Within the gap the search ends, and says that it proved nothing better."""
    result = gather(3, gap=0.5)
    assert result.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert result.epochs <= 15


def test_same_seed_same_schedule():
    """Two runs write the same sends."""
    first, second = (gather(2, solver="cpsat", seed=3) for _ in range(2))
    assert (first.schedule.sends == second.schedule.sends).all()


@pytest.mark.parametrize(
    ("collective", "size"),
    [("reducescatter", "200KB"), ("reduce", "25KB"), ("gather", "200KB"), ("scatter", "200KB")],
)
def test_other_collectives(collective, size):
    """Sums for one destination and plain moves are served; the bound is met."""
    result = teccl.solve("dgx1", collective, size=size, method="milp", solver="cpsat")
    assert (result.status, result.method, result.verified) == (Status.OPTIMAL, "milp", True)


def test_auto_closes_a_gap_on_the_grid():
    """Where the construction misses the bound, CP-SAT proves it or finds better."""
    result = gather(2, method="auto", grid=True)
    assert result.status is Status.OPTIMAL
    assert result.epochs == 9


def test_auto_leaves_large_models_alone(monkeypatch):
    """What is too large is not even stated."""
    asked = []
    monkeypatch.setattr(exact, "estimate_milp", lambda *a, **k: asked.append(a))
    monkeypatch.setattr(exact, "AUTO_SPARSITY", 0)
    assert gather(2, method="auto", grid=True).verified
    assert not asked


def test_model_that_does_not_fit_is_refused(monkeypatch):
    """Memory is estimated before the model is built, and the remedy is named."""
    monkeypatch.setattr(exact, "free_memory", lambda: 1e5)
    with pytest.raises(MethodError, match="more than is free; use --method construct"):
        gather()


@pytest.mark.parametrize("warm_start", [True, False])
def test_solver_that_fails(monkeypatch, warm_start):
    """A back end that breaks down costs the proof, never the schedule's correctness."""

    def fail(*_arguments, **_options):
        return Solution(status=SolverStatus.ERROR, message="the process of highs ended")

    monkeypatch.setattr(exact.solvers, "solve", fail)
    result = gather(2, warm_start=warm_start)
    if warm_start:
        assert (result.method, result.verified) == ("construct", True)
        assert result.status is Status.FEASIBLE
    else:
        assert result.schedule is None
        assert "ended" in result.message


def test_missing_solver_names_the_remedy(monkeypatch):
    """A back end that is not installed is bad usage."""

    def miss(*_arguments, **_options):
        return Solution(status=SolverStatus.UNAVAILABLE, message="gurobi is not installed")

    monkeypatch.setattr(exact.solvers, "solve", miss)
    with pytest.raises(MethodError, match="gurobi is not installed"):
        gather(solver="gurobi")


@BOTH
def test_cancelled_search_keeps_the_best(solver):
    """A search that would go on is stopped while the model runs; nothing stays behind."""
    token = CancelToken()
    before = children(os.getpid())

    def listen(progress):
        if progress.phase == "milp":
            token.cancel()

    result = teccl.solve(
        "dgx1",
        "allgather",
        size="200MB",
        chunks=4,
        buffer=0,
        method="milp",
        solver=solver,
        progress=listen,
        cancel=token,
    )
    assert result.status is Status.INTERRUPTED
    assert result.verified
    assert children(os.getpid()) <= before


@pytest.mark.parametrize(
    ("options", "epochs"), [({"buffer": "none"}, 2), ({"copy": False}, 3), ({"chunks": 1}, 2)]
)
def test_options_reach_the_model(options, epochs):
    """Buffers and copies change the model that is solved."""
    arguments = {"chunks": 1, **options}
    result = teccl.solve(
        "dgx1:alpha=0",
        "allgather",
        size="200KB",
        method="milp",
        solver="cpsat",
        epoch="slowest",
        **arguments,
    )
    assert result.epochs == epochs
    assert result.verified


@pytest.mark.parametrize("options", [{}, {"warm_start": False}, {"objective": "paper"}])
def test_what_is_where_it_is_wanted_takes_no_epoch(options):
    """A chunk whose only destination is its source needs no send, across switches too."""
    topology = network([(0, 2), (2, 0), (2, 3), (3, 2), (3, 1), (1, 3)], switches=(2, 3))
    result = teccl.solve(topology, demand=chunks(([0], [0])), method="milp", **options)
    assert (result.num_sends, result.epochs, result.verified) == (0, 0, True)


def test_circuits_whose_slowest_branch_leads_nowhere_are_not_used():
    """Through three switches in a row, where all that goes the slow way is in vain."""
    both = [(4, 6, 1), (1, 3, 1), (3, 5, "1/3"), (5, 2, 4), (0, 6, 1), (4, 5, "1/3")]
    topology = network(
        [way for a, b, rate in both for way in ((a, b, rate), (b, a, rate))], switches=(4, 5, 6)
    )
    demand = chunks(([2], [1]))
    result = teccl.solve(topology, demand=demand, method="milp", transit="cut-through")
    assert (result.num_sends, result.status) == (3, Status.OPTIMAL)


def test_a_model_that_takes_longer_to_build_than_the_limit_is_not_begun():
    """Hundreds of thousands of epochs are no matter of a second; the start is handed out."""
    result = gather(2, epoch="20ps", time_limit="1s")
    assert (result.status, result.method) == (Status.TIME_LIMIT, "construct")


def test_exact_models_want_a_number_of_chunks():
    """A schedule with other chunks is no start for a model, and its epochs are no bound."""
    with pytest.raises(MethodError, match="--chunks N"):
        teccl.solve("dgx1", "allgather", size="1MB", method="milp", chunks="auto")
