"""Worker: what one rank of a run or a calibration does, whoever started it."""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from teccl.errors import InputError, RunError, VerificationError
from teccl.runtime.watchdog import Watchdog
from teccl.runtime.worker import kind_of, remove_folder

_EXIT_CODES = {"input": 2, "verification": 3, "run": 1}
# A rank that failed stays this long, so that others can ask the store who is to blame.
_FAREWELL_S = 5.0


def in_world(work: Callable[[], Any], *, timeout: float, method: str | None = None) -> Any:
    """Join the ranks of this run, do the work and leave.

    Parameters
    ----------
    timeout
        Seconds without progress after which a rank gives up.
    method
        Where the ranks meet; None as the launcher says.
    """
    dist.init_process_group(
        "gloo",
        init_method=method,
        timeout=timedelta(seconds=timeout),
        **({} if method is None else _from_environment()),
    )
    found = work()
    dist.destroy_process_group()
    return found


def _from_environment() -> dict[str, int]:
    return {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}


def run_job(job: dict[str, Any]) -> Any:
    """Do the job that a launcher has written down."""
    return _JOBS[job["task"]](job)


def _measure(job: dict[str, Any]) -> dict[str, Any]:
    from teccl.runtime.measure import RunOptions
    from teccl.schedule import Schedule
    from teccl.torch.measuring import measure

    return measure(Schedule.load(job["schedule"]), RunOptions(**job["options"])).to_dict()


def _calibrate(job: dict[str, Any]) -> dict[str, Any]:
    from teccl.runtime.pingpong import PingPongPlan
    from teccl.torch.link_times import measure_links

    return measure_links(PingPongPlan.from_dict(job["plan"]))


_JOBS: dict[str, Callable[[dict[str, Any]], Any]] = {"measure": _measure, "calibrate": _calibrate}


def main(path: str) -> int:
    """Run the job in a file as one of its ranks."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    folder, rank = Path(job["folder"]), int(os.environ["RANK"])
    meet = f"file://{folder}/rendezvous"
    try:
        # Torch has timeouts of its own; this one looks whether the launcher is still there.
        with Watchdog(None, lambda: None, on_orphaned=lambda: remove_folder(folder)):
            result = in_world(lambda: run_job(job), timeout=job["timeout"], method=meet)
    except Exception as problem:  # noqa: BLE001, the launcher tells the user
        known = isinstance(problem, InputError | RunError | VerificationError)
        text = str(problem) if known else f"rank {rank}: {type(problem).__name__}: {problem}"
        error = {"kind": kind_of(problem), "message": text, "time": time.time()}
        _write(folder / f"error-{rank}.json", error)
        time.sleep(_FAREWELL_S)
        # Threads of a broken group may still wait for ranks that are gone.
        os._exit(_EXIT_CODES[kind_of(problem)])
    if rank == 0:
        _write(folder / "result.json", result)
    return 0


def _write(path: Path, document: Any) -> None:
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(json.dumps(document), encoding="utf-8")
    hidden.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
