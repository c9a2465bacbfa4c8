"""Compiling all kernels in two processes before the tests: else every worker compiles them all.

As a program it compiles one of the halves, by its number.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import teccl
from teccl.cli import main
from teccl.construct.goal import Goal
from teccl.construct.insertion import inserted_plans
from teccl.construct.instance import Instance
from teccl.construct.recreate import recreate
from teccl.demand import Demand
from teccl.exchange import Planner
from teccl.problem import Problem
from teccl.topology import Topology

PACKAGE = Path(teccl.__file__).parent
# Small commands that call all kernels but those of insertion and of exchanges.
HALVES = (
    (
        "place dgx-h100 --groups tp=4,ep=2 --traffic tp=allreduce:1MB,ep=alltoall:1MB --quiet",
        "solve torus:dims=4x4 allgather --size 1MB --chunks 1 --orbit --quiet -o orbit.json",
        "solve torus:dims=4x4 allgather --size 1MB --chunks 1 --from orbit.json --degrade 0:1=9%",
        "solve torus:dims=4x4 alltoall --size 1MB --chunks 1 --orbit --quiet -o exchange.json",
        "solve torus:dims=4x4 alltoall --size 1MB --chunks 1 --from exchange.json --degrade 0:1=9%",
        "solve torus:dims=4x4 allreduce --size 1MB --chunks 1 --orbit --quiet -o sums.json",
        "solve torus:dims=4x4 allreduce --size 1MB --chunks 1 --from sums.json --degrade 0:1=9%",
    ),
    (
        "solve ring:gpus=3 allreduce --size 3KB --method ring --quiet -o ring.json",
        "export ring.json --to msccl -o ring.xml --quiet",
        "verify ring.xml --quiet",
        "solve ring:gpus=3 alltoall --size 3KB --quiet",
        "solve ring:gpus=3 allgather --size 3KB --quiet",
        "solve ring:gpus=3 allreduce --size 3KB --quiet",
        "solve star:gpus=3 allgather --size 3KB --quiet",
        "solve dgx1 allgather --size 1MB --quiet",
        "solve star:gpus=3 allreduce --size 3KB --degrade 0:*=50% --quiet",
    ),
)


def compile_half(number: int) -> None:
    """Insert in the first half and exchange in the second, and run the commands of each."""
    if number == 0:
        _insert()
    else:
        Planner("star:gpus=3").plan([[0, 9, 9], [9, 0, 9], [9, 9, 0]], work=1000)
    with tempfile.TemporaryDirectory(prefix="teccl-kernels-") as folder:
        os.chdir(folder)
        for command in HALVES[number]:
            if main(shlex.split(command)) != 0:
                sys.exit(f"{command} failed")
        os.chdir("/")


def _insert() -> None:
    """Insert what a small problem asks for, and take it out and in again."""
    demand = Demand.collective("alltoall", size="3KB")
    instance = Instance.build(Problem(topology=Topology.parse("ring:gpus=3"), demand=demand))
    for plan in inserted_plans(instance, Goal()):
        recreate(instance, plan, target=0, seed=0, budget=1)


def are_compiled() -> bool:
    """Whether each module of kernels has some in the cache that are younger than it."""
    for path in PACKAGE.rglob("*.py"):
        if "\n@kernel" in path.read_text(encoding="utf-8"):
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
    halves = [subprocess.Popen([*command, str(number)], cwd=root) for number in range(len(HALVES))]
    for half in halves:
        half.wait()


if __name__ == "__main__":
    compile_half(int(sys.argv[1]))
