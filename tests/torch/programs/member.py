"""What a rank of a test does first: join a group of the back end under test."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import teccl.torch


def begin(*, timeout: float = 120.0, backend: str = "teccl", **options) -> tuple[int, int, Path]:
    """Join the world; returns this rank, the number of ranks and the test's folder."""
    torch.set_num_threads(1)
    folder, rank, size = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    given = {"pg_options": teccl.torch.Options(**options)} if options else {}
    dist.init_process_group(
        backend,
        init_method=os.environ.get("MEET_AT", f"file://{folder}/rendezvous"),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
        **given,
    )
    return rank, size, folder


def say(*words: object) -> None:
    """Write a line that the test reads."""
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()
