"""Orbits of up to a quarter of a million GPUs: whole commands, their time, memory and files.

Run ``python benchmarks/orbit.py [tori|clusters|growth] ...``; without names, all. Every row is the
command ``teccl solve ... -o FILE`` in a process of its own, followed by ``teccl verify FILE``.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from _table import print_table, run_tables

HEADER = (
    *(f"{'topology':>26}", f"{'collective':>13}", f"{'GPUs':>7}", "chunks", "status", "gap %"),
    *("solve s", "CPU s", "peak GB", "verify s", "file MB"),
)
TORI = ("64x64", "16x16x16", "128x128", "32x32x32", "64x64x64")
CLUSTERS = (
    *("dgx-h100:chassis=512", "dgx-h100:chassis=2048"),
    *("gb200-nvl72:chassis=57", "gb200-nvl72:chassis=227"),
)
GROWTH = ("64x64", "128x128", "256x256")


def measured(arguments: list[str]) -> tuple[str, float, float, float]:
    """Run a command; return its output, seconds, seconds of processors and peak gigabytes."""
    begin = perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([sys.executable, "-m", "teccl", *arguments], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"teccl {' '.join(arguments)} ended with status {status}")
        out.seek(0)
        text = out.read()
    took = perf_counter() - begin
    return text, took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def row(topology: str, collective: str, *options: str) -> tuple[Any, ...]:
    """Solve, save and verify one case."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "orbit.json"
        request = ["solve", topology, collective, "--size", "1GB", "--orbit", "--json"]
        text, took, busy, peak = measured([*request, *options, "-o", str(path)])
        _, judged, _, _ = measured(["verify", "--quiet", str(path)])
        size = path.stat().st_size / 1e6
    result = json.loads(text)
    gap = result.get("chunk_gap", result["physical_gap"])
    figures = (f"{100 * gap:.3f}", f"{took:.1f}", f"{busy:.1f}", f"{peak:.2f}")
    counts = (result["num_gpus"], result["num_chunks"], result["status"])
    return (topology, collective, *counts, *figures, f"{judged:.1f}", f"{size:.1f}")


def tori() -> None:
    """One chunk per GPU, proven."""
    rows = (
        row(f"torus:dims={dims}", collective, "--chunks", "1")
        for dims in TORI
        for collective in ("allgather", "reducescatter")
    )
    print_table("one chunk on tori, 1 GB; the gap is to the bound for these chunks", HEADER, rows)


def clusters() -> None:
    """Rails and NVSwitches, any chunks."""
    rows = (
        row(spec, collective)
        for spec in CLUSTERS
        for collective in ("allgather", "reducescatter", "allreduce", "alltoall")
    )
    print_table("clusters, 1 GB; the gap is to the bound for any chunking", HEADER, rows)


def growth() -> None:
    """From 4096 to 65 536 GPUs."""
    rows = (row(f"torus:dims={dims}", "allgather", "--chunks", "1") for dims in GROWTH)
    print_table("growth by factors of four", HEADER, rows)


if __name__ == "__main__":
    run_tables({"tori": tori, "clusters": clusters, "growth": growth}, __doc__ or "")
