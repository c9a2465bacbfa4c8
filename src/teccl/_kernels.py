"""Decorators of compiled kernels: their machine code is kept until what it is made of changes."""

import hashlib
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
from numba.core.options import DefaultOptions
from numba.extending import typeof_impl

_KEPT = {"cache": True, "nogil": True}
# Without ways in for Python they compile in half the time.
_WITHIN = {**_KEPT, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Counting who refers to an array takes atomic operations at every look at a row, which was half of
# the time of a search. The option that spares it has no public name.
_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


class InnerKernel:
    """A function that only kernels call: numba hears of it when one of these is compiled.

    Most commands find all kernels in the cache, and telling numba of a function takes longer than
    defining it.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, bool]) -> None:
        self.py_func = function
        self._options = options
        self._stamp: str | None = None

    @cached_property
    def dispatcher(self) -> Any:
        """What numba compiles."""
        return _compiled(self.py_func, self._options)

    @property
    def stamp(self) -> str:
        """What it is made of."""
        if self._stamp is None:
            # Functions may call themselves.
            self._stamp = ""
            own = _file_stamp(self.py_func.__code__.co_filename)
            self._stamp = _hashed(own, *_parts(self.py_func))
        return self._stamp


def _type_of(kernel: InnerKernel, context: Any) -> Any:
    return typeof_impl(kernel.dispatcher, context)


typeof_impl.register(InnerKernel, _type_of)


def _compiled(function: Callable[..., Any], options: dict[str, bool]) -> Any:
    """Return what numba compiles, and let its cache know all that a kernel is made of.

    numba looks at the file of a kernel alone, and would go on with old machine code after kernels
    that it calls, or numbers that it uses, have changed in another file.
    """
    dispatcher = nb.njit(**options)(function)
    kept = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    own = getattr(kept, "_source_stamp", None)
    # Another numba may have none, and there may be nowhere to keep anything.
    if kept is not None and own is not None:
        kept._source_stamp = _hashed(repr(own), *_parts(function))  # noqa: SLF001, no other way in
        kept._load_index = partial(_index, kept._load_index)  # noqa: SLF001
    return dispatcher


def _index(load: Callable[[], dict[Any, str]]) -> dict[Any, str]:
    """Return what a cache has; nothing where an older version names what is no longer there."""
    try:
        return load()
    except (AttributeError, ImportError):
        return {}


def _parts(function: Callable[..., Any]) -> Iterator[str]:
    """What a kernel refers to outside of itself."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, bool | int | float | str | tuple | np.generic | np.dtype):
            yield f"{name}={value!r}"
        elif isinstance(value, InnerKernel):
            yield f"{name}={value.stamp}"
        elif isinstance(value, nb.core.dispatcher.Dispatcher):
            kept = getattr(getattr(value, "_cache", None), "_cache_file", None)
            yield f"{name}={getattr(kept, '_source_stamp', None)}"


def _file_stamp(path: str) -> str:
    """Hash a file of source code; nothing where there is none to read, as in an archive."""
    try:
        now = Path(path).stat()
        return _file_hash(path, now.st_mtime_ns, now.st_size)
    except OSError:
        return ""


@cache
def _file_hash(path: str, _changed_ns: int, _size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _inner(options: dict[str, bool]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator; without a compiler its functions are called as they are."""
    if nb.config.DISABLE_JIT:
        return lambda function: function
    return lambda function: InnerKernel(function, options)


def kernel(function: Callable[..., Any]) -> Any:
    """Decorate a kernel that Python calls."""
    return _compiled(function, _KEPT)


# A kernel that only others call, and that makes arrays or returns some.
maker = _inner(_WITHIN)
# A kernel that makes no array and returns none: whoever calls it keeps those that it is given.
inner = _inner({**_WITHIN, **_UNCOUNTED})
