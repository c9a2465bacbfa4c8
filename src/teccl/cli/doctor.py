"""`teccl doctor`: what a bug report should say about the machine."""

import os
import platform
import shutil
import sys
from importlib.util import find_spec
from typing import Any

from teccl import __version__
from teccl.cli.options import JsonOption

LIBRARIES = (
    *("numpy", "scipy", "numba", "highspy", "ortools", "typer", "rich", "pyyaml"),
    *("matplotlib", "mpi4py", "dask", "gurobipy", "torch", "starlette", "uvicorn"),
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")
# What is missing without a library that is not always installed.
_EXTRAS = {
    "matplotlib": "plot",
    "mpi4py": "mpi",
    "dask": "dask",
    "gurobipy": "gurobi",
    "torch": "torch",
    "starlette": "ui",
    "uvicorn": "ui",
}


def doctor(as_json: JsonOption = False) -> None:
    """Show versions, solvers, MPI, browser and threads, for bug reports."""
    from teccl.cli.output import emit, emit_json, pairs

    findings = examine()
    if as_json:
        emit_json(findings)
        return
    rows: list[tuple[str, object]] = [
        ("teccl", findings["teccl"]),
        ("python", findings["python"]),
        ("system", findings["system"]),
        ("threads", f"{findings['threads']} of {findings['processors']} processors"),
        *(("solver", f"{name}: {text}") for name, text in findings["solvers"].items()),
        ("mpi", findings["mpi"]),
        ("browser", findings["browser"]),
        ("kernel cache", findings["kernel_cache"]),
        *(("library", f"{name} {text}") for name, text in findings["libraries"].items()),
    ]
    emit(pairs(rows))


def examine() -> dict[str, Any]:
    """Return what was found, without loading any of the libraries."""
    return {
        "teccl": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": os.cpu_count() or 1,
        "threads": _threads(),
        "solvers": {
            "highs": _version("highspy") or "missing; reinstall teccl",
            "cpsat": _version("ortools") or "missing; reinstall teccl",
            "gurobi": _version("gurobipy") or "not installed; pip install 'teccl[gurobi]'",
        },
        "mpi": _mpi(),
        "browser": next((path for name in BROWSERS if (path := shutil.which(name))), "none found"),
        "kernel_cache": _kernel_cache(),
        "libraries": {name: _version(name) or _missing(name) for name in LIBRARIES},
    }


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _missing(name: str) -> str:
    extra = _EXTRAS.get(name)
    return "missing; reinstall teccl" if extra is None else f"not installed (extra {extra})"


def _threads() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _mpi() -> str:
    launcher = shutil.which("mpiexec")
    # The MPICH wheel puts its launcher beside the interpreter, which need not be on the path.
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")  # noqa: PTH118, PTH120
    launcher = launcher or (beside if os.access(beside, os.X_OK) else None)
    binding = "mpi4py " + (_version("mpi4py") or "not installed; pip install 'teccl[mpi]'")
    return f"{launcher or 'no mpiexec found'}, {binding}"


def _kernel_cache() -> str:
    """Where compiled kernels are kept between runs."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return os.environ["NUMBA_CACHE_DIR"]
    spec = find_spec("teccl.construct")
    folder = None if spec is None or spec.origin is None else os.path.dirname(spec.origin)  # noqa: PTH120
    if folder is not None and os.access(folder, os.W_OK):
        return "beside the package"
    return "in the user's cache folder; the package's folder cannot be written"
