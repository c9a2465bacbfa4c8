"""A rank that joins a group, of which rank 1 dies before or after all have agreed."""

import os
import sys

import torch.distributed as dist
from tests.torch.programs.member import begin, say

from teccl.torch import backend

if os.environ["RANK"] == "1":
    # Agreement is what a group begins with, and connecting follows it.
    setattr(
        backend,
        {"before": "agree", "after": "_backends"}[sys.argv[2]],
        lambda *_, **__: os._exit(9),
    )
try:
    begin(timeout=15.0)
except Exception as problem:  # noqa: BLE001, whatever it is is told
    say(type(problem).__name__, problem)
    os._exit(7)
dist.destroy_process_group()
