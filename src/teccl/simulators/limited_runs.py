"""Programs of others, run in a folder with limits on their time and on what is read of them."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from teccl.errors import SimulationFailed, SimulatorError

# What a simulator says about the end stands at the end; logs before it can be long.
_MAX_OUTPUT = 2**24


def find_program(program: str | Path, what: str) -> Path:
    """Return the path of an executable, looked for on the search path if it is a bare name.

    Raises
    ------
    SimulatorError
        If it is not there or cannot be executed.
    """
    found = shutil.which(str(program))
    if found is None:
        kind = "cannot be executed" if Path(program).is_file() else "is not there"
        raise SimulatorError(f"program {program} {kind}; give the executable of {what}")
    return Path(found).resolve()


def run_program(command: Sequence[str], folder: Path, time_limit: float) -> str:
    """Run a command in a folder and return what it printed, the last part if it is much.

    Raises
    ------
    SimulatorError
        If the system cannot start it.
    SimulationFailed
        If it fails or takes too long.
    """
    log = folder / "output.txt"
    name = Path(command[0]).name
    try:
        with log.open("wb") as stream:
            process = subprocess.Popen(  # noqa: S603, the user names the program
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as problem:
        raise SimulatorError(f"program {command[0]} cannot be run: {problem.strerror}") from None
    try:
        code = process.wait(time_limit)
    except subprocess.TimeoutExpired:
        raise SimulationFailed(
            f"{name} ran for {time_limit:g} s without an end; raise --time-limit"
        ) from None
    finally:
        _end_all(process)
    text = _end_of(log)
    if code:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
        raise SimulationFailed(f"{name} ended with code {code}: {last.strip()[:300]}")
    return text


def _end_all(process: "subprocess.Popen[bytes]") -> None:
    """End a program and whatever it started, however the wait for it ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_of(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - _MAX_OUTPUT))
        return stream.read().decode("utf-8", errors="replace")
