"""Orbits of up to a quarter of a million GPUs: whole commands, their time, memory and files.

Run ``python benchmarks/orbit.py [tori|clusters|tiers|rails|groups|growth|found|faults] ...``;
without names, all.
Every row is the command ``teccl solve ... -o FILE`` in a process of its own, followed by ``teccl
verify FILE``; one of `faults` compares ``--from`` a plan of the whole fabric with planning anew.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from _table import print_table, run_tables

from teccl.topology import Topology

HEADER = (
    *(f"{'topology':>26}", f"{'collective':>13}", f"{'GPUs':>7}", "chunks", "status", "gap %"),
    *("solve s", "CPU s", "peak GB", "verify s", "file MB"),
)
TORI = ("64x64", "16x16x16", "128x128", "32x32x32", "64x64x64")
CLUSTERS = (
    *("dgx-h100:chassis=512", "dgx-h100:chassis=2048"),
    *("gb200-nvl72:chassis=57", "gb200-nvl72:chassis=227"),
)
TIERS = (
    *("fat-tree:k=40", "fat-tree:k=64"),
    *("two-tier:leaves=512,gpus=32,spines=16,oversubscription=2",),
    *("two-tier:leaves=1024,gpus=64,spines=16,oversubscription=4",),
)
# Rails, experts on eight chassis, pods, and ranks with one place on all leaves.
GROUPS = (
    *(("dgx-h100:chassis=2048", "2048:8"), ("dgx-h100:chassis=2048", "64")),
    *(("fat-tree:k=40", "400"), ("fat-tree:k=40", "800:20")),
)
RAILS = (
    *("rail-tree:pods=8,units=8,chassis=32", "rail-tree:pods=8,units=32,chassis=64"),
    *(f"rail-tree:pods=8,units=8,chassis=32,oversubscription={by}" for by in (2, 4)),
)
COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall")
FAULTS = (
    *(f"{'collective':>13}", "faults", "seed", "patch s", "anew s", "ratio", "patch %", "anew %"),
)
# Saved as files, with nodes and links in any order and other names.
FOUND = (
    *("dgx-h100:chassis=2048", "torus:dims=128x128", "fat-tree:k=40"),
    "two-tier:leaves=512,gpus=32,spines=16,oversubscription=2",
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
    rows = (row(spec, collective) for spec in CLUSTERS for collective in COLLECTIVES)
    print_table("clusters, 1 GB; the gap is to the bound for any chunking", HEADER, rows)


def tiers() -> None:
    """Two and three levels of switches, oversubscribed too, one chunk."""
    rows = (row(spec, collective, "--chunks", "1") for spec in TIERS for collective in COLLECTIVES)
    print_table("tiers of switches, 1 GB; the gap is to the bound for these chunks", HEADER, rows)


def groups() -> None:
    """All groups of some ranks at once."""
    rows = (
        row(spec, collective, "--groups", each)
        for spec, each in GROUPS
        for collective in COLLECTIVES
    )
    print_table(
        "groups of ranks, 1 GB each; the gap is to the bound for any chunking", HEADER, rows
    )


def rails() -> None:
    """Leaves, spines and cores of rails, oversubscribed leaves too."""
    rows = (row(spec, collective, "--chunks", "2") for spec in RAILS for collective in COLLECTIVES)
    print_table("rails with three tiers, 1 GB", HEADER, rows)


def drawn_faults(number: int, seed: int, chassis: int = 64) -> list[str]:
    """Options for cables of random GPUs, to the leaf or the NVSwitch, that are down or at half."""
    rng, options = random.Random(seed), []  # noqa: S311, draws of a benchmark
    for place in rng.sample(range(8 * chassis), number):
        gpu = f"c{place // 8}/gpu{place % 8}"
        far = rng.choice([f"leaf{place % 8}", f"c{place // 8}/nvswitch"])
        down = ["--without-link", f"{gpu}:{far}"]
        options += rng.choice([down, ["--degrade", f"{gpu}:{far}=50%"]])
    return options


def fault_row(collective: str, number: int, seed: int) -> tuple[Any, ...]:
    """Processor seconds and gaps of patching a plan, and of planning anew with all sends listed."""
    request = ["solve", "dgx-h100:chassis=64", collective, "--size", "1GB", "--json"]
    faults = drawn_faults(number, seed)
    with tempfile.TemporaryDirectory() as folder:
        healthy = str(Path(folder) / "orbit.json")
        measured([*request, "--orbit", "-o", healthy])
        text, _, busy, _ = measured([*request, "--from", healthy, *faults])
        other, _, anew, _ = measured([*request, *faults, "--threads", "1"])
    gaps = [100 * json.loads(each)["physical_gap"] for each in (text, other)]
    figures = (f"{busy:.1f}", f"{anew:.1f}", f"{busy / anew:.2f}", *(f"{gap:.2f}" for gap in gaps))
    return (collective, number, seed, *figures)


def faults() -> None:
    """One, two and five faults among 512 GPUs."""
    rows = (
        fault_row(collective, number, seed)
        for seed in range(3)
        for collective in COLLECTIVES
        for number in (1, 2, 5)
    )
    print_table("faults in dgx-h100:chassis=64, 1 GB, processor seconds", FAULTS, rows)


def growth() -> None:
    """From 4096 to 65 536 GPUs."""
    rows = (row(f"torus:dims={dims}", "allgather", "--chunks", "1") for dims in GROWTH)
    print_table("growth by factors of four", HEADER, rows)


def shuffled(topology: Topology, seed: int = 0) -> Topology:
    """Return the same network with nodes and links in another order and with other names."""
    rng = random.Random(seed)  # noqa: S311, an order for a benchmark
    order = rng.sample(range(topology.num_nodes), topology.num_nodes)
    place = {node: i for i, node in enumerate(order)}
    nodes = [replace(topology.nodes[n], name=f"n{i}", group=None) for i, n in enumerate(order)]
    links = [replace(x, src=place[x.src], dst=place[x.dst]) for x in topology.links]
    rng.shuffle(links)
    return replace(topology, nodes=tuple(nodes), links=tuple(links))


def found() -> None:
    """Files whose symmetry is found from their links; the time has reading them in it."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for spec in FOUND:
            files.append(str(Path(folder) / f"{spec.split(':')[0]}.json"))
            shuffled(Topology.parse(spec)).save(files[-1])
        rows = (
            (Path(file).name, *row(file, each, "--chunks", "1")[1:])
            for file in files
            for each in ("allgather", "alltoall")
        )
        print_table("shuffled files, 1 GB; the gap is to the bound for these chunks", HEADER, rows)


if __name__ == "__main__":
    run_tables(
        {
            "tori": tori,
            "clusters": clusters,
            "tiers": tiers,
            "rails": rails,
            "groups": groups,
            "growth": growth,
            "found": found,
            "faults": faults,
        },
        __doc__ or "",
    )
