"""Ctrl-C at random moments of commands that take long: how soon each ends, and what it leaves.

``python benchmarks/interrupts.py`` starts commands on small problems and on 512 GPUs in a session
of their own, sends SIGINT at a moment drawn by seed, and waits. An interrupt is in order if the
command ends within two seconds, with code 0 (a schedule, or what was done of a study) or 130 and
no traceback, and leaves no process and no temporary file behind. ``--ignored`` starts them as
``nohup`` or the background of a script does, with SIGINT ignored, and ends them by SIGTERM. The
exit code is 1 if anything was out of order.

Seconds are those of an idle machine: what the slowest thread spent waiting for a processor is
taken off.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from _quality.chance import Chance

PROGRAM = (sys.executable, "-m", "teccl")
LIMIT_S = 2.0
# Longest that a command has to end before it is killed and counted as hanging.
PATIENCE_S = 60.0
# Interrupts come so long after the start, at random; what Python does first is not ours to judge.
MOMENTS_MS = (500, 20_000)
SOLVED = ("solve", "ring:gpus=3", "allreduce", "--size", "1MB", "--effort", "quick")
LARGE = "torus:dims=8x8x8"
SMALL = "ndv2:chassis=2"
COMMANDS = (
    ("solve", SMALL, "alltoall", "--size", "64MB", "--effort", "thorough"),
    ("solve", LARGE, "allgather", "--size", "1GB", "--effort", "thorough"),
    ("sweep", SMALL, "allreduce", "--sizes", "1KB:1GB", "--no-store"),
    ("run", "schedule.json", "--repeat", "1000000"),
    ("compare", SMALL, "allgather", "--size", "16MB", "--no-store"),
    ("whatif", "dgx1", "allgather", "--size", "1MB", "--n-minus-1", "links", "--no-store"),
    ("solve", LARGE, "alltoall", "--size", "1GB"),
    ("sweep", LARGE, "allgather", "--sizes", "1MB:1GB", "--no-store"),
    ("compare", LARGE, "reducescatter", "--size", "1GB", "--no-store"),
    ("whatif", LARGE, "allgather", "--size", "1GB", "--n-minus-1", "links", "--no-store"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended after a signal."""

    seconds: float
    waited: float
    code: int | None
    errors: str
    left: tuple[str, ...]

    def faults(self, allowed: tuple[int, ...], *, limit_s: float = LIMIT_S) -> list[str]:
        """Return what is out of order, in words."""
        found = [f"left {name}" for name in self.left]
        if self.code is None:
            return [*found, f"still runs after {PATIENCE_S:g} s"]
        if self.seconds - self.waited > limit_s:
            found.append(f"took {self.seconds - self.waited:.2f} s")
        if self.code not in allowed:
            found.append(f"exit {self.code}: {self.errors[-200:]!r}")
        if "Traceback" in self.errors or "internal error" in self.errors:
            found.append(f"said {self.errors[-300:]!r}")
        return found


def interrupted(
    command: tuple[str, ...], after_s: float, folder: Path, *, ignored: bool = False
) -> Ending | None:
    """Start a command in a folder and interrupt it; None if it was over before."""
    temporary = folder / "temporary"
    temporary.mkdir()
    with (folder / "errors").open("wb") as errors, _ignoring(ignored):
        process = subprocess.Popen(
            (*PROGRAM, *command, "--quiet"),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=after_s)
        return None
    begin, delayed = time.monotonic(), _Delays(temporary)
    os.kill(process.pid, signal.SIGTERM if ignored else signal.SIGINT)
    while process.poll() is None and time.monotonic() - begin < PATIENCE_S:
        delayed.look()
        time.sleep(0.02)
    seconds = time.monotonic() - begin
    # Whoever watches a process that ended needs a moment to notice.
    for _ in range(100):
        left = [f"process {pid}" for pid in _started(temporary) if pid != process.pid]
        left += [f"file {path.name}" for path in temporary.iterdir()]
        if not left:
            break
        time.sleep(0.05)
    for pid in _started(temporary):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    code = process.poll()
    process.wait()
    return Ending(
        seconds=seconds,
        waited=delayed.most(),
        code=code,
        errors=(folder / "errors").read_text(errors="replace"),
        left=tuple(left),
    )


@contextmanager
def _ignoring(wanted: bool) -> Iterator[None]:
    """Let processes inherit that SIGINT is ignored, or not, even where this one ignores it."""
    inherited = signal.SIG_IGN if wanted else signal.default_int_handler
    before = signal.signal(signal.SIGINT, inherited)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Delays:
    """Seconds for which threads of a command could run and had no processor."""

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self.look()

    def look(self) -> None:
        """Note how long every thread has waited so far."""
        for pid in _started(self._temporary):
            with suppress(OSError, ValueError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    waited = int((task / "schedstat").read_text().split()[1]) / 1e9
                    self._first.setdefault(task.name, waited)
                    self._last[task.name] = waited

    def most(self) -> float:
        """Return the wait of the thread that waited most."""
        return max((self._last[name] - self._first[name] for name in self._last), default=0.0)


def _started(temporary: Path) -> Iterator[int]:
    """Yield the processes whose temporary files go into a folder: a command and what it started."""
    mark = f"TMPDIR={temporary}".encode()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def main() -> None:
    """Interrupt as often as was asked for and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--ignored", action="store_true", help="start with SIGINT ignored")
    asked = parser.parse_args()
    allowed = (-signal.SIGTERM, 0, 128 + signal.SIGTERM) if asked.ignored else (0, 130)
    bad = 0
    for index in range(asked.count):
        command = COMMANDS[index % len(COMMANDS)]
        after_s = Chance("interrupts", asked.seed, index).whole(*MOMENTS_MS) / 1000
        with tempfile.TemporaryDirectory(prefix="interrupts-") as name:
            if "schedule.json" in command:
                subprocess.run(
                    (*PROGRAM, *SOLVED, "-o", "schedule.json", "-q"), cwd=name, check=True
                )
            ending = interrupted(command, after_s, Path(name), ignored=asked.ignored)
        shown = " ".join(command[:3])
        if ending is None:
            print(f"{index:3} {shown}: over before {after_s:.1f} s", flush=True)
            continue
        faults = ending.faults(allowed)
        bad += bool(faults)
        print(
            f"{index:3} {shown} after {after_s:.1f} s: {ending.seconds - ending.waited:.2f} s "
            f"({ending.seconds:.2f} s on this machine), exit {ending.code}"
            + "".join(f"; {fault}" for fault in faults),
            flush=True,
        )
    print(f"{bad} of {asked.count} out of order")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
