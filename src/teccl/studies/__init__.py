"""Studies: many requests at once, for operators who plan and researchers who compare.

`sweep` finds the best schedule for each size and makes a plan of size ranges, `compare` sets
methods side by side, `whatif` plans for faults, `evaluate` judges topologies quickly, and
`experiments` rebuilds the paper's evaluation. All of them run on any executor of
`concurrent.futures` and keep finished work in a store.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Comparison": "teccl.studies.comparison",
    "Evaluation": "teccl.studies.evaluation",
    "Fault": "teccl.studies.faults",
    "TaskOutcome": "teccl.studies.hashed_tasks",
    "Store": "teccl.studies.store",
    "Sweep": "teccl.studies.sweeping",
    "Task": "teccl.studies.hashed_tasks",
    "WhatIf": "teccl.studies.contingency",
    "compare": "teccl.studies.comparison",
    "evaluate": "teccl.studies.evaluation",
    "sweep": "teccl.studies.sweeping",
    "whatif": "teccl.studies.contingency",
    "write_plan": "teccl.studies.planning",
}

__all__ = list(_PUBLIC)

if TYPE_CHECKING:
    from teccl.studies.comparison import Comparison as Comparison
    from teccl.studies.comparison import compare as compare
    from teccl.studies.contingency import WhatIf as WhatIf
    from teccl.studies.contingency import whatif as whatif
    from teccl.studies.evaluation import Evaluation as Evaluation
    from teccl.studies.evaluation import evaluate as evaluate
    from teccl.studies.faults import Fault as Fault
    from teccl.studies.hashed_tasks import Task as Task
    from teccl.studies.hashed_tasks import TaskOutcome as TaskOutcome
    from teccl.studies.planning import write_plan as write_plan
    from teccl.studies.store import Store as Store
    from teccl.studies.sweeping import Sweep as Sweep
    from teccl.studies.sweeping import sweep as sweep


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'teccl.studies' has no attribute {name!r}")
