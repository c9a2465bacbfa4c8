"""The clock that stands still while kernels are compiled."""

import numba as nb
import pytest

from teccl import _numba


def test_the_clock_stands_still_until_the_last_compilation_ends() -> None:
    """Compilations of several threads, one inside another, count once."""
    compiling = _numba._Compiling()
    compiling.begin()
    before = compiling.others_s()
    compiling.begin()
    compiling.end()
    assert compiling.others_s() == before
    compiling.end()
    assert compiling.others_s() > before


def test_compiling_a_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever numba compiles when it is called stops the clock, and all of that ends."""
    told = []
    monkeypatch.setattr(_numba._COMPILING, "begin", lambda: told.append(1))
    monkeypatch.setattr(_numba._COMPILING, "end", lambda: told.append(-1))
    _numba.watch_compiler()

    @nb.njit
    def double(value):
        return 2 * value

    assert double(3) == 6
    assert len(told) > 1
    assert sum(told) == 0
