"""The former home of `verify` and `simulate`, which now live in two packages of their own."""

import warnings
from importlib import import_module
from typing import Any

_MOVED = {
    "Replay": "teccl.replay",
    "Violation": "teccl.verification",
    "ViolationKind": "teccl.verification",
    "simulate": "teccl.replay",
    "verify": "teccl.verification",
}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'teccl.check' has no attribute {name!r}")
    message = f"teccl.check.{name} has moved; import it from {_MOVED[name]}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(import_module(_MOVED[name]), name)
