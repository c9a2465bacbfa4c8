"""Recent machines: how far schedules of their presets are from the proven bound.

``python benchmarks/presets.py`` solves four collectives at 1 MB and 1 GB on each, at line and,
where there are such, effective rates. Results are kept in ``--output`` as `quality.py` keeps its
own, so a run that was stopped goes on where it was.
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

# With `rates`: machines around NVSwitches or xGMI, alone and two of them over their network.
MACHINES = (
    *("dgx-b200", "dgx-b300", "gb300-nvl72", "h800", "h20", "p5", "a3-ultra", "mi325x", "mi355x"),
    *("dgx-b200:chassis=2", "dgx-b300:chassis=2,planes=2", "h800:chassis=2", "mi355x:chassis=2"),
)
NETWORKS = ("tpu-v5p", "tpu-v5p:dims=4x4x8,twisted=true", "tpu-v6e", "trn2", "two-tier")
COLLECTIVES = ("allgather", "reducescatter", "alltoall", "allreduce")
SIZES = ("1MB", "1GB")


def problems() -> Iterator[Problem]:
    """Yield every preset with every collective and size."""
    specs = [(spec, "line") for spec in (*MACHINES, *NETWORKS)]
    specs += [(spec, "effective") for spec in MACHINES]
    for (preset, rates), collective, size in product(specs, COLLECTIVES, SIZES):
        spec = preset
        if rates == "effective":
            spec += ("," if ":" in preset else ":") + "rates=effective"
        yield Problem(
            key=f"{spec} {collective} {size}",
            set="presets",
            family=rates,
            collective=collective,
            decade=size,
            num_gpus=teccl.Topology.parse(spec).num_gpus,
            options=(),
            topology=spec,
            demand=None,
            keywords={"size": size},
        )


def rows(records: list[Record]) -> Iterator[tuple[object, ...]]:
    """Yield the quantiles of each collective, size and kind of rates, in per cent."""
    for rates, collective, size in product(("line", "effective"), COLLECTIVES, SIZES):
        chosen = [
            record
            for record in records
            if (record["family"], record["collective"], record["decade"])
            == (rates, collective, size)
        ]
        gaps = [100 * record["gap"] for record in solved(chosen)]
        if chosen:
            shares = [quantile(gaps, share) if gaps else "-" for share in (0.5, 0.9, 1.0)]
            yield (rates, collective, size, len(chosen), len(gaps), *shares)


def main() -> None:
    """Solve what was asked for and print the gaps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="of these, what matches")
    parser.add_argument("--limit", type=float, default=150.0, metavar="SECONDS", help="per problem")
    parser.add_argument("--workers", type=int, default=1, help="problems at a time")
    parser.add_argument("--threads", type=int, metavar="N", help="threads a problem; all if none")
    parser.add_argument("--output", type=Path, default=Path("out/presets/results.jsonl"))
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
    heads = ("rates", "collective", "size", "count", "solved", "median", "p90", "max")
    print_table("Gap to the proven bound, per cent", heads, rows(records))
    for record in failures(records):
        print(f"{record['outcome']}: {record['command']}")


if __name__ == "__main__":
    main()
