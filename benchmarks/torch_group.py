"""Time of teccl's process group beside gloo's own collectives, and the overhead per message.

Starts four local ranks that make each call on both groups in turn, and prints medians:

    python benchmarks/torch_group.py [--repeat N]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

RANKS = 4
SIZES = (65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)
COLLECTIVES = ("allgather", "alltoall", "allreduce")


def write_plans(folder: Path) -> None:
    """Plan for a machine on which every rank reaches every other alike, and messages cost much."""
    from teccl.studies.planning import write_plan
    from teccl.studies.running import Workplace
    from teccl.studies.sweeping import sweep

    place = Workplace(jobs=1, store=False)
    for collective in COLLECTIVES:
        found = sweep(
            f"fully-connected:gpus={RANKS},bandwidth=2GB/s,alpha=50us",
            collective,
            sizes="64KB,256KB,1MB,4MB,16MB",
            max_chunks=1,
            effort="quick",
            place=place,
        )
        write_plan(found, folder / collective, targets=(), place=place)


def member(folder: str, repeat: int) -> None:
    """Measure as one rank."""
    import torch
    import torch.distributed as dist

    import teccl.torch

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    options = teccl.torch.Options(plan=f"{folder}/plans")
    dist.init_process_group(
        "teccl",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=RANKS,
        pg_options=options,
    )
    gloo = dist.new_group(backend="gloo")
    # A barrier wakes the threads of its group; on neither of the two, it favours none.
    meeting = dist.new_group(backend="gloo")
    for collective in COLLECTIVES:
        for size in SIZES:
            data, out = torch.ones(size // 4), torch.empty(size // 4)
            part = data[: size // 4 // RANKS]
            call = {
                "allgather": lambda g, o=out, p=part: dist.all_gather_into_tensor(o, p, group=g),
                "alltoall": lambda g, o=out, d=data: dist.all_to_all_single(o, d, group=g),
                "allreduce": lambda g, d=data: dist.all_reduce(d, group=g),
            }[collective]
            times = _alternating(call, (dist.group.WORLD, gloo), meeting, repeat)
            if rank == 0:
                _print(collective, size, times)
    dist.barrier(group=meeting)
    if rank == 0:
        print(teccl.torch.explain())
    dist.destroy_process_group()


def _alternating(
    call: Callable[[Any], Any], groups: Sequence[Any], meeting: Any, repeat: int
) -> list[list[tuple[float, float]]]:
    """Seconds and processor seconds of calls on each group in turn, from a common start.

    Every other time the groups change places, so that what follows what is the same for all.
    """
    import torch.distributed as dist

    times: list[list[tuple[float, float]]] = [[] for _ in groups]
    pairs = list(zip(times, groups, strict=True))
    for i in range(repeat + 3):
        for found, group in pairs[:: 1 if i % 2 else -1]:
            dist.barrier(group=meeting)
            start, used = time.perf_counter(), time.process_time()
            call(group)
            if i >= 3:
                found.append((time.perf_counter() - start, time.process_time() - used))
    return times


def _print(collective: str, size: int, times: list[list[tuple[float, float]]]) -> None:
    ours, gloos = times
    wall = [median(t for t, _ in each) for each in (ours, gloos)]
    cpu = [median(t for _, t in each) for each in (ours, gloos)]
    paired = median(a / b for (a, _), (b, _) in zip(ours, gloos, strict=True))
    ratios = f"{wall[0] / wall[1]:5.2f} times ({paired:.2f} in pairs)"
    print(
        f"{collective:10} {size:9} B: teccl {wall[0] * 1e3:8.3f} ms, gloo {wall[1] * 1e3:8.3f} ms, "
        f"{ratios}; processor {cpu[0] * 1e3:7.3f} and {cpu[1] * 1e3:7.3f} ms",
        flush=True,
    )


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--folder")
    options = parser.parse_args()
    if options.folder is not None:
        member(options.folder, options.repeat)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_plans(Path(folder) / "plans")
        command = [sys.executable, "-W", "ignore", __file__, "--folder", folder]
        command += ["--repeat", str(options.repeat)]
        ranks = [
            subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"})
            for rank in range(RANKS)
        ]
        for rank in ranks:
            rank.wait()


if __name__ == "__main__":
    main()
