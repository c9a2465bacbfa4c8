"""Programs for MSCCL and RCCL of what `auto` gives: whether they fit, and how long it takes.

Run ``python benchmarks/export.py [FOLDER] [FILTER]``. Schedules are solved once and kept in FOLDER
(out/export); FILTER takes only cases whose name contains it. Refused cases are solved again with
the number of chunks that the refusal names, and exported; the time is that of the refusal. Compiled
loops are loaded before the clock starts.
"""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from _table import print_machine, print_table

import teccl
from teccl.errors import ExportRefused
from teccl.formats.msccl.prove import prove_text
from teccl.formats.writing import export
from teccl.schedule import Schedule

TOPOLOGIES = (
    *("dgx1", "ndv2:chassis=2", "ndv2:chassis=4", "dgx2:chassis=2", "torus:dims=4x4"),
    *("dgx-h100:chassis=2", "mi250"),
)
COLLECTIVES = ("allgather", "alltoall", "reducescatter", "allreduce")
SIZES = ("1MB", "256MB")
TARGETS = ("msccl", "rccl")


def schedule_of(folder: Path, topology: str, collective: str, size: str) -> Schedule:
    """Solve a case, or load it if that was done before."""
    path = folder / f"{topology.replace(':', '_').replace('=', '_')}-{collective}-{size}.json"
    if not path.exists():
        teccl.solve(topology, collective, size=size).schedule.save(path)
    return Schedule.load(path)


def run_case(schedule: Schedule, topology: str, collective: str, size: str, target: str) -> tuple:
    """Export one schedule and prove it again; after a refusal take its advice."""
    wall, cpu, fewer = time.perf_counter(), time.process_time(), None
    try:
        made = export(schedule, to=target)
    except ExportRefused as refusal:
        fewer = int(re.search(r"--max-chunks (\d+)", str(refusal))[1])
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    verdict = "ok"
    if fewer is not None:
        solved = teccl.solve(topology, collective, size=size, max_chunks=fewer)
        made, verdict = export(solved.schedule, to=target), f"refused, ok with {fewer}"
    (proof,) = prove_text(made.files[0].content, runtime=target)
    facts = made.facts
    return (
        *(topology, collective, size, target, verdict if proof.ok else "WRONG"),
        *(facts["chunks"], facts["channels"], facts["thread_blocks"], facts["steps_per_block"]),
        *(facts["steps"], "kept" if facts["keeps_order"] else "joined", *seconds),
    )


def main() -> None:
    """Print the table and what it adds up to."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/export")
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    folder.mkdir(parents=True, exist_ok=True)
    verdicts: Counter[tuple[str, str]] = Counter()
    slowest = 0.0

    def rows() -> Iterator[tuple]:
        nonlocal slowest
        for size in SIZES:
            for topology in TOPOLOGIES:
                for collective in COLLECTIVES:
                    if wanted not in f"{topology} {collective} {size}":
                        continue
                    schedule = schedule_of(folder, topology, collective, size)
                    for target in TARGETS:
                        row = run_case(schedule, topology, collective, size, target)
                        verdicts[target, row[4].split(",")[0]] += 1
                        slowest = max(slowest, row[-1])
                        yield row

    print_machine()
    for target in TARGETS:
        export(teccl.solve("ring:gpus=4", "allreduce", size="1MB").schedule, to=target)
    header = (
        *("topology", "collective", "size", "target", "verdict", "chunks", "channels", "blocks"),
        *("longest", "steps", "order", "wall s", "cpu s"),
    )
    print_table("Programs of what auto gives", header, rows())
    for (target, verdict), count in sorted(verdicts.items()):
        print(f"{target}: {count} {verdict}")
    print(f"slowest export: {slowest:.2f} s of processor time")


if __name__ == "__main__":
    main()
