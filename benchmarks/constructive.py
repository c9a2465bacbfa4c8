"""The tables behind the constructive scheduler's claims: finish, bound, gap and synthesis time.

Run ``python benchmarks/constructive.py [paper|ndv2|dgx1|grids|large] ...``; without names, all.
``--json FILE`` appends every row as a JSON line, with its processor seconds. ``--compare`` holds
rows against those of an earlier commit, at most 0.1 % later and 1.3 times as dear.
"""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from _table import print_table, run_tables

import teccl

DATA = Path(__file__).parent / "data"
LARGE = (
    "dgx2:chassis=2",
    "ndv2:chassis=4",
    "dgx-h100:chassis=4",
    "gb200-nvl72",
    "internal1:chassis=16",
    "internal2:chassis=16",
)


def paper_rows(variant: str) -> Iterator[dict[str, str]]:
    """Rows of the paper's NDv2 table."""
    with (DATA / "paper_ndv2_2chassis.csv").open() as stream:
        yield from (row for row in csv.DictReader(stream) if row["variant"] == variant)


def paper() -> None:
    """Solve the paper's NDv2 table on the paper's own grid."""

    def rows() -> Iterator[tuple[object, ...]]:
        for row in paper_rows("fastest_link_epoch"):
            result = teccl.solve(
                "ndv2:chassis=2",
                row["collective"],
                size=row["output_buffer"],
                chunks=1,
                grid=True,
                epoch=f"{row['epoch_us']}us",
            )
            grid_us, finish_us = result.grid_time_s * 1e6, result.finish_time_s * 1e6
            best = grid_us if row["collective"] == "allgather" else min(grid_us, finish_us)
            theirs = float(row["finish_us"])
            yield (
                row["collective"],
                row["output_buffer"],
                grid_us,
                finish_us,
                theirs,
                row["taccl_finish_us"] or "-",
                "ok" if best <= theirs * (1 + 1e-9) else "LATER",
                result.status.value,
                result.solve_seconds,
                row["solver_s"],
            )

    header = (
        "collective",
        "size",
        "grid us",
        "finish us",
        "paper us",
        "TACCL us",
        "verdict",
        "status",
        "solve s",
        "paper s",
    )
    print_table("NDv2, 2 chassis, one chunk, the paper's epochs", header, rows())


def ndv2() -> None:
    """Solve the same sizes with automatic chunks, off the grid."""

    def rows() -> Iterator[tuple[object, ...]]:
        for row in paper_rows("fastest_link_epoch"):
            result = teccl.solve("ndv2:chassis=2", row["collective"], size=row["output_buffer"])
            yield (
                row["collective"],
                row["output_buffer"],
                result.num_chunks,
                result.finish_time_s * 1e6,
                result.physical_bound_s * 1e6,
                f"{100 * result.physical_gap:.3f} %",
                float(row["finish_us"]),
                result.solve_seconds,
            )

    header = ("collective", "size", "chunks", "finish us", "bound us", "gap", "paper us", "solve s")
    print_table("NDv2, 2 chassis, automatic chunks", header, rows())


def dgx1() -> None:
    """Solve SCCL's instances on DGX1."""
    with (DATA / "paper_sccl_instance.csv").open() as stream:
        theirs = [row for row in csv.DictReader(stream) if row["collective"] == "allgather"]

    def rows() -> Iterator[tuple[object, ...]]:
        for row in theirs:
            chunks = int(row["chunks"])
            result = teccl.solve(
                "dgx1:alpha=0",
                "allgather",
                size=f"{200 * chunks}KB",
                chunks=chunks,
                grid=True,
                epoch="slowest",
            )
            yield (
                chunks,
                row["epochs"],
                result.epochs,
                result.bound_epochs,
                result.status.value,
                result.solve_seconds,
                row["sccl_solver_s"],
                row["teccl_solver_s"],
            )

    header = ("chunks", "SCCL", "epochs", "bound", "status", "solve s", "SCCL s", "paper s")
    print_table("DGX1, alpha 0, AllGather", header, rows())


def grids() -> None:
    """Solve meshes and tori, one chunk a GPU."""
    specs = [f"{kind}:dims={d}x{d},alpha=0" for kind in ("mesh", "torus") for d in range(3, 17)]
    specs += [f"torus:dims={dims},alpha=0" for dims in ("4x4x4", "6x6x6")]
    with (DATA / "peers.csv").open() as stream:
        peers = {row["topology"]: row for row in csv.DictReader(stream) if row["tool"] == "tacos"}

    def rows() -> Iterator[tuple[object, ...]]:
        for spec in specs:
            result = teccl.solve(spec, "allgather", size="1MB", chunks=1, grid=True)
            peer = peers.get(spec.replace(":dims=", " ").removesuffix(",alpha=0"))
            yield (
                spec,
                result.epochs,
                result.bound_epochs,
                result.status.value,
                result.solve_seconds,
                peer["value"] if peer else "-",
                peer["synthesis_s"] if peer else "-",
            )

    header = (f"{'topology':>24}", "epochs", "bound", "status", "solve s", "TACOS", "TACOS s")
    print_table("Meshes and tori, AllGather, one chunk", header, rows())


def large() -> None:
    """Solve large sizes on multi-chassis machines."""
    cases = [
        (spec, name, {})
        for spec in LARGE
        for name in ("allgather", "reducescatter", "allreduce", "alltoall")
    ]
    half = {"gpu0:*": "50%"}
    cases += [
        ("dgx1", "allreduce", {}),
        ("dgx1", "allreduce", half),
        ("dgx-h100:chassis=4", "allreduce", {"c0/gpu0:*": "50%"}),
    ]

    def rows() -> Iterator[tuple[object, ...]]:
        for spec, name, degrade in cases:
            result = teccl.solve(spec, name, size="256MB", degrade=degrade)
            label = spec + (" one gpu at half" if degrade else "")
            yield (
                label,
                name,
                result.num_chunks,
                result.finish_time_s * 1e6,
                result.physical_bound_s * 1e6,
                f"{100 * result.physical_gap:.3f} %",
                result.num_sends,
                result.solve_seconds,
            )

    header = (
        f"{'topology':>34}",
        f"{'collective':>13}",
        "chunks",
        "finish us",
        "bound us",
        "gap",
        "sends",
        "solve s",
    )
    print_table("256 MB, automatic chunks", header, rows())


TABLES: dict[str, Callable[[], None]] = {
    "paper": paper,
    "ndv2": ndv2,
    "dgx1": dgx1,
    "grids": grids,
    "large": large,
}


if __name__ == "__main__":
    run_tables(TABLES, __doc__)
