"""Compiling all kernels in two processes before the tests: else every worker compiles them all.

As a program it compiles one of the halves, by its number.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from teccl.cli import main
from teccl.construct import warmup
from teccl.topology import Topology

PACKAGE = Path(warmup.__file__).parents[1]
# Commands that call kernels of planners, exporters and proofs.
COMMANDS = (
    "place dgx-h100 --groups tp=4,ep=2 --traffic tp=allreduce:1MB,ep=alltoall:1MB --quiet",
    "solve torus:dims=4x4 allgather --size 1MB --chunks 1 --orbit --quiet -o orbit.json",
    "solve torus:dims=4x4 allgather --size 1MB --chunks 1 --from orbit.json --degrade 0:1=9%",
    "solve torus:dims=4x4 alltoall --size 1MB --chunks 1 --orbit --quiet -o exchange.json",
    "solve torus:dims=4x4 alltoall --size 1MB --chunks 1 --from exchange.json --degrade 0:1=9%",
    "solve ring:gpus=3 allreduce --size 3KB --method ring --quiet -o ring.json",
    "export ring.json --to msccl -o ring.xml --quiet",
    "verify ring.xml --quiet",
)


def compile_half(number: int) -> None:
    """Compile what inserts, or constructions and what the commands call."""
    if number == 0:
        warmup.load_insertion_kernels()
        return
    warmup.load_all_kernels()
    warmup.load_tree_kernels(Topology.parse("star:gpus=3"))
    warmup.load_forest_kernels()
    with tempfile.TemporaryDirectory(prefix="teccl-kernels-") as folder:
        os.chdir(folder)
        for command in COMMANDS:
            if main(shlex.split(command)) != 0:
                sys.exit(f"{command} failed")
        os.chdir("/")


def are_compiled() -> bool:
    """Whether each module of kernels has some in the cache that are younger than it."""
    for path in PACKAGE.rglob("*.py"):
        if "import numba" in path.read_text(encoding="utf-8"):
            caches = (path.parent / "__pycache__").glob(f"{path.stem}.*.nbi")
            if max((cache.stat().st_mtime for cache in caches), default=0) < path.stat().st_mtime:
                return False
    return True


def compile_all() -> None:
    """Compile both halves at a time, unless that was done before."""
    if are_compiled():
        return
    command = [sys.executable, "-m", "tests.kernels"]
    root = Path(__file__).parents[1]
    halves = [subprocess.Popen([*command, number], cwd=root) for number in "01"]
    for half in halves:
        half.wait()


if __name__ == "__main__":
    compile_half(int(sys.argv[1]))
