"""Back ends that are missing, killed, out of memory or talk nonsense; and no process left over."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.solvers.programs import knapsack, market_split

from teccl.linear_model import RowBlock, stack
from teccl.progress import CancelToken
from teccl.solvers import Solution, SolverOptions, SolverStatus, process, run, solve

BOTH = pytest.mark.parametrize("name", ["highs", "cpsat"])


def children(pid: int) -> set[int]:
    """Processes whose parent is a process."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if int(parent) == pid and state != "Z":
            found.add(int(entry.name))
    return found


def wait_for(condition, seconds: float = 20.0) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


@BOTH
def test_cancel_from_another_thread(name):
    """The best solution is kept and the process is gone."""
    token, seen = CancelToken(), threading.Event()

    def listen(progress):
        if progress.values is not None:
            seen.set()

    def stop():
        seen.wait(30)
        token.cancel()

    before = children(os.getpid())
    thread = threading.Thread(target=stop)
    thread.start()
    solution = solve(market_split(), name, on_progress=listen, cancel=token)
    thread.join()
    assert solution.status is SolverStatus.INTERRUPTED
    assert solution.has_values
    assert children(os.getpid()) <= before


@BOTH
def test_killed_back_end_is_a_status(name):
    """A process that is killed from outside yields an error that says so, and what it had found."""
    before = children(os.getpid())

    def kill(progress):
        if progress.values is not None:
            for pid in children(os.getpid()) - before:
                os.kill(pid, signal.SIGKILL)

    solution = solve(market_split(), name, on_progress=kill)
    assert solution.status is SolverStatus.ERROR
    assert "SIGKILL" in solution.message
    assert "memory" in solution.message
    assert solution.has_values


@BOTH
@pytest.mark.parametrize("megabytes", [100, 250])
def test_out_of_memory_is_a_status(name, megabytes):
    """A back end without room, for itself or for the model, reports an error and no values."""
    rows, columns = 1500, 2000
    rng = np.random.default_rng(0)
    row = np.repeat(np.arange(rows), columns)
    values = rng.integers(1, 50, rows * columns).astype(float)
    terms = [(row, np.tile(np.arange(columns), rows), values)]
    block = RowBlock.of(rows, terms, lower=-np.inf, upper=2.5e4)
    model = stack([block], cost=-np.ones(columns), lower=0, upper=1, integer=True)
    solution = solve(model, name, SolverOptions(memory=megabytes * 2**20, time_limit=30))
    assert solution.status is SolverStatus.ERROR
    assert solution.message
    assert not solution.has_values


@pytest.mark.parametrize(
    ("values", "bound", "words"),
    [
        ([1.0, 1.0, 1.0], -15.0, "break the model"),
        ([0.5, 0.5, 0.0], -5.0, "break the model"),
        ([float("nan"), 0.0, 0.0], -5.0, "break the model"),
        ([1.0, 1.0], -9.0, "break the model"),
        ([1.0, 0.0, 0.0], 5.0, "above objective"),
        (None, -9.0, "no values"),
    ],
)
def test_nonsense_is_never_handed_out(monkeypatch, values, bound, words):
    """Whatever a back end claims is checked against the model."""

    def lie(*_arguments):
        found = None if values is None else np.array(values)
        return Solution(status=SolverStatus.OPTIMAL, objective=-99.0, bound=bound, values=found)

    monkeypatch.setattr(run, "solve_in_child", lie)
    solution = solve(knapsack())
    assert solution.status is SolverStatus.ERROR
    assert words in solution.message
    assert not solution.has_values


def test_garbage_on_the_wire(monkeypatch):
    """A process that writes something else, or nothing, yields an error."""
    for program in ("print('hello')", "import sys; sys.exit(3)"):
        command = [sys.executable, "-c", program]

        def start(command=command):
            pipe = subprocess.PIPE
            return subprocess.Popen(command, stdin=pipe, stdout=pipe)

        monkeypatch.setattr(process, "_start", start)
        solution = solve(knapsack())
        assert solution.status is SolverStatus.ERROR
        assert "ended" in solution.message


def test_program_that_cannot_start(monkeypatch):
    """Without an interpreter there is a message, not a traceback."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    solution = solve(knapsack())
    assert solution.status is SolverStatus.ERROR
    assert "cannot start" in solution.message


def test_deaf_back_end_is_ended(monkeypatch):
    """One that does not stop when asked is killed soon after its limit."""
    program = "import time; time.sleep(60)"

    def start():
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe)

    monkeypatch.setattr(process, "_start", start)
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    solution = solve(knapsack(), options=SolverOptions(time_limit=0.2))
    assert solution.status is SolverStatus.TIME_LIMIT
    assert "was ended" in solution.message
    assert solution.seconds < 10


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.solvers.programs import market_split
from teccl.solvers import solve
solve(market_split(), sys.argv[1], on_progress=lambda p: print("news", flush=True))
"""


@BOTH
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_parent_that_dies_leaves_no_orphan(name, blow):
    """Ctrl-C, and even a parent that is killed, ends the back end's process too."""
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, name, root],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert parent.stdout.readline() == b"news\n"
        helpers = children(parent.pid)
        assert helpers
        parent.send_signal(blow)
        parent.wait(20)
        assert wait_for(lambda: not any(_is_alive(pid) for pid in helpers))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
