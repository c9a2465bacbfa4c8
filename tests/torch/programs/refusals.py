"""Groups that must not start; each rank says how each was refused."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from tests.torch.programs.member import say

import teccl.torch

folder, rank, size = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def attempt(name: str, *, timeout: float = 60.0, **options) -> None:
    """Try to start a group and say what came of it."""
    try:
        dist.init_process_group(
            "teccl",
            init_method=f"file://{folder}/{name}.rendezvous",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
            pg_options=teccl.torch.Options(**options),
        )
    except Exception as problem:  # noqa: BLE001, whatever it is is told
        say(name, type(problem).__name__, problem)
    else:
        say(name, "started")


attempt("different-plans", plan=folder / ("plan-a" if rank == 0 else "plan-b"))
attempt("one-without-plan", plan=folder / "plan-a" if rank == 0 else None)
attempt("different-topologies", topology=f"ring:gpus={size}" if rank else f"line:gpus={size}")
attempt("missing-plan", plan=folder / "nowhere")
attempt("missing-on-one", plan=folder / ("plan-a" if rank == 0 else "nowhere"))
attempt("other-world", plan=folder / "plan-of-4")
attempt("damaged", plan=folder / "damaged")
attempt("outside", plan=folder / "outside")
attempt("incorrect", plan=folder / "incorrect")
attempt("other-topology", topology="ring:gpus=5")
attempt("late", timeout=3.0, plan=folder / "plan-a")
try:
    if rank == 0:
        # The others never make the call.
        dist.all_reduce(torch.ones(100))
        say("alone", "ended")
except Exception as problem:  # noqa: BLE001
    say("alone", type(problem).__name__, problem)
    try:
        dist.all_reduce(torch.ones(100))
    except Exception as again:  # noqa: BLE001
        say("again", type(again).__name__, again)
    (folder / "over").touch()
if rank:
    import time

    until = time.monotonic() + 60
    while not (folder / "over").exists() and time.monotonic() < until:
        time.sleep(0.1)
os._exit(0)
