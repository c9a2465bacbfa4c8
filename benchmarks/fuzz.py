"""Random small problems from outside: what fails, made as small as it can be.

``python benchmarks/fuzz.py`` draws cases by seed until its time is over, solves them, and has
every schedule judged by `verify` and by an interpretation of its file that knows the documents
only. A fault is an internal error, a wrong schedule or a case that takes more than twice its time
limit; each kind is made smaller and written into ``--output``, from where ``--case FILE`` carries
it out again. The exit code is 1 if there were faults.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

from _fuzz.draw import draw_case
from _fuzz.run import Runner, is_fault
from _fuzz.shrink import shrink, signature


def read_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="INDEX", help="where to begin")
    parser.add_argument("--count", type=int, help="cases, by default as many as there is time for")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--no-shrink", action="store_true", help="keep failing cases as drawn")
    parser.add_argument("--output", type=Path, default=Path("out/fuzz"))
    parser.add_argument("--case", type=Path, metavar="FILE", help="carry out one case again")
    return parser.parse_args(words)


def main() -> None:
    """Run what was asked for."""
    asked = read_arguments()
    with Runner() as runner:
        if asked.case is not None:
            record = runner.run(json.loads(asked.case.read_text()))
            print(json.dumps(record))
            sys.exit(is_fault(record))
        sys.exit(bool(search(asked, runner)))


def search(asked: argparse.Namespace, runner: Runner) -> dict[str, Any]:
    """Draw and run cases until time or count is over; return the faults by their signature."""
    begin, outcomes = monotonic(), Counter[str]()
    found: dict[str, Any] = {}
    index = asked.first
    while asked.count is None or index < asked.first + asked.count:
        if monotonic() - begin > 60 * asked.minutes:
            break
        case = draw_case(asked.seed, index)
        record = runner.run(case)
        outcomes[record["outcome"]] += 1
        if is_fault(record):
            print(f"{record['key']} {record['outcome']}: {record['detail']}", flush=True)
            if signature(record) not in found:
                found[signature(record)] = record
                _keep(case, record, asked, runner)
        index += 1
    counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    print(f"seed {asked.seed}, cases {asked.first} to {index - 1}: {counts}")
    return found


def _keep(
    case: dict[str, Any], record: dict[str, Any], asked: argparse.Namespace, runner: Runner
) -> None:
    """Make a failing case smaller and write it down."""
    if not asked.no_shrink:
        kind = signature(record)

        def fails(candidate: dict[str, Any]) -> bool:
            tried = runner.run(candidate)
            return is_fault(tried) and signature(tried) == kind

        case = shrink(case, fails)
    asked.output.mkdir(parents=True, exist_ok=True)
    path = asked.output / f"{case['key']}.json"
    path.write_text(json.dumps(case, indent=1) + "\n")
    print(f"  {path}", flush=True)


if __name__ == "__main__":
    main()
