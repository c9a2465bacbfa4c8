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


def collect_seldom() -> None:
    """Look for garbage seldom."""
    gc.set_threshold(_COLLECTED, *gc.get_threshold()[1:])


def spare_f2py() -> None:
    """Let scipy load without numpy's compiler of Fortran.

    scipy copies all names of numpy, and this one takes longer to load than scipy's own parts. No
    command uses it.
    """
    numpy = import_module("numpy")
    numpy.__dict__.setdefault("f2py", ModuleType("numpy.f2py"))


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
