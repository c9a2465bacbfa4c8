"""Back ends for linear and mixed-integer programs behind one call.

Each back end runs in a process of its own: HiGHS and OR-Tools cannot share one, a limit can be
enforced from outside, and a solver that crashes or runs out of memory takes nothing with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teccl.solvers.base import LinearMethod as LinearMethod
    from teccl.solvers.base import Solution as Solution
    from teccl.solvers.base import SolverOptions as SolverOptions
    from teccl.solvers.base import SolverProgress as SolverProgress
    from teccl.solvers.base import SolverStatus as SolverStatus
    from teccl.solvers.run import BACKENDS as BACKENDS
    from teccl.solvers.run import solve as solve

# Loaded on first use: a solver's process imports this package too and needs little of it.
_PUBLIC = {
    "BACKENDS": "run",
    "LinearMethod": "base",
    "Solution": "base",
    "SolverOptions": "base",
    "SolverProgress": "base",
    "SolverStatus": "base",
    "solve": "run",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"teccl.solvers.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'teccl.solvers' has no attribute {name!r}")
