"""Schedules given to simulators: what is run, what is read, what is said about the difference."""

import json

import pytest
from tests.cli.helpers import assert_refused, run
from tests.formats.schedules import solved
from tests.simulators.stand_ins import install
from tests.verification.partial import one_shot

from teccl.errors import SimulationFailed, SimulatorError
from teccl.simulators import Outcome, Validation, validate
from teccl.topology import Topology


@pytest.fixture
def loggopsim(tmp_path):
    """LogGOPSim's stand-in with its converter beside it."""
    install(tmp_path, "txt2bin", "txt2bin")
    return install(tmp_path, "LogGOPSim", "loggopsim")


@pytest.fixture
def astrasim(tmp_path):
    """ASTRA-sim's stand-in."""
    return install(tmp_path, "AstraSim", "astrasim")


def test_loggopsim_agrees(loggopsim):
    """Files and parameters are such that the finish is the replay's."""
    found = validate(solved("ring:gpus=4", "allreduce"), simulator="loggopsim", program=loggopsim)
    assert (found.difference_ps, found.agrees) == (0, True)


@pytest.mark.parametrize("topology", ["ring:gpus=4", "star:gpus=4", "torus:dims=3x3"])
def test_astrasim_agrees(topology, astrasim):
    """The network that is described, a cycle of a picosecond and parts of bytes give the same."""
    schedule = solved(topology, "allreduce", "1KB")
    found = validate(schedule, simulator="astrasim", program=astrasim)
    assert found.agrees
    assert abs(found.difference_ps) <= 1


def test_astrasim_cannot_build_mixed_links(astrasim):
    """A network of its analytical back end has equal links."""
    with pytest.raises(SimulationFailed, match="cannot build dgx1"):
        validate(solved("dgx1", "allgather", chunks=2), simulator="astrasim", program=astrasim)


def test_the_command_prints_both(tmp_path, loggopsim):
    """A table for people, an object for programs."""
    solved("ring:gpus=4", "allgather").save(tmp_path / "s.json")
    arguments = ("validate", tmp_path / "s.json", "--with", "loggopsim", "--program", loggopsim)
    outcome = run(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert "0 ps, 0.0000 %" in outcome.out
    document = json.loads(run(*arguments, "--json").out)
    assert document["agrees"] is True
    assert document["simulate_s"] == document["simulator_s"]


def test_other_models_are_said_and_not_judged(tmp_path, loggopsim):
    """Where one L cannot be two latencies, the command says so and does not fail."""
    solved("ndv2:chassis=2", "allgather", chunks=1).save(tmp_path / "s.json")
    outcome = run("validate", tmp_path / "s.json", "--with", "loggopsim", "--program", loggopsim)
    assert (outcome.code, outcome.err) == (0, "")
    assert "the models differ" in outcome.out
    assert "differs: the simulator has one L" in outcome.out


def test_a_difference_that_nothing_explains_fails(tmp_path):
    """Exit code 3: either the schedule's time or the file is wrong."""
    install(tmp_path, "txt2bin", "txt2bin")
    program = install(tmp_path, "LogGOPSim", "late")
    solved("ring:gpus=4", "allgather").save(tmp_path / "s.json")
    outcome = run("validate", tmp_path / "s.json", "--with", "loggopsim", "--program", program)
    assert_refused(outcome, (3,))


def test_rounding_is_allowed_for():
    """A difference within the allowance agrees, one beyond does not."""

    def comparison(finish, differences=()):
        outcome = Outcome(
            finish_ps=finish, allowance_ps=5, differences=differences, notes=(), command=()
        )
        return Validation(simulator="astrasim", replay_ps=100, outcome=outcome)

    assert comparison(105).agrees is True
    assert comparison(106).agrees is False
    assert comparison(94).agrees is False
    assert comparison(900, ("something",)).agrees is None
    assert comparison(110).relative == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("function", "words"), [("silent", "printed 0 finishing"), ("broken", "code 7: cannot read")]
)
def test_failures_are_named(function, words, tmp_path):
    """A program that is none, and one that fails."""
    program = install(tmp_path, "AstraSim", function)
    with pytest.raises(SimulationFailed, match=words):
        validate(solved("ring:gpus=4", "allgather"), simulator="astrasim", program=program)


def test_a_simulator_that_does_not_end_is_stopped(tmp_path):
    """After the time limit."""
    program = install(tmp_path, "AstraSim", "endless")
    with pytest.raises(SimulationFailed, match="without an end"):
        validate(
            solved("ring:gpus=4", "allgather"),
            simulator="astrasim",
            program=program,
            time_limit=0.2,
        )


def test_programs_that_are_not_there(tmp_path, monkeypatch):
    """The remedy names whose executable is wanted."""
    schedule = solved("ring:gpus=4", "allgather")
    with pytest.raises(SimulatorError, match="did you mean 'astrasim'"):
        validate(schedule, simulator="astrasin", program="x")
    with pytest.raises(SimulatorError, match="is not there"):
        validate(schedule, simulator="astrasim", program=tmp_path / "nowhere")
    plain = tmp_path / "plain"
    plain.write_text("x", encoding="utf-8")
    with pytest.raises(SimulatorError, match="cannot be executed"):
        validate(schedule, simulator="astrasim", program=plain)
    monkeypatch.setenv("PATH", str(tmp_path))
    alone = install(tmp_path, "LogGOPSim", "loggopsim")
    with pytest.raises(SimulatorError, match="txt2bin"):
        validate(schedule, simulator="loggopsim", program=alone)


def test_the_command_asks_for_what_is_missing(tmp_path):
    """The simulator and its program."""
    solved("ring:gpus=4", "allgather").save(tmp_path / "s.json")
    assert_refused(run("validate", tmp_path / "s.json", "--program", "x"))
    assert_refused(run("validate", tmp_path / "s.json", "--with", "astrasim"))
    assert_refused(run("validate", tmp_path / "s.json", "--with", "nobody", "--program", "x"))


def test_additions_of_partial_sums_are_allowed_for(astrasim):
    """The simulator takes a tick for each, so that what rounding explains grows with them."""
    topology = Topology.parse("fully-connected:gpus=4")
    gathered = solved("fully-connected:gpus=4", "allgather", "4KB", chunks=1)
    summed = one_shot(topology, 1000)
    plain, ticks = (
        validate(each, simulator="astrasim", program=astrasim).outcome.allowance_ps
        for each in (gathered, summed)
    )
    # One step in both; three additions at each rank in the one.
    assert ticks - plain == 3 * (plain // 4)
