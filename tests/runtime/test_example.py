"""The training script of the documentation works on real ranks."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.ranks import TIMEOUT_S

import teccl
from teccl.runtime.launch import find_launcher, rank_environment

pytest.importorskip("mpi4py", reason="mpi4py is not installed; pip install 'teccl[mpi]'")

SCRIPT = Path(__file__).parents[2] / "examples" / "data_parallel.py"


def test_training_with_a_schedule_matches_the_library(tmp_path):
    """Gradients summed by a schedule give the same weights as those summed by MPI."""
    schedule = tmp_path / "allreduce.json"
    teccl.solve("ring:gpus=4", "allreduce", size="4KB", effort="quick").schedule.save(schedule)
    command = [find_launcher(), "-n", "4", sys.executable, "-m", "mpi4py", SCRIPT, schedule]
    done = subprocess.run(
        [str(part) for part in command],
        env=rank_environment(4),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "weights are the same"
    errors = [float(line.split()[-1]) for line in done.stdout.splitlines() if "error" in line]
    assert errors[0] > errors[2]
