"""Running many schedules in one MPI program, and scripts of their own under mpiexec."""

import subprocess
import sys
from pathlib import Path

from teccl.runtime.launch import find_launcher, launch, rank_environment
from teccl.schedule import Schedule

TIMEOUT_S = 60.0


def run_schedules(folder: Path, cases: list[tuple[Schedule, dict]]) -> list[dict]:
    """Run schedules for the same number of GPUs one after the other and return their reports."""
    (ranks,) = {schedule.problem.topology.num_gpus for schedule, _ in cases}
    listed = []
    for i, (schedule, options) in enumerate(cases):
        path = folder / f"schedule{i}.json"
        schedule.save(path)
        chosen = {"check": True, "timeout": TIMEOUT_S, "repeat": 2, "warmup": 0, **options}
        listed.append({"schedule": str(path), "options": chosen})
    return launch({"task": "measure", "cases": listed}, ranks, timeout=TIMEOUT_S)


def run_script(folder: Path, ranks: int, text: str) -> subprocess.CompletedProcess:
    """Run a program of the user's on some ranks."""
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    command = [str(find_launcher()), "-n", str(ranks), sys.executable, "-m", "mpi4py", str(script)]
    return subprocess.run(
        command,
        env=rank_environment(ranks),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=folder,
    )
