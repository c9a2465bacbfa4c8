"""Runs cases in a child process that is kept, and ended where a case takes too long."""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self

Record = dict[str, Any]

# Seconds for start-up, and for kernels that are compiled once.
_START_S = 120.0
# Limits after which a case hangs that takes hardly any processor time: on a machine that does much
# else, a case has the twentieth part of it.
_STANDSTILL = 20
_FAULTS = ("error", "wrong", "hang", "crash")


def is_fault(record: Record) -> bool:
    """Whether an outcome is a fault of teccl."""
    return record["outcome"] in _FAULTS


class Runner:
    """Carries out cases one after another; a context manager that ends its process."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        # A process that is killed removes nothing.
        self._folder = tempfile.TemporaryDirectory(prefix="teccl-fuzz-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()

    def run(self, case: Record) -> Record:
        """Return what becomes of a case; what takes too long is tried once more, afresh."""
        record = self._once(case)
        return self._once(case) if record["outcome"] == "hang" else record

    def run_all(self, cases: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
        """Carry out cases one by one."""
        for case in cases:
            yield case, self.run(case)

    def _once(self, case: Record) -> Record:
        child = self._child or self._start()
        assert child.stdin is not None
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(case).encode() + b"\n")
            child.stdin.flush()
        limit = 2 * float(case["keywords"].get("time_limit", 30))
        line = self._answer(child, limit)
        if line is None:
            seconds = round(limit, 2)
            self._end()
            return {
                "key": case["key"],
                "outcome": "hang",
                "detail": f"more than {limit:g} s",
                "seconds": seconds,
            }
        if not line:
            code = child.wait()
            self._end()
            return {"key": case["key"], "outcome": "crash", "detail": f"exit {code}", "seconds": 0}
        found: Record = json.loads(line)
        return found

    def _answer(self, child: "subprocess.Popen[bytes]", limit_s: float) -> bytes | None:
        """Wait for a line; None if it takes more processor time than the limit, or very long.

        Processor time counts, because a machine that does other things makes all work take longer.
        """
        assert child.stdout is not None
        begin, used = monotonic(), _processor_s(child.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not selector.select(timeout=0.5):
                waited, busy = monotonic() - begin, _processor_s(child.pid) - used
                if waited > limit_s and (busy > limit_s or waited > _STANDSTILL * limit_s):
                    return None
        return child.stdout.readline()

    def _start(self) -> "subprocess.Popen[bytes]":
        here = str(Path(__file__).parent.parent)
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        child = subprocess.Popen(
            (sys.executable, "-m", "_fuzz.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": self._folder.name},
        )
        self._child = child
        self._warm(child)
        return child

    def _warm(self, child: "subprocess.Popen[bytes]") -> None:
        """Let the child load its libraries and kernels before a limit counts."""
        assert child.stdin is not None
        links = [
            {"src": i, "dst": (i + 1) % 3, "bandwidth": "1GB/s", "bidirectional": True}
            for i in range(3)
        ]
        for name in ("allgather", "alltoall", "allreduce"):
            demand = {"collective": name, "size": "3KB"}
            case = {"topology": {"nodes": 3, "links": links}, "demand": demand}
            line = json.dumps({"key": "start", **case, "keywords": {"chunks": 1}})
            child.stdin.write(line.encode() + b"\n")
            child.stdin.flush()
            self._answer(child, _START_S)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with child:
            pass


def _processor_s(pid: int) -> float:
    """Return processor seconds of a process and of its children that still run."""
    ticks = 0
    for stat in _stats(pid):
        fields = stat.rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stats(pid: int) -> Iterator[str]:
    with suppress(OSError):
        yield Path(f"/proc/{pid}/stat").read_text()
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _stats(int(child))
