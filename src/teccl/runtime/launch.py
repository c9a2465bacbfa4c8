"""Launch: a schedule file run on ranks, started here and watched over, or there already."""

import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teccl.errors import RunError, ScheduleError, TecclError, VerificationError
from teccl.runtime.watchdog import SUPERVISOR

if TYPE_CHECKING:
    from teccl.runtime.measure import RunOptions
    from teccl.schedule import Schedule

# A variable that every launcher sets for its ranks: MPICH and Slurm (PMI), PMIx, Open MPI, MVAPICH.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
# Idle ranks give their core to others where there are more ranks than cores. MPICH polls a
# thousand times before it yields, and yielding alone leaves a rank runnable: it must sleep.
_YIELD = {
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "0",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
# Open MPI counts cores and refuses more ranks, and refuses to run as root, as in containers.
_OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
_INSTALL = "install it with: pip install 'teccl[mpi]'"
# What a supervisor allows beyond the ranks' own timeout before it ends them itself.
_GRACE_S = 15.0
_START_S = 120.0
_POLL_S = 0.02
_KINDS: dict[str, type[TecclError]] = {
    "input": ScheduleError,
    "verification": VerificationError,
    "run": RunError,
}


def run_file(
    path: str | Path,
    options: "RunOptions",
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
    from teccl.schedule import Schedule
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


def _number_of_ranks(schedule: "Schedule", ranks: int | None) -> int:
    """Return how many ranks to start, refusing a number that does not fit."""
    from teccl.runtime.messages import active_ranks

    active, every = len(active_ranks(schedule)), schedule.problem.topology.num_gpus
    if ranks is None or ranks in (active, every):
        return ranks or active
    needs = f"{active}" if active == every else f"{active} or {every}"
    raise ScheduleError(f"ranks {ranks} do not fit the schedule, which needs {needs}; use auto")


def _in_world(
    path: Path, options: "RunOptions", rank: int, tell: Callable[[BaseException], None] | None
) -> dict[str, Any] | None:
    """Run with the ranks that a launcher has started."""
    from teccl.runtime.measure import measure
    from teccl.runtime.worker import in_world
    from teccl.schedule import Schedule

    def work(comm: Any, watchdog: Any) -> dict[str, Any]:
        schedule = Schedule.load(path)
        watchdog.beat()
        return measure(schedule, comm, options, beat=watchdog.beat).to_dict()

    def keep_silent(_problem: BaseException) -> None:
        """Leave it to the exit code."""

    found = in_world(work, tell or keep_silent, rank=rank, timeout=options.timeout)
    return found if rank == 0 else None


def launched_rank() -> int | None:
    """Rank of this process where an MPI launcher started it, None where none did."""
    for name in _RANK_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None


def check_mpi() -> None:
    """Refuse to go on without mpi4py.

    Raises
    ------
    RunError
        If it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("mpi4py") is None:
        raise RunError(f"mpi4py is not installed and a run needs it; {_INSTALL}")


def check_torch() -> None:
    """Refuse to go on without PyTorch.

    Raises
    ------
    RunError
        If it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise RunError(
            "PyTorch is not installed and the back end torch needs it; "
            "install it with: pip install 'teccl[torch]'"
        )


def find_launcher() -> Path:
    """Return the ``mpiexec`` that came with this Python's MPI, else the one on the path.

    Raises
    ------
    RunError
        If there is none.
    """
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    if site.ENABLE_USER_SITE:
        folders.append(Path(site.getuserbase()) / "bin")
    for folder in folders:
        found = shutil.which("mpiexec", path=str(folder))
        if found:
            return Path(found)
    found = shutil.which("mpiexec")
    if found is None:
        raise RunError(f"no mpiexec beside {sys.executable} or on the path; {_INSTALL}")
    return Path(found)


def rank_environment(ranks: int) -> dict[str, str]:
    """Environment of local ranks; what the user has set stays."""
    cores = len(os.sched_getaffinity(0))
    settings = {**_OPEN_MPI, **(_YIELD if ranks > cores else {})}
    # One thread of numerical libraries per rank is plenty.
    settings["OMP_NUM_THREADS"] = "1"
    return {**settings, **os.environ, SUPERVISOR: str(os.getpid())}


def launch(job: Mapping[str, Any], ranks: int, *, timeout: float | None = None) -> Any:
    """Run a job on local ranks and return what its first rank found.

    Parameters
    ----------
    job
        What `teccl.runtime.worker` is to do, as plain data.
    timeout
        Seconds without a sign of life after which all ranks are ended.

    Raises
    ------
    TecclError
        What a rank raised; a `RunError` where a rank died or hung or MPI is missing.
    """
    check_mpi()
    launcher = find_launcher()
    with tempfile.TemporaryDirectory(prefix="teccl-run-") as name:
        folder = Path(name)
        document = {**job, "ranks": ranks, "folder": name, "timeout": timeout}
        (folder / "job.json").write_text(json.dumps(document), encoding="utf-8")
        command = [str(launcher), "-n", str(ranks), sys.executable, "-m", "teccl.runtime.worker"]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(  # noqa: S603, our own program
                [*command, str(folder / "job.json")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=rank_environment(ranks),
                start_new_session=True,
            )
            with _ended(process, folder):
                hung = _watch(process, folder, timeout)
        return _outcome(process.returncode, folder, launcher, timeout, hung=hung)


def _watch(process: "subprocess.Popen[bytes]", folder: Path, timeout: float | None) -> bool:
    """Wait for the ranks to end; say whether they had to be given up."""
    begin = time.time()
    while process.poll() is None:
        time.sleep(_POLL_S)
        if timeout is None:
            continue
        sign = folder / "alive"
        with suppress(FileNotFoundError):
            if time.time() - sign.stat().st_mtime > timeout + _GRACE_S:
                return True
            continue
        if time.time() - begin > timeout + _GRACE_S + _START_S:
            return True
    return False


@contextmanager
def _ended(process: "subprocess.Popen[bytes]", folder: Path) -> Iterator[None]:
    """Leave no process behind, whichever way the block is left."""
    try:
        yield
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, sign)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=3)
        for pid in _pids(folder).values():
            if _is_worker(pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _pids(folder: Path) -> dict[int, int]:
    """Process of each rank that has come up."""
    found = {}
    for path in folder.glob("pid-*"):
        text = path.read_text(encoding="utf-8")
        if text.isdigit():
            found[int(path.name.removeprefix("pid-"))] = int(text)
    return found


def _is_worker(pid: int) -> bool:
    """Whether a process is still one of our ranks, not another that got its number."""
    with suppress(OSError):
        return b"teccl.runtime.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _outcome(
    code: int | None, folder: Path, launcher: Path, timeout: float | None, *, hung: bool
) -> Any:
    """Read what the ranks left, or raise what ended them."""
    errors = sorted(
        (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("error-*.json")),
        key=lambda error: error["time"],
    )
    own = [error for error in errors if error["own"]]
    # Where a rank was killed, what libraries raise on others is what came of that.
    if own or (errors and not _was_killed(folder)):
        first = (own or errors)[0]
        raise _KINDS[first["kind"]](first["message"])
    if hung:
        raise RunError(
            f"the ranks gave no sign of life for {timeout:g} s and were ended; "
            "give a longer --timeout if they were merely slow"
        )
    result = folder / "result.json"
    if code == 0 and result.exists():
        return json.loads(result.read_text(encoding="utf-8"))
    raise RunError(_reason_of_death(code, folder, launcher))


def _was_killed(folder: Path) -> bool:
    """Whether the launcher says that a rank was killed, not that it ended with an error."""
    output = (folder / "output").read_text(encoding="utf-8", errors="replace")
    return re.search(rf"(?:signal|EXIT CODE:)\s*{int(signal.SIGKILL)}\b", output, re.I) is not None


def _reason_of_death(code: int | None, folder: Path, launcher: Path) -> str:
    """Say which rank died, as far as the launcher tells."""
    output = (folder / "output").read_text(encoding="utf-8", errors="replace")
    pid = re.search(r"PID[ :=]+(\d+)", output)
    ranks = {number: rank for rank, number in _pids(folder).items()}
    named = re.search(r"rank (\d+)", output)
    rank = ranks.get(int(pid[1])) if pid else None
    if rank is None and named is not None:
        rank = int(named[1])
    signals = re.search(r"(?:signal|SIGNAL|EXIT CODE:)\s*(\d+)", output)
    who = "a rank" if rank is None else f"rank {rank}"
    how = f" (signal {signals[1]})" if signals else ""
    if rank is None and not ranks:
        lines = [line for line in output.splitlines() if line.strip()]
        return (
            f"{launcher} ended with code {code} before any rank came up: {' '.join(lines)[-300:]}"
        )
    return f"{who} died{how} and the others were ended; look at its host, or run again"
