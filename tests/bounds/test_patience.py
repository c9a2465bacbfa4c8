"""A time limit ends the search for bounds, and leaves those that were found."""

import sys
from math import inf

import numpy as np
import pytest
import scipy.optimize
from scipy.sparse import csr_array

import teccl
from teccl.bounds import patience, summary
from teccl.bounds.linear_programs import least_cost
from teccl.bounds.summary import all_bounds, summarise
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Topology

PROBLEM = Problem(
    topology=Topology.parse("torus:dims=3x3"), demand=Demand.collective("alltoall", size="1MB")
)


def test_bounds_end_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The family that is looked at then is the last, and its bounds hold like all others."""
    called = []

    def watched(name, family):
        return lambda evidence: called.append((name, evidence.narrow)) or family(evidence)

    for name, family in summary.FAMILIES.items():
        monkeypatch.setitem(summary.FAMILIES, name, watched(name, family))
    whole = all_bounds(PROBLEM)[0]
    assert [name for name, _ in called] == list(summary.FAMILIES)
    called.clear()
    left = iter([1.0, 1.0, 1.0])
    with patience.limited_to(lambda: next(left, 0.0)):
        first = all_bounds(PROBLEM)[0]
    assert 1 <= len(called) < len(summary.FAMILIES)
    assert 0 < first.value <= whole.value
    called.clear()
    with patience.limited_to(lambda: 0.0):
        all_bounds(PROBLEM)
    assert called == [("pair", False)]


def test_solvers_have_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear programs of bounds do not outlast the limit; without one they have none."""
    given = []
    solve = scipy.optimize.linprog
    monkeypatch.setattr(
        scipy.optimize,
        "linprog",
        lambda *words, **options: given.append(options["options"]) or solve(*words, **options),
    )
    monkeypatch.delitem(sys.modules, "highspy", raising=False)
    program = (np.ones(1), csr_array([[1.0]]), np.ones(1), np.ones(1), np.full(1, 2.0))
    found = least_cost(*program)
    assert found is not None
    assert found.values == [1.0]
    with patience.limited_to(lambda: 7.0):
        least_cost(*program)
    with patience.limited_to(lambda: -1.0):
        least_cost(*program)
    assert [options["time_limit"] for options in given] == [inf, 7.0, 0.01]


def test_a_search_that_is_over_keeps_the_bound_it_has() -> None:
    """Looking for more finds less where there is no time; the first bound stays."""
    quick = summarise(PROBLEM, narrow=False)
    result = teccl.solve("torus:dims=3x3", "alltoall", size="1MB", time_limit="1us")
    assert result.bound is not None
    assert quick.physical_ps <= result.bound.physical_ps <= summarise(PROBLEM).physical_ps
