"""Options of `solve`: obeyed by the methods that know them, refused by all others."""

from typing import Any

import pytest

import teccl
from teccl.errors import MethodError, ProblemError, ScheduleError, TopologyError
from teccl.synthesis import METHODS
from teccl.synthesis.request import GRID_METHODS, OBEYED_BY

# A value beside the default for each option of the table.
GIVEN: dict[str, Any] = {
    "horizon": 9,
    "objective": "paper",
    "warm_start": False,
    "solver": "cpsat",
    "threads": 2,
    "from_schedule": None,
    "any_order": True,
}


@pytest.fixture(scope="module")
def start() -> teccl.Schedule:
    """A schedule to start from."""
    found = teccl.solve("ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1).schedule
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("method", "option"),
    [
        (method, name)
        for name, obey in OBEYED_BY.items()
        for method in METHODS
        if method not in obey
    ],
)
def test_what_a_method_would_ignore_is_refused(
    method: str, option: str, start: teccl.Schedule
) -> None:
    """The message names the option and the methods that obey it."""
    options = {option: GIVEN[option] if option != "from_schedule" else start}
    options |= {"grid": True} if option == "objective" and method in ("auto", "construct") else {}
    with pytest.raises((MethodError, ProblemError)) as refusal:
        teccl.solve("ring:gpus=4", "allgather", size="1MB", chunks=1, method=method, **options)
    if method in GRID_METHODS or "has no use" in str(refusal.value):
        assert any(name in str(refusal.value) for name in OBEYED_BY[option])


def test_most_chunks_and_a_number_of_chunks_contradict_each_other() -> None:
    """A limit to what auto tries means nothing where nothing is tried."""
    with pytest.raises(ProblemError, match="--chunks auto"):
        teccl.solve("ring:gpus=4", "allgather", size="1MB", chunks=4, max_chunks=2)
    with pytest.raises(ProblemError, match="--chunks auto"):
        teccl.solve("ring:gpus=4", "allgather", size="1MB", grid=True, max_chunks=2)


def test_most_chunks_are_kept_to() -> None:
    """No more chunks than that are tried."""
    result = teccl.solve("ring:gpus=4", "allgather", size="1MB", max_chunks=2, effort="quick")
    assert max(attempt.num_chunks for attempt in result.tried) == 2


def test_links_are_not_made_faster_by_degrading() -> None:
    """More than all of a link is no degradation."""
    with pytest.raises(TopologyError, match="150%"):
        teccl.solve("ring:gpus=4", "allgather", size="1MB", degrade="0:1=150%")


def test_a_start_for_other_nodes_is_refused(start: teccl.Schedule) -> None:
    """Its fabric and this one are named."""
    with pytest.raises(ScheduleError, match="4 GPUs"):
        teccl.solve("ring:gpus=5", "allgather", size="1MB", from_schedule=start)


def test_a_start_that_is_of_no_use_is_said_in_the_result(start: teccl.Schedule) -> None:
    """Whoever gave it hears why it was not taken."""
    options: dict[str, Any] = {"degrade": "gpu0:gpu1=10%", "chunks": 1, "effort": "quick"}
    result = teccl.solve("ring:gpus=4", "allgather", size="1MB", from_schedule=start, **options)
    assert result.message is not None
    assert "started anew: its order takes link gpu0 > gpu1" in result.message


@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_models_are_solved_by_the_solver_that_was_asked_for(solver: str) -> None:
    """What is proven names the back end."""
    asked: dict[str, Any] = {"method": "milp", "solver": solver, "chunks": 2}
    result = teccl.solve("dgx1", "allgather", size="400KB", **asked)
    names = {"highs": "HiGHS", "cpsat": "CP-SAT"}
    assert names[solver] in str(result.certificate)


def test_numbers_of_chunks_beyond_machine_integers_are_refused() -> None:
    """The message says how many they would be."""
    demand = teccl.Demand.collective("allgather", size=5)
    with pytest.raises(ProblemError, match=f"4{'0' * 30} chunks are more than teccl handles"):
        teccl.Problem(
            topology=teccl.Topology.parse("ring:gpus=4"), demand=demand, num_chunks=10**30
        )
