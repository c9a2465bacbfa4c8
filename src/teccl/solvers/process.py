"""The parent's side of a solver's process: start it, follow it, end it whatever happens."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import teccl
from teccl.linear_model import LinearModel
from teccl.progress import CancelToken
from teccl.solvers import wire
from teccl.solvers.base import OnProgress, Solution, SolverOptions, SolverProgress, SolverStatus

# Seconds between looks at the clock and the cancel token.
POLL_SECONDS = 0.05
# Seconds a back end has to end by itself after its time limit or after it was asked to.
GRACE_SECONDS = 1.0

_Frame = tuple[str, dict[str, Any], dict[str, Any]]


def solve_in_child(
    name: str,
    model: LinearModel,
    options: SolverOptions,
    on_progress: OnProgress | None,
    cancel: CancelToken | None,
) -> Solution:
    """Solve a model with a back end in a process of its own.

    The process ends with this call, also when the call ends by an exception, and it ends by
    itself when this process dies.
    """
    try:
        child = _start()
    except OSError as reason:
        return Solution(status=SolverStatus.ERROR, message=f"cannot start {name}: {reason}")
    follower = _Follower(name, child, options, on_progress, cancel)
    try:
        follower.hand_over(model)
        return follower.follow()
    finally:
        follower.end()


def _start() -> subprocess.Popen[bytes]:
    root = str(Path(teccl.__file__).parent.parent)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-m", "teccl.solvers.child"]
    return subprocess.Popen(  # noqa: S603, our own program
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


class _Follower:
    """Reads a child's frames and decides when it has to end."""

    def __init__(
        self,
        name: str,
        child: subprocess.Popen[bytes],
        options: SolverOptions,
        on_progress: OnProgress | None,
        cancel: CancelToken | None,
    ) -> None:
        self.name = name
        self.child = child
        self.options = options
        self.on_progress = on_progress
        self.cancel = cancel
        self.started = time.perf_counter()
        self.frames: queue.Queue[_Frame | None] = queue.Queue()
        self.kill_at = float("inf")
        self.stopped: SolverStatus | None = None
        self.best: SolverProgress | None = None
        self.bound = -np.inf

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def hand_over(self, model: LinearModel) -> None:
        """Write the model; a child that is gone is noticed when its frames end."""
        settings = {f.name: getattr(self.options, f.name) for f in fields(SolverOptions)}
        start = settings.pop("start")
        settings |= {"name": self.name, "offset": model.offset}
        arrays = {
            key: getattr(model, key)
            for key in ("cost", "lower", "upper", "integer", "row_lower", "row_upper")
        }
        arrays |= {"data": model.matrix.data.astype(np.float64, copy=False)}
        for key in ("indices", "indptr"):
            arrays[key] = getattr(model.matrix, key).astype(np.int32, copy=False)
        if start is not None:
            arrays["start"] = np.asarray(start, dtype=np.float64)
        threading.Thread(target=self._read, daemon=True).start()
        self._write("solve", settings, arrays)

    def follow(self) -> Solution:
        """Pass on news until the child reports its end, dies or must be killed."""
        while True:
            self._check_clock()
            try:
                frame = self.frames.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if frame is None:
                return self._abandoned()
            kind, news, arrays = frame
            if kind == "end":
                return self._ended(news, arrays)
            self._report(news, arrays)

    def end(self) -> None:
        """Leave no process behind."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue

    def _read(self) -> None:
        try:
            while (frame := wire.receive(self._stream(self.child.stdout))) is not None:
                self.frames.put(frame)
        except (ValueError, OSError):
            pass
        self.frames.put(None)

    def _write(self, kind: str, settings: dict[str, Any], arrays: dict[str, Any]) -> None:
        try:
            wire.send(self._stream(self.child.stdin), kind, settings, arrays)
        except OSError:
            return

    @staticmethod
    def _stream(stream: Any) -> BinaryIO:
        assert stream is not None
        return stream

    def _check_clock(self) -> None:
        limit = self.options.time_limit
        if self.stopped is None:
            if self.cancel is not None and self.cancel.is_cancelled:
                self._stop(SolverStatus.INTERRUPTED)
            elif limit is not None and self.seconds > limit + GRACE_SECONDS:
                self._stop(SolverStatus.TIME_LIMIT)
        elif time.perf_counter() > self.kill_at:
            self.child.kill()

    def _stop(self, status: SolverStatus) -> None:
        self.stopped = status
        self.kill_at = time.perf_counter() + GRACE_SECONDS
        self._write("stop", {}, {})

    def _report(self, news: dict[str, Any], arrays: dict[str, Any]) -> None:
        if news["bound"] is not None:
            self.bound = max(self.bound, news["bound"])
        progress = SolverProgress(
            objective=news["objective"],
            bound=self.bound if np.isfinite(self.bound) else None,
            seconds=self.seconds,
            values=arrays.get("values"),
        )
        if progress.values is not None:
            self.best = progress
        if self.on_progress is not None:
            self.on_progress(progress)

    def _ended(self, news: dict[str, Any], arrays: dict[str, Any]) -> Solution:
        status = SolverStatus(news["status"])
        if status is SolverStatus.INTERRUPTED and self.stopped is not None:
            status = self.stopped
        # The last word counts: HiGHS completes a start in a smaller model, whose bounds it
        # reports on the way as if they were this one's.
        bound = self.bound if news["bound"] is None else news["bound"]
        values, objective = arrays.get("values"), news["objective"]
        if values is None and self.best is not None:
            values, objective = self.best.values, self.best.objective
        return Solution(
            status=status,
            objective=None if values is None else objective,
            bound=bound,
            values=values,
            duals=arrays.get("duals"),
            seconds=self.seconds,
            message=news["message"],
        )

    def _abandoned(self) -> Solution:
        """Say why the child is gone without a word; what it had found is kept."""
        code = self.child.wait()
        status = SolverStatus.ERROR if self.stopped is None else self.stopped
        how = f"with code {code}"
        if code < 0:
            how = f"by signal {signal.Signals(-code).name}"
        hint = ", probably for lack of memory" if code == -signal.SIGKILL else ""
        message = f"{self.name} did not stop when asked and was ended"
        if self.stopped is None:
            message = f"the process of {self.name} ended {how}{hint}"
        return Solution(
            status=status,
            objective=None if self.best is None else self.best.objective,
            bound=self.bound,
            values=None if self.best is None else self.best.values,
            seconds=self.seconds,
            message=message,
        )
