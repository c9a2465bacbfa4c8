"""A quick start: what a small command does not load."""

import subprocess
import sys

import pytest

SMALL = "solve dgx1 allgather --size 1MB --quiet"
LISTING = """
import sys
from teccl.cli import main
code = main({words!r})
print(code, *(name for name in {names!r} if name in sys.modules))
"""
# Planning orbits, Fortran, figures, the web, and back ends of their own processes.
HEAVY = (
    *("teccl.orbit.solving", "teccl.orbit.judge", "numpy.f2py", "matplotlib", "asyncio"),
    *("torch", "mpi4py", "ortools", "highspy"),
)


@pytest.mark.parametrize("words", [SMALL, "topology show dgx1 --quiet"])
def test_small_commands_load_little(words: str) -> None:
    """Nothing of these is needed, and each takes long."""
    text = LISTING.format(words=words.split(), names=HEAVY)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_scipy_works_without_fortran() -> None:
    """Other users of numpy in the process see a module, and scipy all that it needs."""
    text = (
        "from teccl.cli.startup import spare_f2py; spare_f2py(); import scipy.sparse.csgraph;"
        "from scipy.optimize import linprog; print(linprog([1], bounds=(2, 3)).fun)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 2
