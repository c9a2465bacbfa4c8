"""A quick start: what a small command does not load."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import typer

from teccl.cli.app import COMMANDS, build_app
from teccl.cli.startup import _sparing
from teccl.construct.listing import tails

SMALL = "solve dgx1 allgather --size 1MB --quiet"
LISTING = """
import sys
from teccl.cli import main
code = main({words!r})
print(code, *(name for name in {names!r} if name in sys.modules))
"""
# Planning orbits, other commands, Fortran, linear algebra, figures, the web, and back ends of their
# own processes.
HEAVY = (
    *("teccl.orbit.solving", "teccl.orbit.judge", "teccl.cli.sweep", "numpy.f2py", "numpy.testing"),
    *("scipy.linalg", "scipy.optimize", "matplotlib", "asyncio", "torch", "mpi4py", "ortools"),
    *("numba.typed.typedlist", "numba.np.random.legacy", "numpy.ma", "numpy.ctypeslib"),
    *("numba.np.arraymath", "numba.np.npyimpl"),
)


@pytest.mark.parametrize("words", [SMALL, "topology show dgx1 --quiet"])
def test_small_commands_load_little(words: str) -> None:
    """Nothing of these is needed, and each takes long."""
    text = LISTING.format(words=words.split(), names=HEAVY)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_graphs_alone_leave_the_rest_of_scipy_to_others() -> None:
    """What was spared loads when it is asked for, and is what it always was."""
    text = (
        "from teccl.cli.startup import load_graphs_alone; load_graphs_alone();"
        "from scipy.optimize import linprog; print(linprog([1], bounds=(2, 3)).fun);"
        "from scipy.sparse.linalg import LinearOperator; print(LinearOperator.__module__);"
        "import numpy; print(numpy.testing.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2.0", "scipy.sparse.linalg._interface", "numpy.testing"]


def test_masked_arrays_load_when_one_is_made() -> None:
    """Until then no array is masked; from then on they are what they always were."""
    text = (
        "from teccl.cli.startup import load_graphs_alone; load_graphs_alone();"
        "import sys, numpy; values = numpy.array([2, 1, 2]); kind = numpy.ma.MaskedArray;"
        "print(numpy.unique(values), isinstance(values, kind), 'numpy.ma' in sys.modules);"
        "masked = numpy.ma.masked_equal(values, 1); stood = numpy.ma;"
        "print(masked.sum(), isinstance(masked, stood.MaskedArray), stood.is_masked(masked))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[1 2] False False", "4 True True"]


def test_kernels_that_are_not_in_the_cache_are_compiled() -> None:
    """What loads little of numba compiles like all of it, beside kernels from the cache."""
    text = (
        "from teccl.cli.startup import load_numba_alone; load_numba_alone(); load_numba_alone();"
        "import teccl; result = teccl.solve('ring:gpus=3', 'allgather', size='3KB');"
        "import numba, numpy; add = numba.njit(lambda a: [a.max(), a.sum()]);"
        "print(result.verified, add(numpy.array([2, 3])))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "[3,", "5]"]


def test_kernels_out_of_the_cache_can_be_compiled_into_others() -> None:
    """Only machine code is read of them at first; the compiler finds the rest when it asks."""
    text = (
        "from teccl.cli.startup import load_numba_alone; load_numba_alone();"
        "import numba, numpy; from teccl.construct.listing import tails;"
        "ints = lambda *values: numpy.array(values, dtype=numpy.int64);"
        "chain = (ints(0, 1, 1), ints(1), ints(5), ints(2, 3), ints(0, 1));"
        "print(*tails(*chain), len(tails.stats.cache_hits));"
        "twice = numba.njit(lambda a, b, c, d, e: 2 * tails(a, b, c, d, e));"
        "print(*twice(*chain))"
    )
    chain = [np.array(values) for values in ((0, 1, 1), (1,), (5,), (2, 3), (0, 1))]
    assert tails(*chain).tolist() == [8, 3]
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["8 3 1", "16 6"]


def test_an_interrupt_that_python_cannot_raise_comes_again() -> None:
    """Ctrl-C while an object is taken apart ends what comes after; others are told as ever."""
    text = (
        "import time\n"
        "from teccl.cli.startup import keep_interrupts\n"
        "class Dying:\n"
        "    def __init__(self, problem): self.problem = problem\n"
        "    def __del__(self): raise self.problem\n"
        "keep_interrupts()\n"
        "Dying(OSError('told'))\n"
        "try:\n"
        "    Dying(KeyboardInterrupt())\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard')\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "heard\n"
    assert "told" in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


def test_one_command_is_built_without_the_others() -> None:
    """A line that begins with a command's name needs that command only; the help needs all."""
    alone = typer.main.get_command(build_app("solve"))
    assert list(getattr(alone, "commands", {})) == ["solve"]
    for only in (None, "--help", "sovle"):
        every = typer.main.get_command(build_app(only))
        assert set(getattr(every, "commands", {})) == set(COMMANDS)


def test_kernels_are_loaded_as_numba_does_where_it_keeps_them_otherwise() -> None:
    """A cache whose kernels are not what is expected is read by numba itself."""
    calls = list[bool]()

    def load(_: object, __: object, context: SimpleNamespace) -> str:
        calls.append(hasattr(context.codegen(), "_library_class"))
        if calls[-1]:
            raise ValueError("not so many values to unpack")
        return "kernel"

    codegen = SimpleNamespace()
    context = SimpleNamespace(codegen=lambda: codegen)
    assert _sparing(load)(None, None, context) == "kernel"
    assert calls == [True, False]
