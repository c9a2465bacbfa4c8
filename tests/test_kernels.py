"""Kernels that do without counts of references: what they may not do."""

import pkgutil
from importlib import import_module

import numba as nb
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from tests import kernels

import teccl


def _uncounted() -> list[Dispatcher]:
    """Return all kernels of the package that are decorated as `inner`."""
    found = {}
    for module in pkgutil.walk_packages([str(kernels.PACKAGE)], f"{teccl.__name__}."):
        if "nb.njit" in _source(module) or "_kernels" in _source(module):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, Dispatcher) and value.targetoptions.get("_nrt") is False:
                    found[value.py_func] = value
    return list(found.values())


def _source(module: pkgutil.ModuleInfo) -> str:
    path = kernels.PACKAGE.joinpath(*module.name.split(".")[1:])
    file = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def test_inner_kernels_return_no_arrays() -> None:
    """An array that nobody counted would be freed under whoever holds it.

    What they return is told by their signatures in the cache, for all types they were compiled for.
    """
    kernels._insert()
    checked = 0
    for kernel in _uncounted():
        # numba tells what is in the cache to itself only.
        for signature, *_ in kernel._cache._cache_file._load_index():
            loaded = kernel._cache.load_overload(signature, kernel.targetctx)
            assert not _has_array(loaded.signature.return_type), kernel.py_func
            checked += 1
    assert checked > 20


def _has_array(kind: nb.types.Type) -> bool:
    parts = getattr(kind, "types", ())
    return isinstance(kind, nb.types.Array) or any(_has_array(part) for part in parts)


def test_inner_kernels_cannot_make_arrays() -> None:
    """The compiler refuses; a kernel that makes some says so by its decorator."""

    def made(count):
        return len(np.empty(count))

    assert nb.njit(made)(3) == 3
    with pytest.raises(nb.core.errors.NumbaError, match="NRT"):
        nb.jit(**_uncounted()[0].targetoptions)(made)(3)
