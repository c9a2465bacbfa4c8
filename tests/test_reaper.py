"""The suite itself: what tests start ends with them."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests import reaper

# A process of tests in which something hangs, with a child and a folder.
PROGRAM = """
import subprocess, sys, tempfile, time
import tests.conftest
tests.conftest.guard_processes()
tempfile.mkdtemp(prefix="teccl-")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(tempfile.gettempdir(), flush=True)
time.sleep(600)
"""


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for a minute at most."""
    end = time.monotonic() + 60
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)


def test_nothing_outlives_a_killed_process_of_tests() -> None:
    """Children and temporary folders go even when the process is killed."""
    root = Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"},
    )
    with process:
        assert process.stdout is not None
        try:
            folder = Path(process.stdout.readline().strip())
            mark = folder.name
            # The child bears its mark once it runs its own program.
            wait_until(lambda: len(reaper.marked(mark)) == 1)
            assert len(reaper.marked(mark)) == 1
            assert list(folder.iterdir())
        finally:
            process.kill()
    wait_until(lambda: not reaper.marked(mark) and not folder.exists())
    assert reaper.marked(mark) == []
    assert not folder.exists()


def test_children_of_tests_hear_an_interrupt() -> None:
    """However the suite was started, what a test starts has SIGINT's usual handling."""
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_temporary_folders_are_made_where_they_are_removed() -> None:
    """Temporary folders of tests and of their children lie in one folder of this process."""
    assert os.environ[reaper.MARK] in tempfile.gettempdir()
    assert os.environ["TMPDIR"] == tempfile.gettempdir()
