"""Worker: what one rank does, whoever started it.

``mpiexec -n N python -m teccl.runtime.worker JOB`` is how `teccl.runtime.launch` starts local
ranks; under a user's own ``mpirun`` or ``srun`` the command line calls `in_world` itself.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from teccl.errors import InputError, RunError, VerificationError
from teccl.runtime.watchdog import Watchdog, end_all_ranks

# Beyond the timeout of a run itself, which says more about what is missing.
_SLACK_S = 3.0
# Other ranks hold their tongue for this long, so that one tells the user what all have seen.
_SILENCE_S = 1.0
# Tries to remove a folder that others write into.
_REMOVALS = 100

_EXIT_CODES = {"input": 2, "verification": 3, "run": 1}


def kind_of(problem: BaseException) -> str:
    """Return the kind of an error: what the user gave, the schedule, or the run."""
    if isinstance(problem, VerificationError):
        return "verification"
    return "input" if isinstance(problem, InputError) else "run"


def in_world(
    work: Callable[[Any, Watchdog], Any],
    tell: Callable[[BaseException], None],
    *,
    rank: int,
    timeout: float | None,
    on_beat: Callable[[], None] | None = None,
    on_orphaned: Callable[[], None] | None = None,
) -> Any:
    """Do a rank's work in ``MPI.COMM_WORLD``; whatever goes wrong on one rank ends all.

    Parameters
    ----------
    work
        Called with the communicator and a watchdog that wants to hear from it.
    tell
        Called once, on one rank, with what went wrong.
    rank
        This process's rank, which must be known before MPI starts.
    timeout
        Seconds without a sign of life.
    on_beat, on_orphaned
        As for a `Watchdog`.
    """

    def fail(problem: BaseException) -> None:
        if rank:
            time.sleep(_SILENCE_S)
        tell(problem)
        end_all_ranks(_EXIT_CODES[kind_of(problem)])

    def late() -> None:
        tell(RunError(f"rank {rank} hung for {timeout:g} s inside MPI; all ranks were ended"))

    limit = None if timeout is None else timeout + _SLACK_S
    with Watchdog(limit, late, on_beat, on_orphaned) as watchdog:
        try:
            from mpi4py import MPI

            return work(MPI.COMM_WORLD, watchdog)
        except BaseException as problem:  # noqa: BLE001, no rank may leave the others waiting
            fail(problem)
    return None


def run_job(job: dict[str, Any], comm: Any, watchdog: Watchdog) -> Any:
    """Do the job that a launcher has written down."""
    if comm.Get_size() != job["ranks"]:
        from teccl.runtime.library import library_name

        raise RunError(
            f"mpiexec started {job['ranks']} ranks that see {comm.Get_size()}: it belongs to "
            f"another MPI than mpi4py, which uses {library_name()}; "
            "install both with: pip install 'teccl[mpi]'"
        )
    return _JOBS[job["task"]](job, comm, watchdog)


def _measure(job: dict[str, Any], comm: Any, watchdog: Watchdog) -> list[dict[str, Any]]:
    """Run schedules one after the other."""
    from teccl.runtime.measure import RunOptions, measure
    from teccl.schedule import Schedule

    reports = []
    for case in job["cases"]:
        schedule = Schedule.load(case["schedule"])
        watchdog.beat()
        options = RunOptions(**case["options"])
        reports.append(measure(schedule, comm, options, beat=watchdog.beat).to_dict())
    return reports


def _calibrate(job: dict[str, Any], comm: Any, watchdog: Watchdog) -> dict[str, Any]:
    """Measure links."""
    from teccl.runtime.pingpong import PingPongPlan, measure_links

    return measure_links(PingPongPlan.from_dict(job["plan"]), comm, beat=watchdog.beat)


_JOBS: dict[str, Callable[[dict[str, Any], Any, Watchdog], Any]] = {
    "measure": _measure,
    "calibrate": _calibrate,
}


def remove_folder(folder: Path) -> None:
    """Remove a folder in which other ranks may still write."""
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def main(path: str) -> int:
    """Run the job in a file as one of its ranks."""
    from teccl.runtime.launch import launched_rank

    job = json.loads(Path(path).read_text(encoding="utf-8"))
    folder, rank = Path(job["folder"]), launched_rank() or 0
    (folder / f"pid-{rank}").write_text(str(os.getpid()), encoding="utf-8")

    def tell(problem: BaseException) -> None:
        text = (
            str(problem) if isinstance(problem, InputError | RunError | VerificationError) else ""
        )
        message = text or f"rank {rank}: {type(problem).__name__}: {problem}"
        error = {"kind": kind_of(problem), "message": message, "time": time.time()}
        error["own"] = bool(text)
        hidden = folder / f".error-{rank}"
        hidden.write_text(json.dumps(error), encoding="utf-8")
        hidden.replace(folder / f"error-{rank}.json")

    def sign() -> None:
        if rank == 0:
            (folder / "alive").touch()

    sign()
    result = in_world(
        lambda comm, watchdog: run_job(job, comm, watchdog),
        tell,
        rank=rank,
        timeout=job["timeout"],
        on_beat=sign,
        on_orphaned=lambda: remove_folder(folder),
    )
    if rank == 0:
        hidden = folder / ".result"
        hidden.write_text(json.dumps(result), encoding="utf-8")
        hidden.replace(folder / "result.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
