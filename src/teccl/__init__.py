"""teccl: collective communication schedules, constructed, proven and ready to run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names and the module each lives in. They load on first use, so that `import teccl`
# and `teccl --help` stay fast.
_PUBLIC = {
    "Collective": "teccl.demand",
    "Demand": "teccl.demand",
    "Tenant": "teccl.demand",
    "Link": "teccl.topology",
    "Node": "teccl.topology",
    "Topology": "teccl.topology",
    "Problem": "teccl.problem",
    "TimeGrid": "teccl.timegrid",
    "Schedule": "teccl.schedule",
    "Send": "teccl.schedule",
    "Result": "teccl.result",
    "TecclError": "teccl.errors",
    "compare": "teccl.studies",
    "evaluate": "teccl.studies",
    "export": "teccl.exporters",
    "simulate": "teccl.replay",
    "solve": "teccl.synthesis",
    "sweep": "teccl.studies",
    "validate": "teccl.simulators",
    "verify": "teccl.verification",
    "whatif": "teccl.studies",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604, all of them are strings

if TYPE_CHECKING:
    from teccl.demand import Collective as Collective
    from teccl.demand import Demand as Demand
    from teccl.demand import Tenant as Tenant
    from teccl.errors import TecclError as TecclError
    from teccl.exporters import export as export
    from teccl.problem import Problem as Problem
    from teccl.replay import simulate as simulate
    from teccl.result import Result as Result
    from teccl.schedule import Schedule as Schedule
    from teccl.schedule import Send as Send
    from teccl.simulators import validate as validate
    from teccl.studies import compare as compare
    from teccl.studies import evaluate as evaluate
    from teccl.studies import sweep as sweep
    from teccl.studies import whatif as whatif
    from teccl.synthesis import solve as solve
    from teccl.timegrid import TimeGrid as TimeGrid
    from teccl.topology import Link as Link
    from teccl.topology import Node as Node
    from teccl.topology import Topology as Topology
    from teccl.verification import verify as verify


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'teccl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
