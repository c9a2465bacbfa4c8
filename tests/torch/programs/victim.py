"""A rank that makes collectives without end, until another dies; then it says what it heard."""

import sys
import time

import torch
import torch.distributed as dist
from tests.torch.programs.member import begin, say

rank, size, folder = begin(timeout=float(sys.argv[2]))
calls = 0
try:
    while True:
        dist.all_reduce(torch.ones(5000))
        out = torch.empty(size * 300)
        work = dist.all_gather_into_tensor(out, torch.ones(300), async_op=True)
        dist.all_reduce(torch.ones(7, dtype=torch.int64), op=dist.ReduceOp.MAX)
        work.wait()
        dist.all_to_all_single(out, torch.ones(size * 300))
        # Larger than the plan's range: the inner group does it.
        dist.all_reduce(torch.ones(60_000))
        dist.barrier()
        calls += 1
        if calls == 3:
            (folder / f"ready-{rank}").touch()
except Exception as problem:  # noqa: BLE001, whatever it is is told
    ended = time.time()
    say(type(problem).__name__, problem)
    say("ended", ended)
    # The store of rank 0 outlives this rank's report by a moment, for the others' questions.
    time.sleep(4)
    sys.exit(7)
