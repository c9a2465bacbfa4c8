"""Ends what a process of tests leaves behind once that has ended, however it ended.

It runs as a program beside each process of tests, which gives all its children a mark in their
environment and a temporary folder of its own. When the process is gone, be it by SIGKILL, whatever
still bears the mark is ended and the folder removed.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "TECCL_TESTED_BY"
_LOOK_EVERY_S = 0.25


def marked(mark: str) -> list[int]:
    """Return the processes that were started with a mark, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={mark}\0".encode() in _environment(entry):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _environment(entry: Path) -> bytes:
    return (entry / "environ").read_bytes() + b"\0"


def main() -> None:
    """Wait for the parent's end, then clean up after it."""
    mark, folder, parent = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    for pid in marked(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
