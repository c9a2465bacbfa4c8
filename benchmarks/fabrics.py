"""Fabrics of several stages: how far schedules on them are from the proven bound.

``python benchmarks/fabrics.py`` solves three collectives at four sizes on fat trees, a dragonfly
and two oversubscribed fabrics. Results are kept in ``--output`` as `quality.py` keeps its own, so a
run that was stopped goes on where it was.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from _quality.problem import Problem
from _quality.report import failures, quantile, solved
from _quality.run import Record, Results, run
from _table import print_machine, print_table

import teccl

FABRICS = (
    "fat-tree:k=4",
    "fat-tree:k=8",
    "dragonfly:groups=5,routers=2,gpus=2",
    "two-tier:leaves=8,gpus=8,spines=2,oversubscription=2",
    "two-tier:leaves=4,gpus=16,spines=4,oversubscription=4",
)
COLLECTIVES = ("allgather", "reducescatter", "alltoall")
SIZES = ("1KB", "64KB", "1MB", "64MB")


def problems() -> Iterator[Problem]:
    """Yield every fabric with every collective and size."""
    for fabric, collective, size in product(FABRICS, COLLECTIVES, SIZES):
        yield Problem(
            key=f"{fabric} {collective} {size}",
            set="fabrics",
            family=fabric,
            collective=collective,
            decade=size,
            num_gpus=teccl.Topology.parse(fabric).num_gpus,
            options=(),
            topology=fabric,
            demand=None,
            keywords={"size": size},
        )


def rows(records: list[Record]) -> Iterator[tuple[object, ...]]:
    """Yield the gaps of each fabric and collective by size, in per cent, then all quantiles."""
    ended = solved(records)
    for fabric, collective in product(FABRICS, COLLECTIVES):
        alike = [r for r in ended if (r["family"], r["collective"]) == (fabric, collective)]
        gaps = {r["decade"]: f"{100 * r['gap']:.2f}" for r in alike}
        seconds = [r["cpu_s"] for r in alike]
        if alike:
            cells = [gaps.get(size, "-") for size in SIZES]
            yield (fabric, collective, *cells, f"{max(seconds):.1f}")


def main() -> None:
    """Solve what was asked for and print the gaps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="of these, what matches")
    parser.add_argument("--limit", type=float, default=150.0, metavar="SECONDS", help="per problem")
    parser.add_argument("--workers", type=int, default=1, help="problems at a time")
    parser.add_argument("--threads", type=int, help="of each problem's solve")
    parser.add_argument("--output", type=Path, default=Path("out/fabrics/results.jsonl"))
    asked = parser.parse_args()
    chosen = [each for each in problems() if not asked.only or asked.only.search(each.key)]
    records = run(
        chosen,
        Results(path=asked.output),
        limit_s=asked.limit,
        workers=asked.workers,
        threads=asked.threads,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print_machine()
    heads = ("fabric", "collective", *SIZES, "longest, processor s")
    print_table("Gap to the proven bound, per cent", heads, rows(records))
    gaps = [100 * record["gap"] for record in solved(records)]
    if gaps:
        shares = [quantile(gaps, share) for share in (0.5, 0.9, 1.0)]
        print(f"{len(gaps)} of {len(records)} solved: median, p90, max", *shares)
    for record in failures(records):
        print(f"{record['outcome']}: {record['command']}")


if __name__ == "__main__":
    main()
