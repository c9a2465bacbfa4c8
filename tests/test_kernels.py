"""Kernels that do without counts of references: what the compiler lets them do."""

import importlib
import os
import pickle
import runpy
import sys
from pathlib import Path

import numba as nb
import numpy as np
import pytest
from tests.kernels import are_compiled

from teccl._kernels import inner
from teccl.construct.timetable import room


def made(count):
    """Make an array, but return a number."""
    return len(np.empty(count))


def part(values):
    """Return a view of an array."""
    return values[1:]


@pytest.mark.parametrize(("kernel", "argument"), [(made, 3), (part, np.arange(3))])
def test_inner_kernels_neither_make_arrays_nor_return_parts_of_them(kernel, argument) -> None:
    """Nobody would free the one, or keep the other; a kernel that does so says it is a maker."""
    nb.njit(kernel)(argument)
    with pytest.raises(nb.core.errors.NumbaError, match="returning of array"):
        nb.jit(**room.dispatcher.targetoptions)(kernel)(argument)


CALLED = "from teccl._kernels import inner\n@inner\ndef called(x):\n    return x + {}\n"
CALLER = (
    "from teccl._kernels import kernel\nfrom {0} import called\nCOUNT = {1}\n"
    "@kernel\ndef caller(x):\n    return called(x) * COUNT\n"
)


def test_stamps_tell_what_a_kernel_is_made_of(tmp_path, monkeypatch) -> None:
    """Not the file of the kernel alone, which is the same for both here."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "caller.py").write_text(CALLER.format("called", 2), encoding="utf-8")
    stamps = []
    for added in (1, 1, 3):
        (tmp_path / "called.py").write_text(CALLED.format(added), encoding="utf-8")
        sys.modules.pop("called", None)
        importlib.invalidate_caches()
        module = runpy.run_path(str(tmp_path / "caller.py"))
        stamps.append(module["caller"]._cache._cache_file._source_stamp)
    assert stamps[0] == stamps[1] != stamps[2]


def test_a_cache_that_names_what_has_gone_is_empty(tmp_path, monkeypatch) -> None:
    """A kernel is compiled again where an older version had other types, not refused."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "called.py").write_text(CALLED.format(1), encoding="utf-8")
    (tmp_path / "caller.py").write_text(CALLER.format("called", 2), encoding="utf-8")
    for _ in range(2):
        sys.modules.pop("called", None)
        caller = runpy.run_path(str(tmp_path / "caller.py"))["caller"]
        assert caller(3) == 8
        index = Path(caller._cache._cache_file._index_path)
        assert index.is_file()
        # What pickle makes of a class that no module has any more.
        gone = pickle.dumps(nb.__version__) + b"cteccl.errors\nNothing\n."
        index.write_bytes(gone)


def test_numba_hears_of_inner_kernels_when_a_caller_is_compiled() -> None:
    """Until then they are functions; one that calls itself has a stamp as well."""

    @inner
    def halvings(x):
        return 1 + halvings(x // 2) if x > 1 else 0

    assert "dispatcher" not in vars(halvings)
    assert len(halvings.stamp) == 64
    assert nb.njit(lambda x: halvings(x) + 1)(np.int64(9)) == 4
    assert "dispatcher" in vars(halvings)


@pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" not in os.environ, reason="one process compiles as it goes"
)
def test_what_is_compiled_before_the_tests_is_all() -> None:
    """A module of kernels that no command there calls would be compiled again in every run."""
    assert are_compiled()
