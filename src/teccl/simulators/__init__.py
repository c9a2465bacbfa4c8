"""Schedules judged by simulators that others wrote and the user has installed.

A simulator is a module of this package with one function, ``run(schedule, program, folder,
time_limit) -> Outcome``; adding one is adding its entry to `SIMULATORS`. None is shipped,
downloaded or built here.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from teccl._suggest import did_you_mean
from teccl.errors import SimulatorError

if TYPE_CHECKING:
    from teccl.schedule import Schedule

__all__ = ["SIMULATORS", "Outcome", "Simulator", "Validation", "validate"]


class Simulator(NamedTuple):
    """An entry of the registry: the module, and what help texts say."""

    module: str
    summary: str


SIMULATORS = {
    "loggopsim": Simulator("teccl.simulators.loggopsim", "LogGOPSim, on GOAL"),
    "astrasim": Simulator("teccl.simulators.astrasim", "ASTRA-sim, on Chakra traces"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a simulator says about a schedule.

    Parameters
    ----------
    finish_ps
        Picoseconds until it ends.
    allowance_ps
        Difference that rounding in the simulator can make, where the models are the same.
    differences
        A sentence for each way in which the simulator's model is another than teccl's.
    notes
        What a reader should know about how it was run.
    command
        The command that ran.
    """

    finish_ps: int
    allowance_ps: int
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A simulator's finish beside that of `simulate`.

    Parameters
    ----------
    simulator
        Its name.
    replay_ps
        Picoseconds that `simulate` finds.
    outcome
        What the simulator finds.
    """

    simulator: str
    replay_ps: int
    outcome: Outcome

    @property
    def difference_ps(self) -> int:
        """How much later the simulator ends."""
        return self.outcome.finish_ps - self.replay_ps

    @property
    def relative(self) -> float:
        """The difference as a fraction of the replay's finish."""
        return self.difference_ps / max(1, self.replay_ps)

    @property
    def agrees(self) -> bool | None:
        """Whether both find the same up to rounding; None where their models differ."""
        if self.outcome.differences:
            return None
        return abs(self.difference_ps) <= self.outcome.allowance_ps


def validate(
    schedule: "Schedule", *, simulator: str, program: str | Path, time_limit: float = 600.0
) -> Validation:
    """Run a simulator on a schedule and compare its finish with that of `simulate`.

    Parameters
    ----------
    schedule
        A correct schedule; it is verified first.
    simulator
        One of `SIMULATORS`.
    program
        The simulator's executable, a path or a name on the search path.
    time_limit
        Seconds after which the simulator is stopped.

    Raises
    ------
    SimulatorError
        If the simulator is unknown or the program is not there.
    SimulationFailed
        If it does not run to its end.
    VerificationError
        If the schedule is wrong.
    """
    from teccl.replay import simulate
    from teccl.simulators.limited_runs import find_program
    from teccl.verification import verify

    known = SIMULATORS.get(simulator)
    if known is None:
        raise SimulatorError(
            f"unknown simulator {simulator[:40]!r}{did_you_mean(simulator, SIMULATORS)}"
        )
    found = find_program(program, known.summary)
    verify(schedule, strict=True)
    run = import_module(known.module).run
    with TemporaryDirectory(prefix="teccl-") as folder:
        outcome = run(schedule, found, Path(folder), time_limit)
    assert isinstance(outcome, Outcome)
    return Validation(simulator=simulator, replay_ps=simulate(schedule).finish_ps, outcome=outcome)
