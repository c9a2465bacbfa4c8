"""The training example: the same losses on gloo and on teccl, with DDP and with FSDP."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.torch.ranks import ROOT, TIMEOUT_S, needs_torch
from tests.torch.schedules import solved, write_plan

pytestmark = needs_torch()
SCRIPT = ROOT / "examples" / "train_transformer.py"
EDGES = (0, 2_000, 10_000_000)


def train(folder: Path, steps: int, seed: int, ranks: int = 4) -> str:
    """Run the example on some ranks and return what it prints."""
    for collective in ("allreduce", "allgather", "reducescatter"):
        made = [
            solved(f"fully-connected:gpus={ranks}", collective, size=1000),
            solved(f"ring:gpus={ranks}", collective, size=10**6, method="ring"),
        ]
        ranges = zip(EDGES, EDGES[1:], made, strict=False)
        write_plan(folder / "plans" / collective, [(a, b, s) for a, b, s in ranges])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), str(SCRIPT)]
    done = subprocess.run(
        [*command, "--steps", str(steps), "--seed", str(seed)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
            "TECCL_PLAN": str(folder / "plans"),
        },
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def check(text: str) -> None:
    assert "ddp: losses are the same" in text
    assert "fsdp: losses are the same" in text
    for collective in ("allreduce", "allgather", "reducescatter"):
        assert re.search(rf"{collective} .* schedule  schedule1", text), text


def test_a_few_steps_have_the_same_losses(tmp_path):
    """Gradients, parameters and shards go by schedules."""
    check(train(tmp_path, 2, 0, ranks=2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_training_has_the_same_losses(seed, tmp_path):
    """Fifty steps for three seeds, and the loss falls."""
    text = train(tmp_path, 50, seed)
    check(text)
    for first, last in re.findall(r"loss ([\d.]+) to ([\d.]+)", text):
        assert float(last) < 0.8 * float(first)
