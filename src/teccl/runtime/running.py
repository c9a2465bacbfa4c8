"""Running: execute a schedule file on ranks of this machine, or on those one was started with."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from teccl.errors import ScheduleError, VerificationError
from teccl.runtime.launch import check_mpi, launch, launched_rank
from teccl.runtime.measure import Options
from teccl.runtime.messages import active_ranks
from teccl.runtime.worker import in_world
from teccl.schedule import Schedule


def run_file(
    path: str | Path,
    options: Options,
    *,
    ranks: int | None = None,
    tell: Callable[[BaseException], None] | None = None,
) -> dict[str, Any] | None:
    """Run a schedule file and return the report as plain data.

    Parameters
    ----------
    path
        A schedule file.
    options
        How to run it.
    ranks
        How many local ranks to start; None for those the schedule uses. Under ``mpirun`` or
        ``srun`` the ranks are there already.
    tell
        Under ``mpirun``, called on one rank with what went wrong before all ranks end.

    Returns
    -------
    dict or None
        The report; None on all ranks but the first under ``mpirun``.

    Raises
    ------
    TecclError
        If the file is wrong, MPI is missing, or the run failed.
    """
    check_mpi()
    rank = launched_rank()
    if rank is not None:
        return _in_world(Path(path), options, rank, tell)
    from teccl.verification import verify

    schedule = Schedule.load(path)
    faults = verify(schedule)
    if faults:
        raise VerificationError(f"schedule {path} failed verification: {faults[0]}", faults)
    number = _number_of_ranks(schedule, ranks)
    case = {"schedule": str(Path(path).resolve()), "options": asdict(options)}
    reports = launch({"task": "measure", "cases": [case]}, number, timeout=options.timeout)
    report: dict[str, Any] = reports[0]
    return report


def _number_of_ranks(schedule: Schedule, ranks: int | None) -> int:
    """Return how many ranks to start, refusing a number that does not fit."""
    active, every = len(active_ranks(schedule)), schedule.problem.topology.num_gpus
    if ranks is None or ranks in (active, every):
        return ranks or active
    needs = f"{active}" if active == every else f"{active} or {every}"
    raise ScheduleError(f"ranks {ranks} do not fit the schedule, which needs {needs}; use auto")


def _in_world(
    path: Path, options: Options, rank: int, tell: Callable[[BaseException], None] | None
) -> dict[str, Any] | None:
    """Run with the ranks that a launcher has started."""
    from teccl.runtime.measure import measure

    def work(comm: Any, watchdog: Any) -> dict[str, Any]:
        schedule = Schedule.load(path)
        watchdog.beat()
        return measure(schedule, comm, options, beat=watchdog.beat).to_dict()

    def keep_silent(_problem: BaseException) -> None:
        """Leave it to the exit code."""

    found = in_world(work, tell or keep_silent, rank=rank, timeout=options.timeout)
    return found if rank == 0 else None
