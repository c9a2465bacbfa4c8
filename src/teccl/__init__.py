"""teccl: collective communication schedules, constructed, proven and ready to run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from teccl import _moved

__version__ = "0.2.0"

# Public names and the module each lives in. They load on first use, so that `import teccl`
# and `teccl --help` stay fast.
_PUBLIC = {
    "BoundReport": "teccl.bounds.bound_report",
    "Collective": "teccl.demand",
    "Demand": "teccl.demand",
    "Tenant": "teccl.demand",
    "DemandError": "teccl.errors",
    "ExportError": "teccl.errors",
    "ExportRefused": "teccl.errors",
    "InputError": "teccl.errors",
    "MethodError": "teccl.errors",
    "ProblemError": "teccl.errors",
    "ProgramError": "teccl.errors",
    "RunError": "teccl.errors",
    "ScheduleError": "teccl.errors",
    "SimulationFailed": "teccl.errors",
    "SimulatorError": "teccl.errors",
    "SolverError": "teccl.errors",
    "TecclError": "teccl.errors",
    "TopologyError": "teccl.errors",
    "UnitError": "teccl.errors",
    "VerificationError": "teccl.errors",
    "Planner": "teccl.exchange",
    "export": "teccl.formats.writing",
    "ImportedSchedule": "teccl.formats.reading",
    "import_schedule": "teccl.formats.reading",
    "Problem": "teccl.problem",
    "CancelToken": "teccl.progress",
    "Progress": "teccl.progress",
    "Replay": "teccl.replay",
    "simulate": "teccl.replay",
    "report_page": "teccl.report",
    "write_report": "teccl.report",
    "Result": "teccl.result",
    "Status": "teccl.result",
    "Calibration": "teccl.runtime.calibrate",
    "calibrate_ranks": "teccl.runtime.calibrate",
    "Schedule": "teccl.schedule",
    "Send": "teccl.schedule",
    "validate": "teccl.simulators",
    "compare": "teccl.studies",
    "evaluate": "teccl.studies",
    "sweep": "teccl.studies",
    "whatif": "teccl.studies",
    "solve": "teccl.synthesis",
    "bound": "teccl.synthesis.bounding",
    "TimeGrid": "teccl.timegrid",
    "Link": "teccl.topology",
    "Node": "teccl.topology",
    "Topology": "teccl.topology",
    "Imported": "teccl.formats.reading",
    "import_topology": "teccl.formats.reading",
    "Violation": "teccl.verification",
    "ViolationKind": "teccl.verification",
    "verify": "teccl.verification",
}

_moved.install()

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604, all of them are strings

if TYPE_CHECKING:
    from teccl.bounds.bound_report import BoundReport as BoundReport
    from teccl.demand import Collective as Collective
    from teccl.demand import Demand as Demand
    from teccl.demand import Tenant as Tenant
    from teccl.errors import DemandError as DemandError
    from teccl.errors import ExportError as ExportError
    from teccl.errors import ExportRefused as ExportRefused
    from teccl.errors import InputError as InputError
    from teccl.errors import MethodError as MethodError
    from teccl.errors import ProblemError as ProblemError
    from teccl.errors import ProgramError as ProgramError
    from teccl.errors import RunError as RunError
    from teccl.errors import ScheduleError as ScheduleError
    from teccl.errors import SimulationFailed as SimulationFailed
    from teccl.errors import SimulatorError as SimulatorError
    from teccl.errors import SolverError as SolverError
    from teccl.errors import TecclError as TecclError
    from teccl.errors import TopologyError as TopologyError
    from teccl.errors import UnitError as UnitError
    from teccl.errors import VerificationError as VerificationError
    from teccl.exchange import Planner as Planner
    from teccl.formats.reading import Imported as Imported
    from teccl.formats.reading import ImportedSchedule as ImportedSchedule
    from teccl.formats.reading import import_schedule as import_schedule
    from teccl.formats.reading import import_topology as import_topology
    from teccl.formats.writing import export as export
    from teccl.problem import Problem as Problem
    from teccl.progress import CancelToken as CancelToken
    from teccl.progress import Progress as Progress
    from teccl.replay import Replay as Replay
    from teccl.replay import simulate as simulate
    from teccl.report import report_page as report_page
    from teccl.report import write_report as write_report
    from teccl.result import Result as Result
    from teccl.result import Status as Status
    from teccl.runtime.calibrate import Calibration as Calibration
    from teccl.runtime.calibrate import calibrate_ranks as calibrate_ranks
    from teccl.schedule import Schedule as Schedule
    from teccl.schedule import Send as Send
    from teccl.simulators import validate as validate
    from teccl.studies import compare as compare
    from teccl.studies import evaluate as evaluate
    from teccl.studies import sweep as sweep
    from teccl.studies import whatif as whatif
    from teccl.synthesis import solve as solve
    from teccl.synthesis.bounding import bound as bound
    from teccl.timegrid import TimeGrid as TimeGrid
    from teccl.topology import Link as Link
    from teccl.topology import Node as Node
    from teccl.topology import Topology as Topology
    from teccl.verification import Violation as Violation
    from teccl.verification import ViolationKind as ViolationKind
    from teccl.verification import verify as verify


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'teccl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
