"""Hundreds and thousands of GPUs: finish, bound, gap, synthesis time and peak memory.

Run ``python benchmarks/scale.py [grids|degraded|faulty|paper|clusters|growth|replan|verify] ...``;
without names, all. Every case runs in a process of its own, so that its peak memory is its own.
Finish and bound are epochs on a grid, else microseconds. ``--json FILE`` appends every row as a
JSON line. ``--compare`` holds rows against those of an earlier commit, at most 0.1 % later and 1.3
times as dear.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from _table import print_table, run_tables

from teccl.topology import Topology

Case = tuple[str, str, dict[str, Any]]

GRID = {"size": "1MB", "chunks": 1, "grid": True}
CUT = {**GRID, "without_links": ["gpu0:gpu1"]}
FIELDS = ("chunks", "finish", "bound", "gap", "sends", "solve s", "CPU s", "peak GB")
HEADER = (f"{'topology':>32}", f"{'collective':>13}", *FIELDS)
ALL = ("allgather", "reducescatter", "allreduce", "alltoall")


def faults(gpus: int) -> dict[str, dict[str, Any]]:
    """What may break in a fabric of so many GPUs."""
    return {
        "one link at half rate": {"degrade": ["gpu0:gpu1=50%"]},
        "one link gone": {"without_links": ["gpu0:gpu1"]},
        "one GPU gone": {"without_links": ["gpu5:*"], "ranks": f"0-4,6-{gpus - 1}"},
    }


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Run one case in a process of its own."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        return {"chunks": lines[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def solve_case(case: dict[str, Any]) -> dict[str, Any]:
    """Solve a case, as often as it says, and tell what came of it."""
    import teccl

    results = [
        teccl.solve(case["topology"], case["collective"], **case["options"])
        for _ in range(case.get("repeats", 1))
    ]
    result = results[-1]
    if "save" in case:
        result.schedule.save(case["save"])
    finish, bound = result.finish_time_s * 1e6, result.physical_bound_s * 1e6
    if result.epochs is not None:
        finish, bound = result.epochs, result.bound_epochs
    figures = (
        result.num_chunks,
        finish,
        bound,
        f"{100 * (finish / bound - 1):.2f} %",
        result.num_sends,
        median(each.solve_seconds for each in results),
        *used(),
    )
    return dict(zip(FIELDS, figures, strict=True))


def verify_case(case: dict[str, Any]) -> dict[str, Any]:
    """Load and verify a file."""
    from teccl.schedule import Schedule
    from teccl.verification import verify

    begin = perf_counter()
    schedule = Schedule.load(case["verify"])
    faults = verify(schedule)
    seconds = perf_counter() - begin
    cpu_s, peak_gb = used()
    size_mb = Path(case["verify"]).stat().st_size / 1e6
    return {
        "sends": len(schedule),
        "faults": len(faults),
        "seconds": seconds,
        "CPU s": cpu_s,
        "peak GB": peak_gb,
        "file MB": size_mb,
    }


def used() -> tuple[float, float]:
    """Processor seconds of this process and its children, and the largest one's peak in GB."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return cpu_s, max(own.ru_maxrss, children.ru_maxrss) * 1024 / 1e9


def print_cases(title: str, cases: Iterable[Case]) -> None:
    """Print what came of some cases."""

    def rows() -> Iterator[tuple[object, ...]]:
        for topology, collective, options in cases:
            case = {"topology": topology, "collective": collective, "options": options}
            found = run_case(case)
            yield (topology, collective, *(found.get(name, "-") for name in FIELDS))

    print_table(title, HEADER, rows())


def grids() -> None:
    """AllGather on meshes and tori, one chunk a GPU, on the grid."""
    dims = ("torus:dims=32x32", "torus:dims=10x10x10", "torus:dims=8x8x8", "mesh:dims=32x32")
    dims += ("torus:dims=64x64", "torus:dims=16x16x16")
    print_cases("Meshes and tori", [(f"{spec},alpha=0", "allgather", GRID) for spec in dims])


def degraded() -> None:
    """Solve tori that have lost one link, and with it their symmetry."""
    dims = ("32x32", "10x10x10", "8x8x8", "64x64", "16x16x16")
    cases = [(f"torus:dims={each},alpha=0", "allgather", CUT) for each in dims]
    print_cases("Tori without one link", cases)


def faulty() -> None:
    """Solve clusters behind switches with a fault, which leaves them without symmetry."""
    for title, size, specs, far, near in (
        ("64 MB", "64MB", ("internal1:chassis=32", "internal2:chassis=128"), "switch", "c0/gpu1"),
        ("1 GB", "1GB", ("dgx-h100:chassis=64", "gb200-nvl72:chassis=8"), "leaf0", "c0/nvswitch"),
    ):
        cases: list[Case] = []
        for spec in specs:
            link = f"c0/gpu0:{far}"
            others = f"1-{Topology.parse(spec).num_gpus - 1}"
            changes = (
                {"degrade": [f"c0/gpu0:{near}=50%"]},
                {"degrade": [f"{link}=50%"]},
                {"without_links": [link]},
                {"without_links": ["c0/gpu0:*"], "ranks": others},
            )
            for name in ALL:
                cases += [(spec, name, {"size": size, **change}) for change in changes]
        kinds = "One link inside a chassis or one uplink at half rate, an uplink or a GPU gone"
        print_cases(f"{kinds}, {title}", cases)


def paper() -> None:
    """Solve the paper's large machines at 64 MB."""
    size = {"size": "64MB"}
    gathers = ("internal1:chassis=16", "internal1:chassis=32")
    gathers += ("internal2:chassis=64", "internal2:chassis=128")
    swaps = [f"internal1:chassis={count}" for count in (4, 8, 16, 32)]
    swaps += [f"internal2:chassis={count}" for count in (64, 128)]
    cases: list[Case] = [(spec, "allgather", size) for spec in gathers]
    cases += [(spec, "alltoall", size) for spec in swaps]
    print_cases("The paper's large machines, 64 MB", cases)


def clusters() -> None:
    """Solve 512 and 576 GPUs behind switches at 1 GB."""
    specs = ("dgx-h100:chassis=64", "gb200-nvl72:chassis=8")
    cases: list[Case] = [(spec, name, {"size": "1GB"}) for spec in specs for name in ALL]
    print_cases("Switched clusters, 1 GB", cases)


def growth() -> None:
    """Double the GPUs twice."""
    cases: list[Case] = [
        (f"torus:dims={dims},alpha=0", "allgather", CUT) for dims in ("16x16", "32x16", "32x32")
    ]
    cases += [
        (f"internal2:chassis={count}", "allgather", {"size": "64MB"}) for count in (128, 256, 512)
    ]
    print_cases("Growth from 256 to 1024 GPUs", cases)


def replan() -> None:
    """Plan faulty fabrics from scratch and from the healthy schedule, median of five."""
    header = (
        f"{'topology':>24}",
        f"{'fault':>24}",
        "scratch s",
        "from s",
        "ratio",
        "gap",
        "gap from",
    )

    def rows() -> Iterator[tuple[object, ...]]:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "healthy.json.gz")
            for spec, gpus in (("torus:dims=8x8,alpha=0", 64), ("torus:dims=32x32,alpha=0", 1024)):
                base = {"topology": spec, "collective": "allgather"}
                run_case({**base, "options": GRID, "save": path})
                for fault, change in faults(gpus).items():
                    case = {**base, "options": {**GRID, **change}, "repeats": 5}
                    fresh = run_case(case)
                    case["options"] = {**case["options"], "from_schedule": path}
                    again = run_case(case)
                    yield (
                        spec,
                        fault,
                        fresh["solve s"],
                        again["solve s"],
                        again["solve s"] / fresh["solve s"],
                        fresh["gap"],
                        again["gap"],
                    )

    print_table("Planning again", header, rows())


def verifying() -> None:
    """Verify a schedule of a million sends."""
    header = ("sends", "faults", "seconds", "CPU s", "peak GB", "file MB")

    def rows() -> Iterator[tuple[object, ...]]:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "million.json.gz")
            solve = {"topology": "torus:dims=32x32,alpha=0", "collective": "allgather"}
            run_case({**solve, "options": GRID, "save": path})
            found = run_case({"verify": path})
            yield tuple(found[name] for name in header)

    print_table("Verifying a file", header, rows())


TABLES: dict[str, Callable[[], None]] = {
    "grids": grids,
    "degraded": degraded,
    "faulty": faulty,
    "paper": paper,
    "clusters": clusters,
    "growth": growth,
    "replan": replan,
    "verify": verifying,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        case = json.loads(sys.argv[2])
        print(json.dumps(verify_case(case) if "verify" in case else solve_case(case)))
    else:
        run_tables(TABLES, __doc__)
