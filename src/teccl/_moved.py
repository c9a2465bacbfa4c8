"""Modules that were moved: an old name still imports, and says once where its contents are now."""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

# Old names of modules with public names, and where these are now.
MOVED = {
    "teccl.bounds.report": "teccl.bounds.bound_report",
    "teccl.exporters": "teccl.formats.writing",
    "teccl.exporters.topologies": "teccl.formats.writing",
    "teccl.importers": "teccl.formats.reading",
    "teccl.plans": "teccl.formats.mscclpp.prove",
    "teccl.programs": "teccl.formats.msccl.prove",
    "teccl.runtime.calibrating": "teccl.runtime.calibrate",
    "teccl.runtime.running": "teccl.runtime.launch",
    "teccl.topology.drawing": "teccl.drawing",
    "teccl.topology.importers": "teccl.formats.reading",
}


class _Loader:
    """Gives the new module for an old name."""

    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make a module that holds what the new one does; the new one stays as it is."""
        module = ModuleType(spec.name)
        # Old packages had modules of their own, some of which are in the table.
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Fill it."""
        new = import_module(self.new)
        names = getattr(new, "__all__", [name for name in vars(new) if not name.startswith("_")])
        module.__dict__.update({name: getattr(new, name) for name in names})
        warnings.warn(
            f"{module.__name__} is now {self.new}; the old name goes in version 0.3",
            DeprecationWarning,
            stacklevel=2,
        )


class _Finder:
    """Asked for a module before all others: an old folder may be left with caches in it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004, the protocol's
        """Where a module is, if its old name is known."""
        new = MOVED.get(name)
        return None if new is None else ModuleSpec(name, _Loader(new), is_package=True)  # type: ignore[arg-type]


def install() -> None:
    """Let old names be imported."""
    sys.meta_path.insert(0, _Finder)
