"""Options of `solve`: obeyed by the methods that know them, refused by all others."""

from typing import Any

import pytest

import teccl
from teccl.errors import InputError, MethodError, ProblemError, ScheduleError, TopologyError
from teccl.synthesis import METHODS
from teccl.synthesis.request import GRID_METHODS, OBEYED_BY, share_out

# A value beside the default for each option of the table.
GIVEN: dict[str, Any] = {
    "effort": "thorough",
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


@pytest.mark.parametrize("option", [{"switch": "no-copy"}, {"transit": "cut-through"}])
def test_the_behaviour_of_switches_is_refused_where_there_are_none(option: dict[str, str]) -> None:
    """Neither a schedule nor a bound would change."""
    for ask in (teccl.solve, teccl.bound):
        with pytest.raises(ProblemError, match=f"no switch; drop --{next(iter(option))}"):
            ask("ring:gpus=4", "allgather", size="1MB", **option)


@pytest.mark.parametrize("name", ["gap", "chunk_tolerance"])
def test_a_part_that_was_meant_as_a_percentage_is_refused(name: str) -> None:
    """The message has what was meant; percentages say so themselves."""
    for value in ("5", 5, 5.0):
        with pytest.raises(InputError, match=rf"did you mean {value}%\?"):
            teccl.solve("ring:gpus=4", "allgather", size="1MB", **{name: value})
    with pytest.raises(InputError, match=f"{name.replace('_', ' ')} -1% is negative"):
        teccl.solve("ring:gpus=4", "allgather", size="1MB", **{name: "-1%"})
    plenty = {"effort": "quick", name: "500%"}
    assert teccl.solve("ring:gpus=4", "allgather", size="1MB", **plenty).verified


def test_a_study_refuses_what_none_of_its_methods_obeys() -> None:
    """What some of them obey goes to those."""
    shares = share_out(["auto", "ring"], {"effort": "quick", "seed": 1})
    assert shares == {"auto": {"effort": "quick", "seed": 1}, "ring": {"seed": 1}}
    with pytest.raises(MethodError, match="--effort; drop it or add auto"):
        share_out(["ring"], {"effort": "quick"})


@pytest.mark.parametrize(
    ("option", "remedy"),
    [({"buffer": "lots"}, "none or unlimited"), ({"time_limit": "5"}, "for example 10s or 2min")],
)
def test_values_without_a_meaning_are_refused_with_one_that_has(
    option: dict[str, str], remedy: str
) -> None:
    """The remedy fits the option."""
    with pytest.raises(InputError, match=remedy):
        teccl.solve("ring:gpus=4", "allgather", size="1MB", **option)


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
