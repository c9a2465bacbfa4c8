"""Processes that start without the user's main module, which scripts may not have guarded.

`multiprocessing` lets every process that it spawns run the script that started it once more, for
the sake of functions defined there. Workers of teccl need nothing of it, and a script that calls
a study at its top level would start the study again in each of them.
"""

import contextlib
import threading
from collections.abc import Iterator
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

_LOCK = threading.Lock()
_MAIN = ("init_main_from_name", "init_main_from_path")


class _Process(SpawnProcess):
    """A process that does not load the module its parent was started with."""

    def start(self) -> None:
        """Start it."""
        with _main_left_out():
            super().start()


class MainlessContext(SpawnContext):
    """Spawns processes like `multiprocessing` does, without the main module."""

    Process = _Process


@contextlib.contextmanager
def _main_left_out() -> Iterator[None]:
    """Let this thread, and no other, tell new processes of no main module."""
    own = threading.get_ident()
    with _LOCK:
        prepare = spawn.get_preparation_data

        def prepare_without_main(name: str) -> dict[str, Any]:
            told = prepare(name)
            if threading.get_ident() != own:
                return told
            return {key: value for key, value in told.items() if key not in _MAIN}

        spawn.get_preparation_data = prepare_without_main
        try:
            yield
        finally:
            spawn.get_preparation_data = prepare
