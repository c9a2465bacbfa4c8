"""Solves problems side by side, each in a process of its own, and keeps every result at once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from _quality.problem import Problem, command

Record = dict[str, Any]
_CHILD = (sys.executable, "-m", "_quality.child")
_LABELS = ("key", "digest", "set", "family", "collective", "decade", "num_gpus")


# Processes that an interrupt must end; they do not hear the terminal's own.
_RUNNING: "set[subprocess.Popen[str]]" = set()


class ResultsError(Exception):
    """A file of results does not serve; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A file of results, one JSON object a line, to which whole lines are appended."""

    path: Path

    def load(self) -> list[Record]:
        """Return all records; a line that a killed run left unfinished is passed over."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return records

    def append(self, record: Record) -> None:
        """Add a record in one write, on a line of its own even after a broken one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record) + "\n"
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            line = "\n" + line
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)


def measured_code() -> Record:
    """Return a hash of the package's source and keywords for every call; compiles its kernels."""
    found = _run_child(None, limit_s=600)
    if "code" not in found:
        raise ResultsError(f"teccl does not run: {found.get('error')}")
    return found


def run(
    problems: Sequence[Problem],
    results: Results,
    *,
    limit_s: float,
    workers: int,
    threads: int | None,
    retry: bool = False,
    tell: Callable[[str], None],
) -> list[Record]:
    """Solve what the file has no result of yet, and return the results of all problems.

    With `retry`, what has failed is solved again; of several results the last counts.

    Raises
    ------
    ResultsError
        If the file holds results of other code or with another number of threads.
    """
    measured = measured_code()
    setting = {"code": measured["code"], "threads": threads}
    more = measured["keywords"] | ({} if threads is None else {"threads": threads})
    known = {(record["key"], record["digest"]): record for record in results.load()}
    for record in known.values():
        if any(record[name] != value for name, value in setting.items()):
            raise ResultsError(
                f"{results.path} holds results of other code or threads ({record['code']}, "
                f"{record['threads']}); give another --output"
            )
    done = {
        identity
        for identity, record in known.items()
        if not (_may_end_otherwise(record, limit_s) or (retry and record["outcome"] != "solved"))
    }
    todo = [each for each in problems if (each.key, each.digest) not in done]
    tell(f"{len(problems)} problems, {len(todo)} to solve, code {setting['code']}")
    folder = results.path.parent / "problems"
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(_solve, each, folder, limit_s=limit_s, more=more) for each in todo]
        try:
            for count, future in enumerate(as_completed(running), start=1):
                record = {**future.result(), **setting}
                results.append(record)
                known[record["key"], record["digest"]] = record
                tell(f"{count}/{len(todo)} {_line(record)}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in list(_RUNNING):
                _kill(child)
            raise
    return [known[each.key, each.digest] for each in problems]


def _may_end_otherwise(record: Record, limit_s: float) -> bool:
    """Whether it ran out of less time than there is now."""
    return bool(record["outcome"] == "time-out" and record["limit_s"] < limit_s)


def _line(record: Record) -> str:
    end = f"{100 * record['gap']:.2f} %" if record.get("gap") is not None else record["outcome"]
    return f"{record['key']} {end} in {record['seconds']:.1f} s: {record['command']}"


def _solve(problem: Problem, folder: Path, *, limit_s: float, more: Record) -> Record:
    problem.write_files(folder)
    call = problem.call(folder) | more
    if "chunks" in call or call.get("grid"):
        # There is nothing to choose among.
        call.pop("chunk_tolerance", None)
    labels = {name: getattr(problem, name) for name in _LABELS}
    labels["options"] = list(problem.options)
    return {**labels, "command": command(call), "limit_s": limit_s, **_run_child(call, limit_s)}


def _run_child(call: Record | None, limit_s: float) -> Record:
    """Make a call in a new process, and end it with all it started at the limit."""
    here = str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    begin = perf_counter()
    with subprocess.Popen(
        _CHILD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as child:
        _RUNNING.add(child)
        try:
            output, errors = child.communicate(json.dumps(call), timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"outcome": "time-out", "seconds": round(limit_s, 3), **_end(child)}
        finally:
            _RUNNING.discard(child)
            if child.returncode is None:
                _kill(child)
    if child.returncode:
        lines = errors.strip().splitlines() or [f"exit {child.returncode}"]
        seconds = round(perf_counter() - begin, 3)
        return {"outcome": "error", "error": lines[-1], "seconds": seconds}
    found: Record = json.loads(output.splitlines()[-1])
    return found


def _end(child: "subprocess.Popen[str]") -> Record:
    """End a child and tell what it has used, which a busy machine may keep far below its time."""
    _kill(child)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    cpu_s, peak_gb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9
    return {"cpu_s": round(cpu_s, 3), "peak_gb": round(peak_gb, 4)}


def _kill(child: "subprocess.Popen[str]") -> None:
    """End a running child and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
