"""One problem in a process of its own: solve it through the public interface, tell its figures."""

import hashlib
import inspect
import json
import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

# Of all chunk counts tried, the smallest this close to the best, whatever the default is.
CHUNK_TOLERANCE = 0.001


def main() -> None:
    """Read a call of `solve` from standard input, print what came of it as JSON."""
    call = json.load(sys.stdin)
    if call is None:
        print(json.dumps(measured_code()))
        return
    print(json.dumps(solve(call)))


def solve(call: dict[str, Any]) -> dict[str, Any]:
    """Make a call of `teccl.solve` and return its figures; errors are figures, too."""
    import teccl

    begin = perf_counter()
    try:
        result = teccl.solve(**call)
    except Exception as problem:  # noqa: BLE001, what went wrong is what is measured
        kind = type(problem)
        # A wrong input is a ValueError of teccl's own; all else is a fault of teccl.
        refused = issubclass(kind, teccl.TecclError) and issubclass(kind, ValueError)
        outcome = "refused" if refused else "error"
        return {"outcome": outcome, "error": f"{kind.__name__}: {problem}", **_used(begin)}
    used = _used(begin)
    if result.schedule is None:
        return {"outcome": "no schedule", "error": result.message or result.status.value, **used}
    return {"outcome": "solved", **_figures(result), **used}


def _figures(result: Any) -> dict[str, Any]:
    """Return finish, bound and gap in the terms of the request, and what the schedule is."""
    finish, bound, gap = result.finish_time_s, result.physical_bound_s, result.physical_gap
    if result.grid_gap is not None:
        finish, bound, gap = result.grid_time_s, result.grid_bound_s, result.grid_gap
    elif result.chunk_gap is not None:
        bound, gap = result.chunk_bound_s, result.chunk_gap
    return {
        "finish_s": finish,
        "bound_s": bound,
        "gap": gap,
        "physical_finish_s": result.finish_time_s,
        "physical_gap": result.physical_gap,
        "chunks": result.num_chunks,
        "sends": result.num_sends,
        "status": result.status.value,
        "method": result.method,
        "verified": result.verified,
        "sha256": _digest(result.schedule),
    }


def _digest(schedule: Any) -> str:
    """Hash the bytes of the schedule's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.json"
        schedule.save(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _used(begin: float) -> dict[str, float]:
    """Return seconds of the solve, processor seconds of the process, and its peak memory."""
    seconds = perf_counter() - begin
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "seconds": round(seconds, 3),
        "cpu_s": round(sum(usage.ru_utime + usage.ru_stime for usage in usages), 3),
        "peak_gb": round(max(usage.ru_maxrss for usage in usages) * 1024 / 1e9, 4),
    }


def measured_code() -> dict[str, Any]:
    """Tell which code is measured, after it has compiled what it compiles once per machine.

    `keywords` are those that every call needs so that all versions choose chunks by one rule.
    """
    import teccl

    for collective in ("allgather", "allreduce", "alltoall", "broadcast"):
        teccl.solve("internal1:chassis=2", collective, size="1MB", chunks=2)
    root = Path(teccl.__file__).parent
    content = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    has_tolerance = "chunk_tolerance" in inspect.signature(teccl.solve).parameters
    keywords = {"chunk_tolerance": CHUNK_TOLERANCE} if has_tolerance else {}
    return {"code": content.hexdigest()[:16], "keywords": keywords}


if __name__ == "__main__":
    main()
