"""A solver's own process: reads a model, streams what the back end finds, ends with its parent.

It runs as a program and imports neither scipy nor the rest of teccl. SIGINT is ignored, because
a terminal sends it to the parent as well, which then asks for the end in its own way.
"""

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from teccl.solvers import wire

FloatArray = npt.NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class SolverJob:
    """A model to solve, as a back end sees it.

    Parameters
    ----------
    arrays
        ``cost, lower, upper, integer, row_lower, row_upper``, the matrix by columns ``data,
        indices, indptr``, and ``start`` if there is one.
    options
        Fields of `SolverOptions` except `start`, and the ``offset`` of the objective.
    """

    arrays: dict[str, npt.NDArray[Any]]
    options: dict[str, Any]
    output: BinaryIO
    stop: threading.Event = field(default_factory=threading.Event)
    on_stop: Callable[[], None] | None = None
    started: float = field(default_factory=time.perf_counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_columns(self) -> int:
        """Number of variables."""
        return len(self.arrays["cost"])

    @property
    def num_rows(self) -> int:
        """Number of constraints."""
        return len(self.arrays["row_lower"])

    @property
    def has_integers(self) -> bool:
        """Whether some column must be whole."""
        return bool(self.arrays["integer"].any())

    def report(
        self, objective: float | None, bound: float | None, values: FloatArray | None = None
    ) -> None:
        """Send news to the parent."""
        self._send("progress", {"objective": objective, "bound": bound}, values=values)

    def finish(
        self,
        status: str,
        *,
        objective: float | None = None,
        bound: float | None = None,
        values: FloatArray | None = None,
        duals: FloatArray | None = None,
        message: str = "",
    ) -> None:
        """Send how it ended."""
        fields = {"status": status, "objective": objective, "bound": bound, "message": message}
        self._send("end", fields, values=values, duals=duals)

    def _send(self, kind: str, fields: dict[str, Any], **arrays: FloatArray | None) -> None:
        fields["seconds"] = time.perf_counter() - self.started
        present = {name: array for name, array in arrays.items() if array is not None}
        with self.lock:
            wire.send(self.output, kind, fields, present)


def main() -> None:
    """Solve the model that comes on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Solvers print where they like; frames go through a copy of standard output.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    source = sys.stdin.buffer
    frame = wire.receive(source)
    if frame is None:
        return
    _kind, options, arrays = frame
    job = SolverJob(arrays=arrays, options=options, output=output)
    threading.Thread(target=_watch, args=(source, job), daemon=True).start()
    if options["memory"]:
        resource.setrlimit(resource.RLIMIT_AS, (options["memory"], options["memory"]))
    try:
        import_module(f"teccl.solvers.{options['name']}").run(job)
    except ImportError as reason:
        # A library that is there but does not load in the memory that is allowed is not missing.
        lacks_room = bool(options["memory"]) and not isinstance(reason, ModuleNotFoundError)
        if lacks_room:
            job.finish("error", message=f"does not load in the memory allowed: {reason}")
        else:
            job.finish("unavailable", message=str(reason))
    except MemoryError:
        job.finish("error", message="out of memory")
    except Exception as reason:  # noqa: BLE001, whatever a back end throws is a message
        job.finish("error", message=f"{type(reason).__name__}: {reason}")
    output.flush()
    # Solver libraries may hang in their own clean-up; there is nothing left to save.
    os._exit(0)


def _watch(source: BinaryIO, job: SolverJob) -> None:
    """Stop the back end when asked to, and end at once when the parent is gone."""
    try:
        while wire.receive(source) is not None:
            job.stop.set()
            if job.on_stop is not None:
                job.on_stop()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
