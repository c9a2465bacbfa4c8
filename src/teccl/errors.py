"""The exception tree: every error teccl raises on purpose is a `TecclError`."""


class TecclError(Exception):
    """Base class of all errors raised by teccl."""


class InputError(TecclError, ValueError):
    """Something the user gave is wrong; the message names the object, the value and the remedy."""


class UnitError(InputError):
    """A size, bandwidth or duration cannot be read."""


class TopologyError(InputError):
    """A topology, preset or link is wrong."""


class DemandError(InputError):
    """A demand does not fit the topology or contradicts itself."""


class ProblemError(InputError):
    """The modelling options contradict each other or the topology."""


class ScheduleError(InputError):
    """A schedule or schedule file is damaged or foreign."""


class MethodError(InputError):
    """The method asked for does not serve this problem."""


class ExportError(InputError):
    """A schedule, target or option does not serve an export."""


class ExportRefused(TecclError):  # noqa: N818, nothing is wrong: the target cannot hold it
    """A limit of the target is exceeded; the message names it and what would help."""


class SimulatorError(InputError):
    """A simulator that is to judge a schedule is not there, or is not what it should be."""


class SimulationFailed(TecclError):  # noqa: N818, nothing the user gave is wrong
    """A simulator did not run to its end, or cannot simulate the schedule."""


class ProgramError(InputError):
    """A program file for a GPU runtime cannot be read."""


class RunError(TecclError):
    """A run with real bytes failed: a rank died or hung, MPI is missing, a result is wrong."""


class VerificationError(TecclError):
    """A schedule failed verification; `violations` holds the findings."""

    def __init__(self, message: str, violations: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.violations = violations


class SolverError(TecclError):
    """A back end broke down or returned nonsense; the message says which and what to do."""
