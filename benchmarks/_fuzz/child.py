"""Cases in a process of its own, one JSON object a line: solve, save, load, verify, interpret."""

import json
import sys
import tempfile
import traceback
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from _fuzz.interpret import faults


def main() -> None:
    """Answer each case on standard input with a line of what became of it."""
    output = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line))), file=output, flush=True)


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """Carry out a case and say how it ended: solved, refused, no schedule, wrong or error."""
    begin, used = perf_counter(), process_time()
    with tempfile.TemporaryDirectory(prefix="teccl-fuzz-") as folder:
        found = _carry_out(case, Path(folder))
    seconds, cpu_s = perf_counter() - begin, process_time() - used
    return {"key": case["key"], "seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2), **found}


def _carry_out(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    import teccl

    (folder / "topology.json").write_text(json.dumps(case["topology"]))
    (folder / "demand.json").write_text(json.dumps(case["demand"]))
    asked = {"demand": folder / "demand.json", **case["keywords"]}
    try:
        start = _start(asked, folder) if asked.pop("from_schedule", None) else None
        result = teccl.solve(folder / "topology.json", from_schedule=start, **asked)
        if result.schedule is None:
            return {"outcome": "no schedule", "detail": f"{result.status.value}: {result.message}"}
        found = _judge(result, folder)
    except Exception as problem:  # noqa: BLE001, what went wrong is what is looked for
        kind = type(problem)
        if issubclass(kind, teccl.TecclError) and issubclass(kind, ValueError):
            return {"outcome": "refused", "detail": str(problem)}
        place = traceback.extract_tb(problem.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.name}"
        return {"outcome": "error", "detail": f"{kind.__name__} in {where}: {problem}"}
    if found:
        return {"outcome": "wrong", "detail": "; ".join(found[:3])}
    summary = f"{result.method}, {result.num_sends} sends, {result.status.value}"
    return {"outcome": "solved", "detail": summary}


def _start(asked: dict[str, Any], folder: Path) -> Any:
    """Return what a short search finds, None if that is nothing."""
    import teccl

    short = {**asked, "time_limit": float(asked["time_limit"]) / 5}
    return teccl.solve(folder / "topology.json", **short).schedule


def _judge(result: Any, folder: Path) -> list[str]:
    """Return all that is wrong with a result and the file of its schedule."""
    import teccl

    path = folder / "schedule.json"
    result.schedule.save(path)
    loaded = teccl.Schedule.load(path)
    found = [f"verify: {violation.detail}" for violation in teccl.verify(loaded)]
    found += [f"interpretation: {fault}" for fault in faults(path)]
    replayed = teccl.simulate(loaded)
    if replayed.finish_ps > loaded.finish_ps:
        found.append(f"replay ends at {replayed.finish_ps} ps, the file at {loaded.finish_ps} ps")
    loaded.save(folder / "again.json")
    if (folder / "again.json").read_bytes() != path.read_bytes():
        found.append("the file that was read is written with other bytes")
    if result.status.value == "optimal" and result.physical_gap is None:
        found.append("optimal without a gap")
    return found


if __name__ == "__main__":
    main()
