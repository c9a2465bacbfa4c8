"""The store: finished results in an SQLite file, found again by their task's hash."""

import gzip
import json
import os
import sqlite3
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from teccl.demand import Demand
from teccl.errors import InputError, TecclError
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.result import Attempt, Result, Status
from teccl.schedule import BoundSummary, Schedule
from teccl.schedule.schedule_files import schedule_from_dict, schedule_to_dict
from teccl.studies.hashed_tasks import Task
from teccl.synthesis.request import read_buffer, read_chunks
from teccl.timegrid import TimeGrid
from teccl.units import format_size

# Where the store lies unless the user says otherwise.
VARIABLE = "TECCL_STORE"
# Seconds to wait for another process that writes.
_PATIENCE_S = 60.0
_TABLE = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY,
    topology TEXT NOT NULL,
    collective TEXT NOT NULL,
    size TEXT NOT NULL,
    method TEXT NOT NULL,
    writes INTEGER NOT NULL,
    payload BLOB NOT NULL
)
"""
_SAVE = """
INSERT INTO results VALUES (?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (key) DO UPDATE SET payload = excluded.payload, writes = writes + 1
"""


def default_path() -> Path:
    """Return where results are kept: ``$TECCL_STORE``, or a file in the user's cache folder."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = Path(cache) if cache else Path.home() / ".cache"
    return folder / "teccl" / "studies.sqlite"


class Store:
    """Results that outlive the process; every save is on disk when it returns.

    Parameters
    ----------
    path
        The file, which is made if need be. None is the user's own, or, where that cannot be
        written, a store in memory; ``":memory:"`` is always in memory.

    Raises
    ------
    InputError
        If the file is something else or cannot be written.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = default_path() if path is None else Path(path)
        try:
            self._database = self._open(self.path)
        except (OSError, sqlite3.Error) as reason:
            if path is not None or os.environ.get(VARIABLE):
                raise InputError(
                    f"store {self.path} cannot be used ({reason}); give another with --store"
                ) from None
            self.path = Path(":memory:")
            self._database = self._open(self.path)

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        if str(path) != ":memory:":
            path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=_PATIENCE_S)
        try:
            with database:
                database.execute(_TABLE)
        except sqlite3.Error:
            database.close()
            raise
        return database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def load(self, task: Task) -> Result | None:
        """Return the result of a task, None if there is none.

        A schedule is verified again: what lies on disk may have been damaged or changed. What
        does not pass is as good as absent.
        """
        row = self._database.execute(
            "SELECT payload FROM results WHERE key = ?", (task.key,)
        ).fetchone()
        if row is None:
            return None
        try:
            return _unpack(task, row[0])
        except (TecclError, ValueError, KeyError, TypeError, OSError, EOFError, zlib.error):
            return None

    def save(self, task: Task, result: Result) -> None:
        """Keep the result of a task, unless it was cut short by an interrupt."""
        if result.status is Status.INTERRUPTED:
            return
        sizes = "+".join(format_size(tenant.total_size) for tenant in task.demand.tenants)
        row = (task.key, task.topology.name, task.demand.title, sizes, task.method)
        try:
            with self._database:
                self._database.execute(_SAVE, (*row, _pack(result)))
        except sqlite3.Error as reason:
            raise InputError(
                f"store {self.path} cannot be written ({reason}); give another with --store"
            ) from None

    def writes(self) -> dict[str, int]:
        """Return how often each task's result was saved; more than once means repeated work."""
        return dict(self._database.execute("SELECT key, writes FROM results"))


_PLAIN = ("given_chunks", "epochs", "solve_seconds", "message", "finish_ps")


def _pack(result: Result) -> bytes:
    """Return a result as compressed JSON: figures, and the schedule as a file holds it."""
    document: dict[str, Any] = {name: getattr(result, name) for name in _PLAIN}
    document["status"] = result.status.value
    document["requested_method"] = result.requested_method
    document["tenant_finish_ps"] = list(result.tenant_finish_ps)
    document["tried"] = [list(attempt) for attempt in result.tried]
    document["epoch"] = None if result.grid is None else str(result.grid.epoch)
    document["bound"] = None if result.bound is None else _bound_to_plain(result.bound)
    if result.schedule is not None:
        document["schedule"] = schedule_to_dict(result.schedule)
    return gzip.compress(json.dumps(document).encode(), compresslevel=4, mtime=0)


def _bound_to_plain(bound: BoundSummary) -> dict[str, Any]:
    names = ("physical_ps", "chunk_ps", "epochs", "certificate")
    return {name: getattr(bound, name) for name in names}


def _unpack(task: Task, payload: bytes) -> Result:
    document = json.loads(gzip.decompress(payload))
    schedule: Schedule | None = None
    problem = _problem(task)
    if document.get("schedule") is not None:
        from teccl.verification import verify

        schedule = schedule_from_dict(document["schedule"], where="the stored schedule")
        problem = schedule.problem
        verify(schedule, strict=True)
        if schedule.finish_ps != document["finish_ps"] or _strange(task, problem):
            raise ValueError("the stored schedule is that of another task")
    epoch, bound = document["epoch"], document["bound"]
    return Result(
        status=Status(document["status"]),
        requested_method=document["requested_method"],
        problem=problem,
        schedule=schedule,
        tenant_finish_ps=tuple(document["tenant_finish_ps"]),
        bound=None if bound is None else BoundSummary(**bound),
        grid=None if epoch is None else TimeGrid(problem=problem, epoch=Fraction(epoch)),
        verified=schedule is not None,
        tried=tuple(Attempt(*attempt) for attempt in document["tried"]),
        **{name: document[name] for name in _PLAIN},
    )


def _strange(task: Task, problem: Problem) -> bool:
    """Whether a stored problem is about another network or other members than the task's."""
    return problem.topology != task.topology or _members(problem.demand) != _members(task.demand)


def _members(demand: Demand) -> list[object]:
    # Chunks may have been split, which turns a collective into explicit chunks of the same ranks.
    return [(tenant.name, tenant.ranks, tenant.root) for tenant in demand.tenants]


def _problem(task: Task) -> Problem:
    """Return the problem of a task without a schedule."""
    options = task.options
    chunks = read_chunks(options.get("chunks"), on_grid=False)
    return Problem(
        topology=task.topology,
        demand=task.demand,
        num_chunks=chunks or 1,
        switch=SwitchMode(options.get("switch", "copy")),
        transit=Transit(options.get("transit", "store-and-forward")),
        buffer=read_buffer(options.get("buffer")),
        copy=bool(options.get("copy", True)),
    )
