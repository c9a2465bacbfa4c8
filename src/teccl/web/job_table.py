"""Jobs: each solves in a process of its own, can be cancelled, and is forgotten in time."""

import contextlib
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from teccl._spawning import MainlessContext
from teccl.errors import InputError
from teccl.web.job_process import Order, work

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MAX_RUNNING = 2
MAX_WAITING = 16
MAX_KEPT = 40
MAX_UPLOADS = 40
# Events that a page which opens late still gets.
MAX_EVENTS = 2000
# A search hands out its best schedule soon after it is told to stop; one that does not is ended.
GRACE_S = 60.0


class JobState(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TooManyJobsError(InputError):
    """More jobs wait than the app takes."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One request and what came of it so far."""

    number: str
    title: str
    order: Order
    parent: str | None = None
    state: JobState = JobState.WAITING
    created: float = field(default_factory=time.time)
    events: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    error: str | None = None
    is_cancelled: bool = False
    process: BaseProcess | None = None
    connection: "Connection[Any, Any] | None" = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)

    @property
    def schedule_path(self) -> Path:
        """Where the schedule is, once there is one."""
        return self.order.folder / "schedule.json.gz"

    @property
    def report_path(self) -> Path:
        """Where the report is, once there is one."""
        return self.order.folder / "report.html"

    @property
    def has_schedule(self) -> bool:
        """Whether the job left a schedule."""
        return self.is_over and self.report_path.exists()

    def document(self) -> dict[str, Any]:
        """Return the job as the page reads it."""
        return {
            "id": self.number,
            "title": self.title,
            "state": self.state.value,
            "parent": self.parent,
            "result": self.result,
            "error": self.error,
            "has_schedule": self.has_schedule,
        }


class JobStore:
    """All jobs and uploaded files of one run of the app, in a folder that goes with it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="teccl-ui-")
        self._root = Path(self._folder.name)
        self._jobs: dict[str, Job] = {}
        self._uploads: dict[str, Path] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """End all processes and remove all files."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            _end(job)
        self._folder.cleanup()

    def keep_upload(self, name: str, content: bytes) -> tuple[str, Path]:
        """Store an uploaded file under a key; the oldest are forgotten."""
        key = secrets.token_hex(8)
        folder = self._root / f"upload-{key}"
        folder.mkdir()
        path = folder / name
        path.write_bytes(content)
        with self._lock:
            self._uploads[key] = path
            while len(self._uploads) > MAX_UPLOADS:
                oldest = next(iter(self._uploads))
                shutil.rmtree(self._uploads.pop(oldest).parent, ignore_errors=True)
        return key, path

    def upload(self, key: str) -> Path | None:
        """Return the path of an uploaded file."""
        return self._uploads.get(key)

    def forget_upload(self, key: str) -> None:
        """Remove an uploaded file."""
        path = self._uploads.pop(key, None)
        if path is not None:
            shutil.rmtree(path.parent, ignore_errors=True)

    def submit(
        self,
        title: str,
        make_order: Callable[[Path], Order],
        *,
        parent: str | None = None,
    ) -> Job:
        """Queue a job.

        Raises
        ------
        TooManyJobsError
            If too many wait already.
        """
        with self._lock:
            waiting = sum(job.state is JobState.WAITING for job in self._jobs.values())
            if waiting >= MAX_WAITING:
                raise TooManyJobsError(
                    f"{waiting} jobs wait already; cancel some or try again when they are done"
                )
            number = secrets.token_hex(8)
            folder = self._root / f"job-{number}"
            folder.mkdir()
            job = Job(number=number, title=title, order=make_order(folder), parent=parent)
            self._jobs[number] = job
            self._drop_oldest()
        self._start_waiting()
        return job

    def get(self, number: str) -> Job | None:
        """Return a job by its number."""
        return self._jobs.get(number)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def cancel(self, job: Job) -> None:
        """Ask a job to stop with the best it has; asked again, or ignored for long, end it."""
        with self._lock:
            if job.is_over:
                return
            was_asked, job.is_cancelled = job.is_cancelled, True
            if job.state is JobState.WAITING:
                _finish(job, JobState.CANCELLED, error="cancelled before it began")
                return
            connection = job.connection
        if was_asked:
            _end(job)
            return
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.send("cancel")
        killer = threading.Timer(GRACE_S, _end, args=(job,))
        killer.daemon = True
        killer.start()

    def delete(self, job: Job) -> None:
        """Forget a job; a running one is ended."""
        with self._lock:
            # What is not in the list any more is not started either.
            self._jobs.pop(job.number, None)
            job.is_cancelled = True
        _end(job)
        shutil.rmtree(job.order.folder, ignore_errors=True)

    def _drop_oldest(self) -> None:
        over = [job for job in self._jobs.values() if job.is_over]
        for job in over[: max(0, len(self._jobs) - MAX_KEPT)]:
            del self._jobs[job.number]
            shutil.rmtree(job.order.folder, ignore_errors=True)

    def _start_waiting(self) -> None:
        """Start what waits, as far as there is room."""
        with self._lock:
            if self._is_closed:
                return
            running = sum(job.state is JobState.RUNNING for job in self._jobs.values())
            waiting = [job for job in self._jobs.values() if job.state is JobState.WAITING]
            for job in waiting[: max(0, MAX_RUNNING - running)]:
                self._start(job)

    def _start(self, job: Job) -> None:
        # A fresh interpreter: a fork of a server with threads may lock up.
        context = MainlessContext()
        ours, theirs = context.Pipe()
        job.process = context.Process(target=work, args=(job.order, theirs))
        job.connection = ours
        job.state = JobState.RUNNING
        job.process.start()
        theirs.close()
        threading.Thread(target=self._follow, args=(job, ours), daemon=True).start()

    def _follow(self, job: Job, connection: "Connection[Any, Any]") -> None:
        """Note what a job's process tells until it ends, then make room for the next."""
        try:
            while True:
                kind, document = connection.recv()
                if kind == "progress":
                    if len(job.events) < MAX_EVENTS:
                        job.events.append(document)
                elif kind == "done":
                    job.result = document
                    found = job.schedule_path.exists()
                    stopped = JobState.CANCELLED if job.is_cancelled else JobState.DONE
                    _finish(job, JobState.DONE if found else stopped, error=document["message"])
                else:
                    _finish(job, JobState.FAILED, error=document["error"])
        except (EOFError, OSError):
            reason = "its process ended without a result; it may have run out of memory"
            cancelled = "cancelled before the first schedule was found"
            if job.is_cancelled:
                _finish(job, JobState.CANCELLED, error=cancelled)
            else:
                _finish(job, JobState.FAILED, error=reason)
        connection.close()
        if job.process is not None:
            job.process.join()
        self._start_waiting()


def _finish(job: Job, state: JobState, *, error: str | None) -> None:
    """Set the end of a job, once."""
    if not job.is_over:
        job.error = error
        job.state = state


def _end(job: Job) -> None:
    """End a job's process at once, and the solvers that it has started."""
    process = job.process
    if process is None or not process.is_alive():
        return
    if hasattr(os, "killpg") and process.pid is not None:
        # The group exists as soon as the process has set itself up.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join(timeout=5)
