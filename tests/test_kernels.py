"""Kernels that do without counts of references: what the compiler lets them do."""

import numba as nb
import numpy as np
import pytest

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
        nb.jit(**room.targetoptions)(kernel)(argument)
