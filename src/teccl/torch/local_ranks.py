"""Launch: start local ranks of torch, watch over them, bring home what the first of them found."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from teccl.errors import RunError, ScheduleError, TecclError, VerificationError
from teccl.runtime.watchdog import SUPERVISOR

# What torchrun and its like set for every rank.
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_POLL_S = 0.02
# Beyond the ranks' own timeout: importing torch takes a while, and so does asking who died.
_GRACE_S = 60.0
_KINDS: dict[str, type[TecclError]] = {
    "input": ScheduleError,
    "verification": VerificationError,
    "run": RunError,
}


def launched_rank() -> int | None:
    """Rank of this process where torchrun or its like started it, None where none did."""
    if all(os.environ.get(name) for name in _LAUNCHED):
        return int(os.environ["RANK"])
    return None


def launch(job: Mapping[str, Any], ranks: int, *, timeout: float) -> Any:
    """Run a job on local ranks and return what its first rank found.

    Parameters
    ----------
    job
        What `teccl.torch.rank_worker` is to do, as plain data.
    timeout
        Seconds without progress after which a rank gives up.

    Raises
    ------
    TecclError
        What a rank raised; a `RunError` where one died.
    """
    with tempfile.TemporaryDirectory(prefix="teccl-run-") as name:
        folder = Path(name)
        document = {**job, "ranks": ranks, "folder": name, "timeout": timeout}
        (folder / "job.json").write_text(json.dumps(document), encoding="utf-8")
        processes = [_start(folder, rank, ranks) for rank in range(ranks)]
        try:
            died = _watch(processes, folder)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
        return _outcome(folder, died)


def _start(folder: Path, rank: int, ranks: int) -> "subprocess.Popen[bytes]":
    environment = {
        "OMP_NUM_THREADS": "1",
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        SUPERVISOR: str(os.getpid()),
    }
    with (folder / f"output-{rank}").open("wb") as output:
        return subprocess.Popen(  # noqa: S603, our own program
            [sys.executable, "-m", "teccl.torch.rank_worker", str(folder / "job.json")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )


def _watch(processes: "list[subprocess.Popen[bytes]]", folder: Path) -> int | None:
    """Wait until all ranks have ended; return one that died without a word."""
    failed_at: float | None = None
    died = None
    while any(process.poll() is None for process in processes):
        time.sleep(_POLL_S)
        failed = [rank for rank, p in enumerate(processes) if p.poll() not in (None, 0)]
        if failed and failed_at is None:
            failed_at = time.monotonic()
            silent = [rank for rank in failed if not (folder / f"error-{rank}.json").exists()]
            died = silent[0] if silent else None
        if failed_at is not None and time.monotonic() - failed_at > _GRACE_S:
            break
    return died


def _outcome(folder: Path, died: int | None) -> Any:
    """Read what the ranks left, or raise what ended them."""
    if died is not None:
        output = (folder / f"output-{died}").read_text(encoding="utf-8", errors="replace")
        last = " ".join(output.split())[-200:]
        raise RunError(f"rank {died} died and the others were ended: {last or 'no output'}")
    errors = sorted(
        (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("error-*.json")),
        key=lambda error: error["time"],
    )
    if errors:
        raise _KINDS[errors[0]["kind"]](errors[0]["message"])
    result = folder / "result.json"
    if not result.exists():
        raise RunError("the ranks ended without a result; run again")
    return json.loads(result.read_text(encoding="utf-8"))
