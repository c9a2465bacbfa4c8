"""Decorators of compiled kernels: their machine code is kept until what it is made of changes."""

import hashlib
from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
from numba.core.options import DefaultOptions

_KEPT = {"cache": True, "nogil": True}
# Without ways in for Python they compile in half the time.
_WITHIN = {**_KEPT, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Counting who refers to an array takes atomic operations at every look at a row, which was half of
# the time of a search. The option that spares it has no public name.
_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
# What each kernel is made of, by its dispatcher.
_stamps: dict[Any, str] = {}


def _compiled(**options: bool) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles with some options."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = nb.njit(**options)(function)
        _stamp(dispatcher)
        return dispatcher

    return decorate


def _stamp(dispatcher: Any) -> None:
    """Let the cache know all that a kernel is made of.

    numba looks at the file of a kernel alone, and would go on with old machine code after kernels
    that it calls, or numbers that it uses, have changed in another file.
    """
    kept = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    own = getattr(kept, "_source_stamp", None)
    if kept is None or own is None:
        # Another numba, or nowhere to keep anything.
        return
    function = dispatcher.py_func
    parts = [repr(own)]
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, bool | int | float | str | tuple | np.generic | np.dtype):
            parts.append(f"{name}={value!r}")
        elif isinstance(value, nb.core.dispatcher.Dispatcher):
            parts.append(f"{name}={_stamps.get(value)}")
    whole = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    _stamps[dispatcher] = kept._source_stamp = whole  # noqa: SLF001, numba has no other way in


# A kernel that Python calls.
kernel = _compiled(**_KEPT)
# A kernel that only others call, and that makes arrays or returns some.
maker = _compiled(**_WITHIN)
# A kernel that makes no array and returns none: whoever calls it keeps those that it is given.
inner = _compiled(**_WITHIN, **_UNCOUNTED)
