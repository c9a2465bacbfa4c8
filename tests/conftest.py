"""What tests of several parts share, and that nothing of them is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import kernels, reaper
from tests.browsing import running_browser

from teccl.construct.params import BUDGET

# Seconds that processes have to end by themselves after the last test.
_ENDING_S = 20.0
# Work of a search, and processes of a study, where none are asked for.
_NORMAL = BUDGET["normal"]
_COUNT = os.cpu_count
# Folders whose tests need schedules, but not good ones.
_ANY_SCHEDULE = (
    *("benchmarks", "cli", "docs", "exchange", "formats", "placement", "replay", "report"),
    *("rounds", "runtime", "schedule", "simulators", "studies", "torch", "verification", "web"),
)
# Kept, because it outlives this process, of which Python would warn.
_STARTED: list[subprocess.Popen[bytes]] = []


def pytest_configure(config: pytest.Config) -> None:
    """Leave nothing behind, and let workers find the kernels compiled."""
    guard_processes()
    if config.getoption("numprocesses", None):
        kernels.compile_all()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker whole files, in order, so that none makes the fixtures of another again.

    Doctests come last, of which each takes next to nothing: no worker waits long for the others.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


def guard_processes() -> None:
    """Let interrupts reach what tests start, and have everything ended that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Background jobs and nohup ignore it, and children would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Folders of pytest itself stay where they are.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="teccl-tests-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"])
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ[reaper.MARK] = Path(folder).name
    program = [sys.executable, "-I", "-S", reaper.__file__, Path(folder).name, folder]
    without = {name: value for name, value in os.environ.items() if name != reaper.MARK}
    _STARTED.append(
        subprocess.Popen([*program, str(os.getpid())], env=without, start_new_session=True)
    )


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Let no process of teccl outlive the tests, and no temporary folder."""
    yield
    end = time.monotonic() + _ENDING_S
    while (left := _left()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, "tests have left these behind"


def _left() -> list[str]:
    """Return commands of teccl that still run, and its temporary folders."""
    found = []
    for pid in reaper.marked(os.environ[reaper.MARK]):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "teccl" in command and "resource_tracker" not in command:
            found.append(command)
    return found + [str(path) for path in Path(tempfile.gettempdir()).glob("teccl-*")]


@pytest.fixture(scope="module", autouse=True)
def short_searches(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let searches end early in tests of what is made of schedules, and studies start no process.

    Processes of studies search on their own, and load everything first. Options have effects that
    are to be seen.
    """
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    with pytest.MonkeyPatch.context() as patch:
        if folder in _ANY_SCHEDULE and request.path.name != "test_options.py":
            patch.setitem(BUDGET, "normal", BUDGET["quick"])
            patch.setattr(os, "cpu_count", lambda: 1)
        yield


@pytest.fixture(autouse=True)
def whole_searches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slow tests search as users do."""
    if request.node.get_closest_marker("slow") is not None:
        monkeypatch.setitem(BUDGET, "normal", _NORMAL)
        monkeypatch.setattr(os, "cpu_count", _COUNT)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for the whole run: a process can drive only one at a time."""
    with running_browser() as found:
        yield found
