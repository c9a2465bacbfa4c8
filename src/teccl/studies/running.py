"""Carrying out a study: what the store knows is taken from it, the rest is run and kept."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from teccl.errors import MethodError
from teccl.progress import CancelToken
from teccl.studies.executors import Crew, open_crew
from teccl.studies.hashed_tasks import Task, TaskOutcome
from teccl.studies.store import Store

# Called with each outcome, the number of those that are there and of all.
OnOutcome = Callable[[TaskOutcome, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where a study runs and what it remembers.

    Parameters
    ----------
    jobs, dask, mpi, executor
        See `teccl.studies.executors.open_crew`.
    store
        A store, its file, or None for the user's own; False for none.
    on_outcome
        Whom to tell about each outcome.
    cancel
        Who may stop the study; what is finished stays in the store.
    """

    jobs: int | str | None = None
    dask: str | None = None
    mpi: bool | None = None
    executor: Executor | None = None
    store: Store | str | Path | bool | None = None
    on_outcome: OnOutcome | None = None
    cancel: CancelToken | None = None

    @contextmanager
    def opened(self) -> Iterator["Bench"]:
        """Open the store; workers are started when there is work for them."""
        if isinstance(self.store, Store):
            with nullcontext(self.store) as store:
                yield Bench(self, store)
            return
        # True and None are the user's own store, False is one that is forgotten.
        path = (
            {True: None, False: ":memory:"}.get(self.store)
            if isinstance(self.store, bool)
            else self.store
        )
        with Store(path) as store:
            yield Bench(self, store)


class Bench:
    """An open workplace."""

    def __init__(self, place: Workplace, store: Store) -> None:
        self.place = place
        self.store = store

    def run(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """Return what comes of tasks, in their order; a cancelled study has fewer."""
        unique = list({task.key: task for task in tasks}.values())
        found: dict[str, TaskOutcome] = {}
        missing = []
        for task in unique:
            stored = self.store.load(task)
            if stored is None:
                missing.append(task)
                continue
            outcome = TaskOutcome(task=task, result=stored, is_stored=True)
            self._note(found, outcome, len(unique))
        if missing:
            place = self.place
            with open_crew(
                jobs=_fitting(place.jobs, len(missing)),
                dask=place.dask,
                mpi=place.mpi,
                executor=place.executor,
                with_main=any(task.needs_main for task in missing),
            ) as crew:
                self._carry_out(crew, missing, found, len(unique))
        return [found[task.key] for task in tasks if task.key in found]

    def run_some(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """Return what comes of tasks, as `run` does.

        Raises
        ------
        MethodError
            If every single one failed; the message has the reasons.
        """
        found = self.run(tasks)
        if found and all(outcome.result is None for outcome in found):
            reasons = dict.fromkeys(outcome.reason or "stopped" for outcome in found)
            raise MethodError("; ".join(reasons))
        return found

    def _carry_out(
        self, crew: Crew, tasks: Sequence[Task], found: dict[str, TaskOutcome], total: int
    ) -> None:
        for outcome in crew.run(tasks, self.place.cancel):
            if outcome.result is not None:
                self.store.save(outcome.task, outcome.result)
            self._note(found, outcome, total)

    def _note(self, found: dict[str, TaskOutcome], outcome: TaskOutcome, total: int) -> None:
        found[outcome.task.key] = outcome
        if self.place.on_outcome is not None:
            self.place.on_outcome(outcome, len(found), total)


def _fitting(jobs: int | str | None, tasks: int) -> int | str | None:
    """Return no more processes than there is work for."""
    import os

    if jobs is None:
        return min(os.cpu_count() or 1, tasks)
    return min(int(jobs), tasks) if str(jobs).isdigit() and int(jobs) > 0 else jobs
