"""Tasks: one request each, named by a hash of everything that decides its result."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from teccl import __version__
from teccl.demand import Demand
from teccl.demand.demand_files import demand_to_dict
from teccl.errors import MethodError
from teccl.progress import CancelToken
from teccl.result import Result
from teccl.topology import Topology
from teccl.topology.topology_files import topology_to_dict

# Options that decide how a result is found but neither which one nor how it is shown.
_IRRELEVANT = ("progress", "cancel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A request that any process can carry out.

    Parameters
    ----------
    topology, demand
        What to solve, with every change made.
    method
        One of `teccl.solve`'s methods or of `teccl.studies.rivals.RIVALS`.
    options
        More keywords of `teccl.solve`.
    label
        What tables call it.
    """

    topology: Topology
    demand: Demand
    method: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    _keys: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """A hash of the problem, the options and the version of teccl."""
        if not self._keys:
            self._keys.append(self._hash())
        return self._keys[0]

    @property
    def needs_main(self) -> bool:
        """Whether something of it is defined in the script that runs."""
        return any(
            getattr(each, "__module__", None) == "__main__"
            for each in (self, *self.options.values())
        )

    def _hash(self) -> str:
        document = {
            "version": __version__,
            "topology": topology_to_dict(self.topology),
            "demand": demand_to_dict(self.demand),
            "method": self.method,
            "options": {name: str(value) for name, value in self.options.items()},
        }
        text = json.dumps(document, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def run(self, cancel: CancelToken | None = None) -> Result:
        """Carry the request out in this process."""
        from teccl.studies.rivals import RIVALS

        solver: Callable[..., Result]
        if self.method in RIVALS:
            solver = RIVALS[self.method].solve
            return solver(self.topology, self.demand, **self.options)
        from teccl.synthesis import solve

        options = {**self.options, **({} if cancel is None else {"cancel": cancel})}
        return solve(self.topology, demand=self.demand, method=self.method, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """What came of a task.

    Parameters
    ----------
    task
        What was asked for.
    result
        What was found, None if nothing could be.
    reason
        Why there is no result.
    is_stored
        Whether the result comes from a store and was not found just now.
    """

    task: Task
    result: Result | None = None
    reason: str | None = None
    is_stored: bool = False


def carry_out(task: Task, cancel: CancelToken | None = None) -> TaskOutcome:
    """Run a task; a method that does not serve it is an outcome, other errors are raised."""
    try:
        return TaskOutcome(task=task, result=task.run() if cancel is None else task.run(cancel))
    except MethodError as reason:
        return TaskOutcome(task=task, reason=str(reason))
