"""How fast models are built, what buffers and copies are worth, and how good rounds are.

Without names all tables are printed; ``--quick`` leaves out the largest models and everything that
is solved.
"""

import argparse
import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

from _table import print_machine, print_table

import teccl
from teccl import Demand, Problem, TimeGrid, Topology
from teccl.linear_model import LinearModel
from teccl.models.lp.fluid import FluidModel
from teccl.models.lp.fluid_network import fluid_network
from teccl.models.milp.general import build_milp
from teccl.progress import CancelToken, Progress

# Topology, chunks for each GPU and horizon: from a hundred thousand columns to three million.
MODELS = [
    ("ndv2:chassis=2", 1, 90),
    ("ndv2:chassis=2", 2, 120),
    ("ndv2:chassis=2", 4, 130),
    ("ndv2:chassis=2", 6, 180),
    ("ndv2:chassis=2", 8, 300),
]
# Horizons of the linear program for an AllToAll, likewise.
HORIZONS = [90, 130, 258, 516, 1032, 2400]
# Topology and chunks for each GPU of the AllGathers that rounds are judged by.
ROUNDS = [
    (f"internal2:chassis={chassis}{alpha}", chunks)
    for chassis in (8, 16)
    for alpha in ("", ",alpha=0")
    for chunks in (1, 2)
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
        build = partial(build_milp, problem, grid)
        yield f"{spec} x{chunks}", horizon, *measured(build, horizon, lambda milp: milp.model)


def building_rates(*, quick: bool) -> Iterator[tuple[object, ...]]:
    """Seconds and memory to build the linear program."""
    demand = Demand.collective("alltoall", size="1GB")
    problem = Problem(topology=Topology.parse("ndv2:chassis=2"), demand=demand)
    network = fluid_network(problem, TimeGrid.build(problem))
    build = partial(FluidModel.build, network)
    for horizon in HORIZONS[: 3 if quick else None]:
        yield "ndv2:chassis=2", horizon, *measured(build, horizon, lambda fluid: fluid.program)


def measured(
    build: Callable[[int], Any], horizon: int, program: Callable[[Any], LinearModel]
) -> tuple[object, ...]:
    """Columns, rows and entries of the program in a model, and what building it takes."""
    build(20)
    seconds = cpu = float("inf")
    for _ in range(REPEATS):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        model = program(build(horizon))
        seconds = min(seconds, time.perf_counter() - begin)
        cpu = min(cpu, time.process_time() - begin_cpu)
    tracemalloc.start()
    build(horizon)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (
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


def rounds(*, limit: float) -> Iterator[tuple[object, ...]]:
    """Length of A*'s schedules against the best known, and CP-SAT's time to the same length."""
    for spec, chunks in ROUNDS:
        case = {"size": "1MB", "chunks": chunks}
        known = teccl.solve(spec, "allgather", grid=True, **case)
        begin_cpu = _cpu_seconds()
        result = teccl.solve(spec, "allgather", method="astar", **case)
        cpu = _cpu_seconds() - begin_cpu
        seconds = cold_seconds(spec, horizon=result.epochs, limit=limit, **case)
        yield (
            f"{spec} x{chunks}",
            result.epochs,
            known.epochs,
            round(100 * (result.epochs / known.epochs - 1), 1),
            round(result.solve_seconds, 1),
            round(cpu, 1),
            f"> {limit:g}" if seconds is None else round(seconds, 1),
        )


def cold_seconds(spec: str, *, limit: float, **case: object) -> float | None:
    """Seconds that CP-SAT needs for a schedule of some epochs from nothing, None beyond a limit."""
    cancel, begin = CancelToken(), time.perf_counter()
    found: list[float] = []

    def note(progress: Progress) -> None:
        if progress.phase == "schedule":
            found.append(time.perf_counter() - begin)
            cancel.cancel()

    teccl.solve(
        spec,
        "allgather",
        method="milp",
        solver="cpsat",
        warm_start=False,
        time_limit=f"{limit}s",
        progress=note,
        cancel=cancel,
        **case,
    )
    return found[0] if found else None


def _cpu_seconds() -> float:
    """Processor seconds of this process and of the back ends that it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("building", "buffers", "copies", "astar")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    parser.add_argument("--limit", type=float, default=300, help="seconds for CP-SAT from nothing")
    asked = parser.parse_args()
    unknown = set(asked.tables) - set(names)
    if unknown:
        parser.error(f"no table {unknown.pop()!r}; use {', '.join(names)}")
    wanted = asked.tables or (names[:1] if asked.quick else names)
    print_machine()
    if "building" in wanted:
        header = ("model", "epochs", "columns", "rows", "entries")
        header += ("wall s", "cpu s", "us/column", "MB")
        print_table("Building the general model", header, building(quick=asked.quick))
        print_table("Building the linear program", header, building_rates(quick=asked.quick))
    if "buffers" in wanted:
        header = ("AllGather", "unlimited", "none", "s", "s none")
        print_table("Buffers: epochs", header, buffers())
    if "copies" in wanted:
        print_table("Copies: epochs on dgx1", ("size", "copy", "no copy", "ratio"), copies())
    if "astar" in wanted:
        header = ("AllGather of 1 MB", "epochs", "best known", "% over", "wall s", "cpu s")
        print_table("Rounds", (*header, "CP-SAT cold s"), rounds(limit=asked.limit))


if __name__ == "__main__":
    main()
