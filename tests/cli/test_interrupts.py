"""Ctrl-C at any moment of commands that take long: each ends in order and leaves nothing behind."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "teccl"]
COMMANDS = [
    ["solve", "ndv2:chassis=2", "alltoall", "--size", "64MB", "--effort", "thorough"],
    ["solve", "torus:dims=8x8x8", "allgather", "--size", "1GB", "--effort", "thorough"],
    ["solve", "torus:dims=8x8x8", "alltoall", "--size", "1GB"],
    ["sweep", "ndv2:chassis=2", "allreduce", "--sizes", "1KB:1GB", "--no-store"],
    ["compare", "ndv2:chassis=2", "allgather", "--size", "16MB", "--no-store"],
    ["whatif", "dgx1", "allgather", "--size", "1MB", "--n-minus-1", "links", "--no-store"],
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_interrupt_at_any_moment_of_any_command(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is 0 with something to show, 1 or 130 without, and there is no traceback."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    command = COMMANDS[seed % len(COMMANDS)]
    with subprocess.Popen(
        [*PROGRAM, *command, "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # Python's own start is not ours to judge.
        time.sleep(3 + rng.random() * 20)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (0, 1, 130), err
    assert "Traceback" not in err
    assert "internal error" not in err
