"""Figures of `teccl run` and `teccl calibrate`: overhead, emulated links, calibration.

    python benchmarks/run.py [overhead] [emulated] [calibrate]

overhead
    An AllGather of 64 MB on four fully connected ranks beside the MPI library's own, in the same
    run; the ratio of bandwidths should be at least 0.7.
emulated
    Ten schedules on dgx1 and ndv2:chassis=2 with paced links; the median of measured times should
    lie within 10 % of the simulated one, and ring and auto should keep their order.
calibrate
    Alpha and bandwidth of emulated links; both should come back within 10 %.

Use a quiet machine: emulated links measure how soon ranks wake up.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _table import print_machine, print_table

import teccl
from teccl.runtime.calibrate import calibrate_ranks
from teccl.runtime.launch import launch
from teccl.schedule import Schedule

TIMEOUT_S = 120.0
SCHEDULES = [
    ("dgx1", "allgather", "1MB", "auto"),
    ("dgx1", "allgather", "1MB", "ring"),
    ("dgx1", "allreduce", "1MB", "auto"),
    ("dgx1", "allreduce", "1MB", "ring"),
    ("dgx1", "alltoall", "1MB", "auto"),
    ("ndv2:chassis=2", "allgather", "1MB", "auto"),
    ("ndv2:chassis=2", "allgather", "1MB", "ring"),
    ("ndv2:chassis=2", "reducescatter", "1MB", "auto"),
    ("ndv2:chassis=2", "reducescatter", "1MB", "ring"),
    ("ndv2:chassis=2", "alltoall", "1MB", "auto"),
]


def solved(topology: str, collective: str, size: str, method: str, **options: object) -> Schedule:
    """Return a schedule; constructions keep to a few chunks, so that sends are worth pacing."""
    limit = {"max_chunks": 4} if method == "auto" and "chunks" not in options else {}
    result = teccl.solve(topology, collective, size=size, method=method, **limit, **options)
    if result.schedule is None:
        raise SystemExit(f"no schedule for {topology} {collective}")
    return result.schedule


def measured(schedule: Schedule, **options: object) -> dict:
    """Run one schedule on local ranks and return the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.json"
        schedule.save(path)
        options = {"check": True, "timeout": TIMEOUT_S, **options}
        case = {"schedule": str(path), "options": options}
        ranks = schedule.problem.topology.num_gpus
        job = {"task": "measure", "cases": [case]}
        return launch(job, ranks, timeout=TIMEOUT_S)[0]


def overhead() -> Iterator[tuple[object, ...]]:
    """Bandwidth of a large AllGather beside the MPI library's."""
    for chunks in (1, 2, 4):
        schedule = solved("fully-connected:gpus=4", "allgather", "64MB", "auto", chunks=chunks)
        for attempt in range(3):
            row = measured(schedule, repeat=20, warmup=5)["rows"][0]
            ours, theirs = row["teccl"], row["library"]
            yield (
                chunks,
                attempt,
                ours["time_s"] * 1e3,
                theirs["time_s"] * 1e3,
                theirs["time_s"] / ours["time_s"],
                theirs["min_s"] / ours["min_s"],
                ours["wrong"],
            )


def emulated() -> Iterator[tuple[object, ...]]:
    """Measured and simulated times on paced links."""
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for topology, collective, size, method in SCHEDULES:
        report = measured(solved(topology, collective, size, method), emulate=True, repeat=7)
        found, simulated = report["rows"][0]["teccl"]["time_s"], report["simulated_s"]
        scale = report["time_scale"]
        slowest = min(float(rate) for rate in teccl.Topology.parse(topology).rates) / scale
        times.setdefault((topology, collective), []).append((found / scale, simulated / scale))
        yield (
            topology,
            collective,
            method,
            slowest / 1e6,
            simulated * 1e3,
            found * 1e3,
            f"{found / simulated - 1:+.1%}",
            report["wrong"],
        )
    for (topology, collective), pair in times.items():
        if len(pair) == 2:
            kept = (pair[0][0] < pair[1][0]) == (pair[0][1] < pair[1][1])
            yield topology, collective, "order", "", "", "", "kept" if kept else "LOST", ""


def calibrated() -> Iterator[tuple[object, ...]]:
    """Largest errors of alpha and bandwidth over all links of emulated topologies."""
    for name in ("ring:gpus=2", "ring:gpus=4", "dgx1"):
        topology = teccl.Topology.parse(name)
        found = calibrate_ranks(sizes=[], emulate=topology, timeout=TIMEOUT_S)
        assert found is not None
        fits = {(link.src, link.dst): link.fit for link in found.links}
        alphas = [fits[k.src, k.dst].alpha_s / float(k.alpha) - 1 for k in topology.links]
        rates = [fits[k.src, k.dst].bandwidth / float(k.bandwidth) - 1 for k in topology.links]
        worst = [max(errors, key=abs) for errors in (alphas, rates)]
        yield name, len(fits), f"{worst[0]:+.1%}", f"{worst[1]:+.1%}"


PARTS = {
    "overhead": (
        "AllGather of 64 MB on 4 fully connected ranks",
        ("chunks", "attempt", "teccl ms", "MPI ms", "ratio", "ratio of best", "wrong"),
        overhead,
    ),
    "emulated": (
        "Emulated links, 1 MB",
        (
            *("topology      ", "collective   ", "method", "slowest MB/s"),
            *("simulated ms", "measured ms", "difference", "wrong"),
        ),
        emulated,
    ),
    "calibrate": (
        "Calibration of emulated links",
        ("topology   ", "links", "worst alpha", "worst bandwidth"),
        calibrated,
    ),
}


def main(names: list[str]) -> None:
    """Print the tables asked for, or all."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"unknown part {json.dumps(unknown[0])}; choose from {', '.join(PARTS)}")
    print_machine()
    for name in names or PARTS:
        title, header, rows = PARTS[name]
        print_table(title, header, rows())


if __name__ == "__main__":
    main(sys.argv[1:])
