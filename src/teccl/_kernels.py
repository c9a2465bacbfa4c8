"""Decorators of compiled kernels that only other kernels call."""

import numba as nb
from numba.core.options import DefaultOptions

# Without ways in for Python they compile in half the time.
_WITHIN = {"cache": True, "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Counting who refers to an array takes atomic operations at every look at a row, which was half of
# the time of a search. The option that spares it has no public name.
_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

# A kernel that makes arrays or returns some.
maker = nb.njit(**_WITHIN)
# A kernel that makes no array and returns none: whoever calls it keeps those that it is given.
inner = nb.njit(**_WITHIN, **_UNCOUNTED)
