"""How fast models are built, and what buffers and copies are worth.

``--quick`` leaves out the largest models and everything that is solved.
"""

import argparse
import time
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction

from _table import print_machine, print_table

import teccl
from teccl import Demand, Problem, TimeGrid, Topology
from teccl.models.milp import build_milp

# Topology, chunks for each GPU and horizon: from a hundred thousand columns to three million.
MODELS = [
    ("ndv2:chassis=2", 1, 90),
    ("ndv2:chassis=2", 2, 120),
    ("ndv2:chassis=2", 4, 130),
    ("ndv2:chassis=2", 6, 180),
    ("ndv2:chassis=2", 8, 300),
]
# Builds of which the fastest counts.
REPEATS = 3


def allgather(topology: str, chunks: int) -> Problem:
    """An AllGather of 1 GB."""
    demand = Demand.collective("allgather", size="1GB")
    return Problem(topology=Topology.parse(topology), demand=demand, num_chunks=chunks)


def building(*, quick: bool) -> Iterator[tuple[object, ...]]:
    """Seconds and memory to build the general model."""
    for spec, chunks, horizon in MODELS[: 3 if quick else None]:
        problem = allgather(spec, chunks)
        grid = TimeGrid.build(problem)
        build_milp(problem, grid, 20)
        seconds = cpu = float("inf")
        for _ in range(REPEATS):
            begin, begin_cpu = time.perf_counter(), time.process_time()
            model = build_milp(problem, grid, horizon).model
            seconds = min(seconds, time.perf_counter() - begin)
            cpu = min(cpu, time.process_time() - begin_cpu)
        tracemalloc.start()
        build_milp(problem, grid, horizon)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield (
            f"{spec} x{chunks}",
            horizon,
            model.num_columns,
            model.num_rows,
            model.matrix.nnz,
            round(seconds, 2),
            round(cpu, 2),
            round(1e6 * cpu / model.num_columns, 2),
            round(peak / 2**20),
        )


def options(*, spec: str, size: str, chunks: int, **changed: object) -> teccl.Result:
    """Solve by the general model with CP-SAT, for two minutes at most."""
    return teccl.solve(
        spec,
        "allgather",
        size=size,
        chunks=chunks,
        method="milp",
        solver="cpsat",
        time_limit="120s",
        **changed,
    )


def buffers() -> Iterator[tuple[object, ...]]:
    """Epochs with unlimited buffers and with none."""
    cases = [("dgx1:alpha=0", chunks, "slowest") for chunks in (1, 2, 3, 4)]
    cases += [(f"{spec}:chassis=2", 1, "fastest") for spec in ("internal1", "internal2")]
    for spec, chunks, epoch in cases:
        size = f"{25 * chunks * Topology.parse(spec).num_gpus}KB"
        found = [
            options(spec=spec, size=size, chunks=chunks, epoch=epoch, buffer=buffer)
            for buffer in ("unlimited", "none")
        ]
        yield (
            f"{spec} x{chunks}",
            *(f"{r.epochs} ({r.status})" for r in found),
            *(round(r.solve_seconds, 1) for r in found),
        )


def copies() -> Iterator[tuple[object, ...]]:
    """Grid time with and without copies on a DGX-1."""
    for size in ("1KB", "200MB"):
        with_copy, without = (
            options(spec="dgx1", size=size, chunks=1, copy=copy) for copy in (True, False)
        )
        ratio = Fraction(without.epochs, with_copy.epochs)
        yield size, with_copy.epochs, without.epochs, float(ratio)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    quick = parser.parse_args().quick
    print_machine()
    header = ("model", "epochs", "columns", "rows", "entries", "wall s", "cpu s", "us/column", "MB")
    print_table("Building the general model", header, building(quick=quick))
    if not quick:
        header = ("AllGather", "unlimited", "none", "s", "s none")
        print_table("Buffers: epochs", header, buffers())
        print_table("Copies: epochs on dgx1", ("size", "copy", "no copy", "ratio"), copies())


if __name__ == "__main__":
    main()
