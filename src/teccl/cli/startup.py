"""The start of commands, which own their process and may spare it what libraries must not."""

import gc
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from types import ModuleType
from typing import Any

# New objects after which a command looks for garbage. Libraries that load make a hundred thousand
# objects and no garbage, and looking at them once takes as long as loading numpy.
_COLLECTED = 300_000
# Seconds after which an interrupt that was lost comes again.
_AGAIN_S = 0.02
_BLAS = "scipy.linalg.cython_blas"
_ALGEBRA = "scipy.sparse.linalg"
_HELP = "numpy._core._add_newdocs"
_MASKED = "numpy.ma"
# Parts of numpy that numpy loads when they are asked for, and that neither graphs nor kernels use.
_SPARED = ("char", "core", "ctypeslib", "f2py", "rec", "strings", "testing")


def collect_seldom() -> None:
    """Look for garbage seldom."""
    gc.set_threshold(_COLLECTED, *gc.get_threshold()[1:])


def keep_interrupts() -> None:
    """Let an interrupt come again that came where Python can raise nothing.

    That is in calls which end the life of an object, of which loading modules makes many: Python
    would print the exception and go on.
    """
    sys.unraisablehook = _report_lost


def _report_lost(lost: "sys.UnraisableHookArgs") -> None:
    if lost.exc_type is KeyboardInterrupt:
        main = threading.main_thread().ident
        # A signal to the thread itself also ends its waiting.
        timer = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(lost)


def collect_no_more() -> None:
    """Let the process end without a last look for garbage, which the system frees sooner."""
    gc.freeze()


def load_graphs_alone() -> None:
    """Load scipy's graphs without what they need for one function only, which no command calls.

    scipy copies all names of numpy, also those that load numpy's tests and its compiler of Fortran,
    and Laplacians take a class of the linear algebra. All that loads longer than the graphs.
    Whoever asks for it later gets the true modules.
    """
    numpy = _load_numpy_alone().__dict__
    modules: dict[str, Any] = sys.modules
    if _ALGEBRA in modules:
        return
    spared = [name for name in _SPARED if name not in numpy]
    algebra = modules[_ALGEBRA] = ModuleType(_ALGEBRA)
    algebra.__dict__["LinearOperator"] = object
    numpy.update({name: ModuleType(f"numpy.{name}") for name in spared})
    try:
        import_module("scipy.sparse.csgraph")
    finally:
        del modules[_ALGEBRA]
        for name in spared:
            del numpy[name]


def _load_numpy_alone() -> ModuleType:
    """Load numpy without the texts of its help, and without masked arrays until one is used."""
    modules: dict[str, Any] = sys.modules
    if "numpy" not in modules:
        modules[_HELP] = ModuleType(_HELP)
    numpy = import_module("numpy")
    if _MASKED not in modules:
        numpy.__dict__.setdefault("ma", _Unmasked(_MASKED))
    return numpy


class _NoArray:
    """What no array is, as long as nobody has loaded masked arrays."""


class _Unmasked(ModuleType):
    """Stands for numpy's masked arrays, which load when more is asked than whether one is there.

    numpy asks that for values that it sorts and numba for what kernels are given, and loading them
    takes longer than a small solve's bound.
    """

    @staticmethod
    def is_masked(values: object) -> bool:
        """Whether some of the values are masked, which nobody can have done before it loads."""
        return _MASKED in sys.modules and bool(import_module(_MASKED).is_masked(values))

    def __getattr__(self, name: str) -> Any:
        if name == "MaskedArray" and _MASKED not in sys.modules:
            return _NoArray
        return getattr(import_module(_MASKED), name)


def load_highs_alone() -> None:
    """Load HiGHS for the linear programs of bounds, without the rest of scipy.optimize."""
    import_module("highspy")


def load_numba_alone() -> None:
    """Load numba such that kernels come out of its cache without all that compiles others."""
    kernels: Any = import_module("numba.core.caching").Cache
    if not hasattr(kernels.load_overload, "__wrapped__"):
        kernels.load_overload = _sparing(kernels.load_overload)
    # No kernel here has to do with extensions of numba, which are looked for in all that is
    # installed.
    import_module("numba.core.entrypoints").__dict__["_already_initialized"] = True


def _load_compiler_without_blas() -> None:
    """Load what numba compiles calls of numpy with, without the BLAS that it looks for.

    The search imports scipy.linalg, which takes longer than most solutions. No kernel here needs
    BLAS, but a user's own compiled functions may.
    """
    modules: dict[str, Any] = sys.modules
    if "numba.np.arraymath" in modules or _BLAS in modules:
        return
    modules[_BLAS] = None
    try:
        import_module("numba.np.arraymath")
    finally:
        del modules[_BLAS]


def _sparing(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return how numba loads a kernel, without making ready for all that can be compiled.

    That takes longer than the kernel, whose machine code needs the management of memory only. Where
    a kernel is not in the cache, the compiler makes itself ready.
    """
    library = _library_of_machine_code()
    constants = import_module("numba.core.environment").__dict__
    rebuild = constants.get("_rebuild_env")

    @wraps(load)
    def load_only(kernels: Any, signature: Any, context: Any) -> Any:
        # numba holds the compiler's lock here: no other thread sees the context like this.
        codegen, kernel = context.codegen(), None
        context.refresh = _tell_memory
        codegen._library_class = library  # noqa: SLF001, numba has no other way in
        constants["_rebuild_env"] = _constants_alone
        try:
            kernel = load(kernels, signature, context)
        except (AttributeError, TypeError, ValueError):
            # Another numba may keep its kernels in another way, and load them by its own.
            pass
        finally:
            del context.refresh
            del codegen._library_class  # noqa: SLF001
            constants["_rebuild_env"] = rebuild
        if kernel is None:
            # It is going to be compiled, unless numba itself finds it.
            _load_compiler_without_blas()
            kernel = load(kernels, signature, context)
        return kernel

    return load_only


@cache
def _tell_memory() -> None:
    """Tell machine code where to find what manages memory, which is compiled code's only need."""
    runtime: Any = import_module("numba.core.runtime.nrt")
    tell: Callable[[str, int], None] = import_module("llvmlite.binding").add_symbol
    for name, address in runtime._nrt.c_helpers.items():  # noqa: SLF001
        tell(name if name.startswith("_") else f"NRT_{name}", address)


def _constants_alone(module: str, constants: Any, name: str) -> Any:
    """Return the constants of a compiled function without loading its module for them.

    Only Python code looks names up there, and kernels have none; among the modules are all that
    numba compiles calls of numpy with.
    """
    environment: Any = import_module("numba.core.environment").Environment
    made = environment._memo.get(name)  # noqa: SLF001, numba has no other way in
    if made is None:
        loaded = sys.modules.get(module)
        made = environment({"__name__": module} if loaded is None else loaded.__dict__)
        made.consts[:], made.env_name = constants, name
        environment._memo[name] = made  # noqa: SLF001
    return made


def _library_of_machine_code() -> type[Any]:
    """Return a class for kernels out of the cache that reads their machine code alone.

    The cache also has their code for the compiler, for kernels that call them. Reading that takes
    longer than all else, and is left until one such is compiled.
    """
    base: Any = import_module("numba.core.codegen").JITCodeLibrary
    parse: Callable[[bytes], Any] = import_module("llvmlite.binding").parse_bitcode

    class Library(base):  # type: ignore[misc]
        _unread: bytes | None = None
        _machine_code = b""
        _module: Any = None

        @classmethod
        def _unserialize(cls, codegen: Any, state: Any) -> Any:
            name, kind, data = state
            if kind != "object":
                return super()._unserialize(codegen, state)
            self = codegen.create_library(name)
            self._machine_code, self._unread = data
            self.enable_object_caching()
            self._set_compiled_object(self._machine_code)
            self._finalize_final_module()
            return self

        def get_pointer_to_function(self, name: str) -> int:
            # Machine code has the names of its functions in a table, each with a zero behind it.
            engine = self._codegen._engine  # noqa: SLF001
            if name.encode() + b"\0" in self._machine_code:
                engine._defined_symbols.add(name)  # noqa: SLF001
            return int(super().get_pointer_to_function(name))

        @property
        def _shared_module(self) -> Any:
            if self._unread is not None:
                self._module, self._unread = parse(self._unread), None
                self._codegen._engine._load_defined_symbols(self._module)  # noqa: SLF001
            return self._module

        @_shared_module.setter
        def _shared_module(self, module: Any) -> None:
            self._module = module

    return Library
