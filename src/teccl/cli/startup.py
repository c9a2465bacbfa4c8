"""A quick start for commands, which own their process and may spare it what libraries must not."""

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# New objects after which a command looks for garbage. Libraries that load make hundreds of
# thousands of objects and no garbage, and looking often takes a fifth of the start.
_COLLECTED = 100_000
_BLAS = "scipy.linalg.cython_blas"
_ALGEBRA = "scipy.sparse.linalg"


def collect_seldom() -> None:
    """Look for garbage seldom."""
    gc.set_threshold(_COLLECTED, *gc.get_threshold()[1:])


def collect_no_more() -> None:
    """Let the process end without a last look for garbage, which the system frees sooner."""
    gc.freeze()


def load_graphs_alone() -> None:
    """Load scipy's graphs without what they need for one function only, which no command calls.

    scipy copies all names of numpy, also those that load numpy's tests and its compiler of Fortran,
    and Laplacians take a class of the linear algebra. All that loads longer than the graphs.
    Whoever asks for it later gets the true modules.
    """
    numpy = import_module("numpy").__dict__
    modules: dict[str, Any] = sys.modules
    if _ALGEBRA in modules:
        return
    spared = [name for name in ("f2py", "testing") if name not in numpy]
    algebra = modules[_ALGEBRA] = ModuleType(_ALGEBRA)
    algebra.__dict__["LinearOperator"] = object
    numpy.update({name: ModuleType(f"numpy.{name}") for name in spared})
    try:
        import_module("scipy.sparse.csgraph")
    finally:
        del modules[_ALGEBRA]
        for name in spared:
            del numpy[name]


def load_highs_alone() -> None:
    """Load HiGHS for the linear programs of bounds, without the rest of scipy.optimize."""
    import_module("highspy")


def load_numba_alone() -> None:
    """Load numba without the BLAS that it looks for.

    The search imports scipy.linalg, which takes longer than most solutions. No kernel here needs
    BLAS, but a user's own compiled functions may.
    """
    modules: dict[str, Any] = sys.modules
    if "numba.np.arraymath" in modules or _BLAS in modules:
        return
    modules[_BLAS] = None
    try:
        import_module("numba.np.arraymath")
    finally:
        del modules[_BLAS]
