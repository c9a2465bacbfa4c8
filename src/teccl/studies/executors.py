"""Executors: where tasks run, and how the death of a worker is survived.

Any `concurrent.futures.Executor` serves. A `Crew` can make a new one when the old one broke. A
worker that dies takes down every task that was running beside it, so those are run again alone:
the one to blame dies alone, the others are cleared.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import connection
from typing import Any

from teccl._spawning import MainlessContext
from teccl.errors import InputError, TecclError
from teccl.progress import CancelToken
from teccl.runtime.launch import launched_rank
from teccl.studies.hashed_tasks import Task, TaskOutcome, carry_out
from teccl.synthesis.request import read_whole

# Times that a task may lose its worker before it is given up.
MAX_LOSSES = 3
# Seconds in which a Dask scheduler has to answer.
_DASK_S = 5
# Seconds between looks at tasks that run.
_POLL_S = 0.1


class WorkersLostError(TecclError):
    """Workers died and there is no way to get new ones."""


@dataclass(kw_only=True)
class Crew:
    """A source of executors.

    Parameters
    ----------
    start
        Makes an executor; None where tasks run in this process, one after the other.
    width
        Tasks to hand out at a time.
    can_restart
        Whether a broken executor can be replaced by a new one.
    name
        What it is, for messages.
    losses, done
        How often each task lost its worker, and how many tasks came to an end.
    """

    start: Callable[[], Executor] | None
    width: int
    can_restart: bool = True
    name: str = "processes"
    losses: dict[str, int] = field(default_factory=dict)
    done: int = 0

    def run(
        self, tasks: Iterable[Task], cancel: CancelToken | None = None
    ) -> Iterator[TaskOutcome]:
        """Yield what comes of tasks, as it comes.

        After a cancel no task is begun. Those that run are waited for, unless the token has less
        patience: then local processes are ended, and others left to themselves.

        Raises
        ------
        TecclError
            What a task raised, apart from methods that do not serve it.
        """
        if self.start is None:
            for task in tasks:
                if cancel is not None and cancel.is_cancelled:
                    return
                outcome = carry_out(task, cancel)
                if cancel is not None and cancel.is_cancelled:
                    # What was broken off is no answer to the task.
                    return
                yield outcome
            return
        yield from _Shift(self, deque(tasks), cancel).outcomes()


class _Shift:
    """The state of one run over a list of tasks."""

    def __init__(self, crew: Crew, waiting: deque[Task], cancel: CancelToken | None) -> None:
        self.crew = crew
        self.waiting = waiting
        self.suspects: deque[Task] = deque()
        self.running: dict[Future[TaskOutcome], Task] = {}
        self.cancel = cancel
        self.cancelled_at: float | None = None
        self.executor: Executor | None = None

    def outcomes(self) -> Iterator[TaskOutcome]:
        try:
            while self._hand_out():
                done, _ = wait(self.running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                if not done:
                    if self._is_out_of_patience():
                        self._abandon()
                        return
                    continue
                # Broken executors fail all their futures at once; look at them together.
                lost = []
                for future in sorted(done, key=list(self.running).index):
                    task = self.running.pop(future)
                    try:
                        outcome = future.result()
                    except Exception as reason:
                        if not _is_loss(reason):
                            raise
                        lost.append((task, reason))
                    else:
                        self.crew.done += 1
                        yield outcome
                if lost:
                    yield from self._after_loss(lost)
        finally:
            self._close()

    def _hand_out(self) -> bool:
        """Begin as many tasks as may run; say whether any does."""
        stopped = self.cancel is not None and self.cancel.is_cancelled
        while not stopped:
            if self.suspects:
                if self.running:
                    break
                self._submit(self.suspects.popleft())
                break
            if not self.waiting or len(self.running) >= self.crew.width:
                break
            self._submit(self.waiting.popleft())
        return bool(self.running)

    def _is_out_of_patience(self) -> bool:
        """Whether a cancel was so long ago that what still runs is given up."""
        if self.cancel is None or not self.cancel.is_cancelled or self.cancel.patience_s is None:
            return False
        self.cancelled_at = self.cancelled_at or time.monotonic()
        return time.monotonic() - self.cancelled_at > self.cancel.patience_s

    def _abandon(self) -> None:
        """End the processes of a local executor with what they are doing."""
        if isinstance(self.executor, ProcessPoolExecutor):
            for process in list(self.executor._processes.values()):  # noqa: SLF001, no other way
                process.kill()

    def _submit(self, task: Task) -> None:
        if self.executor is None:
            assert self.crew.start is not None
            self.executor = self.crew.start()
        try:
            future = self.executor.submit(carry_out, task)
        except BrokenExecutor as reason:
            # It broke after the last look: this task has not begun, but needs a new executor.
            future = Future()
            future.set_exception(reason)
        self.running[future] = task

    def _after_loss(self, lost: list[tuple[Task, Exception]]) -> Iterator[TaskOutcome]:
        """Give up tasks that lost too many workers, run the others again alone."""
        for task, reason in lost:
            key = task.key
            self.crew.losses[key] = self.crew.losses.get(key, 0) + 1
            if self.crew.losses[key] >= MAX_LOSSES:
                text = f"its worker died {MAX_LOSSES} times ({type(reason).__name__})"
                yield TaskOutcome(task=task, reason=text)
            else:
                self.suspects.append(task)
        given_up = sum(count >= MAX_LOSSES for count in self.crew.losses.values())
        if given_up > 1 and not self.crew.done:
            # Then no task is to blame, and the others would fare no better.
            raise WorkersLostError(
                f"every worker of the {self.crew.name} dies ({type(lost[-1][1]).__name__}), look "
                "at what it printed; --jobs 1 works without any"
            )
        if any(isinstance(reason, BrokenExecutor) for _, reason in lost):
            if not self.crew.can_restart:
                raise WorkersLostError(
                    f"a worker of the {self.crew.name} died and they cannot be started again; "
                    "finished work is in the store, so run the same command again"
                )
            # What still runs on the broken executor fails, too; it comes back at the next look.
            if not self.running:
                self._close()

    def _close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)
        self.executor = None


def _is_loss(reason: BaseException) -> bool:
    """Whether an exception says that a worker is gone, not that its task failed."""
    if isinstance(reason, BrokenExecutor | CancelledError):
        return True
    # Dask's own classes, without loading it for those who do not use it.
    return type(reason).__module__.startswith("distributed.") and type(reason).__name__ in {
        "KilledWorker",
        "CommClosedError",
        "FutureCancelledError",
    }


@contextlib.contextmanager
def open_crew(
    *,
    jobs: int | str | None = None,
    dask: str | None = None,
    mpi: bool | None = None,
    executor: Executor | None = None,
    with_main: bool = False,
) -> Iterator[Crew]:
    """Open the workers that the arguments ask for, and close them at the end.

    Parameters
    ----------
    jobs
        Local processes, None for one for each processor; with 1 there is none, tasks run here.
    dask
        Address of a Dask scheduler, or ``"local"`` for a cluster of `jobs` processes.
    mpi
        Whether to use the other ranks under ``python -m mpi4py.futures``; None finds out.
    executor
        Any other executor; it stays open.
    with_main
        Whether local processes load the main module, for what tasks have of it.
    """
    count = (os.cpu_count() or 1) if jobs is None else read_whole(jobs, "jobs", low=1, high=4096)
    if executor is not None:
        yield Crew(
            start=lambda: _Borrowed(executor), width=10**6, can_restart=False, name="executor"
        )
    elif dask is not None:
        with _dask_crew(dask, count) as crew:
            yield crew
    elif mpi or (mpi is None and "mpi4py.futures" in sys.modules and launched_rank() is not None):
        with _mpi_crew() as crew:
            yield crew
    elif count == 1:
        yield Crew(start=None, width=1)
    else:
        yield Crew(start=lambda: _processes(count, with_main=with_main), width=count)


class _Borrowed(Executor):
    """An executor of the caller, which is not shut down."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        """Hand a call on."""
        return self._executor.submit(function, *args, **keywords)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing."""


def _processes(count: int, *, with_main: bool) -> ProcessPoolExecutor:
    # Forked children would inherit each other's pipes and outlive a killed parent.
    context = multiprocessing.get_context("spawn") if with_main else MainlessContext()
    return ProcessPoolExecutor(count, mp_context=context, initializer=prepare_worker)


def prepare_worker() -> None:
    """Make a worker end with its parent, and leave Ctrl-C to it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextlib.contextmanager
def _dask_crew(address: str, count: int) -> Iterator[Crew]:
    """Yield workers of a Dask cluster, which replaces dead ones itself."""
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise InputError("Dask is not installed; pip install 'teccl[dask]'") from None
    if address != "local" and not re.search(r":\d+/?$", address):
        raise InputError(
            f"Dask address {address[:80]!r} has no port; give one, as tcp://host:8786, or 'local'"
        )
    with contextlib.ExitStack() as stack:
        if address == "local":
            try:
                cluster = distributed.LocalCluster(
                    n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None
                )
            except RuntimeError as reason:
                raise InputError(
                    f"no local Dask cluster ({reason}); its workers load the script that runs: put "
                    'what it does under if __name__ == "__main__"'
                ) from None
            address = stack.enter_context(cluster)
        try:
            client = stack.enter_context(
                distributed.Client(address, timeout=_DASK_S, set_as_default=False)
            )
        except (OSError, ValueError) as reason:
            raise InputError(
                f"no Dask scheduler at {str(address)[:80]} ({reason}); give its address or 'local'"
            ) from None
        width = max(1, sum(client.ncores().values()))
        yield Crew(
            start=lambda: _Borrowed(client.get_executor(pure=False)),
            width=2 * width,
            can_restart=False,
            name="Dask cluster",
        )


@contextlib.contextmanager
def _mpi_crew() -> Iterator[Crew]:
    """Yield the other ranks of an MPI job; MPI itself ends the job when one of them dies."""
    if launched_rank() is None:
        raise InputError(
            "no MPI job to take ranks from; start it with: mpiexec -n N python -m mpi4py.futures "
            "-m teccl ..."
        )
    try:
        futures = import_module("mpi4py.futures")
    except ImportError:
        raise InputError("mpi4py is not installed; pip install 'teccl[mpi]'") from None
    with futures.MPIPoolExecutor(main=False) as pool:
        pool.bootup()
        yield Crew(
            start=lambda: _Borrowed(pool),
            width=max(1, pool.num_workers),
            can_restart=False,
            name="MPI ranks",
        )
