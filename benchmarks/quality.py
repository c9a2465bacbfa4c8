"""Quality on a distribution: gaps of problems drawn by seed over all that a user can ask for.

``python benchmarks/quality.py`` draws, solves and reports; what is measured is the `teccl` that
Python finds. Results are kept in ``--output`` one by one, so a run that was stopped goes on where
it was. ``--compare OLD NEW`` compares two such files pair by pair. See docs/quality.md.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from _quality import compare, report
from _quality.draw import SETS, draw_problem
from _quality.run import Record, Results, ResultsError, run
from _table import print_machine, print_markdown, print_table

COUNTS = {"plain": 120, "options": 80}
QUICK = {"plain": 24, "options": 16}
LIMIT_S, QUICK_LIMIT_S = 150.0, 30.0


def read_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=(*SETS, "both"), default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="problems of each set, by default 120 and 80")
    parser.add_argument("--quick", action="store_true", help="40 problems, in about four minutes")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="of these, what matches")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="per problem")
    parser.add_argument("--workers", type=int, default=2, help="problems at a time")
    parser.add_argument("--threads", type=int, help="handed to solve")
    parser.add_argument("--output", type=Path, default=Path("out/quality/results.jsonl"))
    parser.add_argument("--retry", action="store_true", help="solve again what has failed")
    parser.add_argument("--list", action="store_true", help="print the problems, solve nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--markdown", action="store_true", help="print tables for the docs")
    parser.add_argument("--report", type=Path, metavar="FILE", help="report on these results")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    return parser.parse_args(words)


def main() -> None:
    """Run what was asked for."""
    asked = read_arguments()
    try:
        if asked.compare:
            compare_files(asked)
        elif asked.report:
            print_results(load(asked.report), asked)
        else:
            measure(asked)
    except ResultsError as problem:
        sys.exit(f"error: {problem}")


def measure(asked: argparse.Namespace) -> None:
    """Draw problems, solve them and report."""
    counts = QUICK if asked.quick else COUNTS
    problems = [
        draw_problem(name, asked.seed, index)
        for name in SETS
        if asked.set in (name, "both")
        for index in range(counts[name] if asked.count is None else asked.count)
    ]
    if asked.only:
        problems = [problem for problem in problems if asked.only.search(problem.label)]
    if asked.list:
        print("\n".join(f"{problem.digest}  {problem.label}" for problem in problems))
        return
    records = run(
        problems,
        Results(path=asked.output),
        limit_s=asked.limit or (QUICK_LIMIT_S if asked.quick else LIMIT_S),
        workers=asked.workers,
        threads=asked.threads,
        retry=asked.retry,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print_results(records, asked)


def print_results(records: Sequence[Record], asked: argparse.Namespace) -> None:
    """Print the report on some results in the form that was asked for."""
    if asked.json:
        print(json.dumps(report.summary(records)))
        return
    print_machine()
    report.print_report(records, print_markdown if asked.markdown else print_table)


def load(path: Path) -> list[Record]:
    """Read a file of results, of several results of a problem the last."""
    if not path.exists():
        raise ResultsError(f"{path} does not exist; name a file that --output wrote")
    return list({record["key"]: record for record in Results(path=path).load()}.values())


def compare_files(asked: argparse.Namespace) -> None:
    """Compare two files of results pair by pair."""
    old, new = map(load, asked.compare)
    found = compare.pairs(old, new)
    if asked.only:
        found = [pair for pair in found if asked.only.search(pair["new"]["command"])]
    if asked.json:
        print(json.dumps(compare.summary(found)))
    else:
        compare.print_comparison(found, print_markdown if asked.markdown else print_table)


if __name__ == "__main__":
    main()
