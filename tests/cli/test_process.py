"""The program as a process of its own: signals, pipes, terminals and what it loads."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "teccl"]
SOLVE = ["solve", "ring:gpus=4", "allgather", "--size", "1MB", "--method", "ring", "--chunks", "1"]

# A search that runs until it is cancelled and then hands out what it has: a schedule or none.
SLOW = """
import sys, time
from dataclasses import replace

import teccl.synthesis
from teccl.cli import main
from teccl.progress import Progress
from teccl.result import Status

solve = teccl.synthesis.solve

def slow(*args, progress=None, cancel=None, **keywords):
    result = solve(*args, **keywords)
    result = replace(result, status=Status.INTERRUPTED)
    if {empty}:
        result = replace(result, schedule=None, finish_ps=None, verified=False)
    if progress:
        progress(Progress(phase="waiting", incumbent_s=result.finish_time_s))
    open("ready", "w").close()
    while not cancel.is_cancelled or {stubborn}:
        time.sleep(0.01)
    return result

teccl.synthesis.solve = slow
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


def start(command: list[str], **options: object) -> subprocess.Popen[str]:
    """Start a process whose output is kept."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, **options})  # type: ignore[call-overload]


def slow_search(*arguments: str, empty: bool = False, stubborn: bool = False) -> list[str]:
    """Return the command of a search that ends only when it is told to."""
    code = SLOW.format(empty=empty, stubborn=stubborn)
    return [sys.executable, "-c", code, *SOLVE, *arguments]


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Wait until the search is under way."""
    deadline = time.monotonic() + 60
    while not Path("ready").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ended with the test, whatever happens."""
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_interrupt_keeps_the_best_schedule(processes: list[subprocess.Popen[str]]) -> None:
    """Ctrl-C ends a search with exit code 0; its best schedule is printed and saved."""
    process = start(slow_search("--json", "-o", "best.json"))
    processes.append(process)
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["status"] == "interrupted"
    assert json.loads(Path("best.json").read_text())["format"] == "teccl-schedule"


def test_interrupt_without_a_schedule(processes: list[subprocess.Popen[str]]) -> None:
    """Ctrl-C before the first schedule ends with exit code 130, one line and no file."""
    process = start(slow_search("-o", "best.json", empty=True))
    processes.append(process)
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("error: no schedule, interrupted")
    assert len(err.splitlines()) == 1
    assert not Path("best.json").exists()


def test_second_interrupt_leaves_at_once(processes: list[subprocess.Popen[str]]) -> None:
    """A second Ctrl-C ends a search that does not listen, with exit code 130."""
    process = start(slow_search("-o", "best.json", stubborn=True))
    processes.append(process)
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
    assert not Path("best.json").exists()


@pytest.mark.parametrize("delay", [0.3, 0.8, 1.5])
def test_interrupt_at_any_moment(delay: float, processes: list[subprocess.Popen[str]]) -> None:
    """Whenever Ctrl-C comes, a real search ends in order: with a schedule or one line."""
    arguments = ["solve", "ndv2:chassis=2", "alltoall", "--size", "1MB", "-o", "best.json"]
    process = start([*PROGRAM, *arguments, "--effort", "thorough"])
    processes.append(process)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert len(err.splitlines()) == (0 if process.returncode == 0 else 1)
    assert Path("best.json").exists() == (process.returncode == 0)
    # Interrupted while teccl was still being loaded: 130, or the signal itself where Python was
    # in a place from which it reports it so; a shell shows 130 for both.
    assert process.returncode in (0, 130, -signal.SIGINT)


def test_handler_is_taken_back() -> None:
    """After a command the process has the handler it had before."""
    from tests.cli.helpers import run

    before = signal.getsignal(signal.SIGINT)
    assert run(*SOLVE).code == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_solve_off_the_main_thread() -> None:
    """Off the main thread, where no handler may be installed, solving works."""
    import threading

    from teccl.cli import main

    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main([*SOLVE, "-q"])))
    thread.start()
    thread.join()
    assert codes == [0]


def test_closed_pipe() -> None:
    """A reader that goes away ends the program without a word."""
    process = start([*PROGRAM, "topology", "show", "fully-connected:gpus=64", "--json"])
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_full_output() -> None:
    """Standard output that takes no more is one line of error."""
    with Path("/dev/full").open("w") as full:
        process = start([*PROGRAM, "topology", "list"], stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines() == ["error: standard output cannot be written: No space left on device"]


def test_narrow_encoding() -> None:
    """Characters that the output cannot show are escaped, not fatal."""
    Path("x.json").write_text(
        json.dumps({"nodes": [{"name": "caf\N{LATIN SMALL LETTER E WITH ACUTE}"}], "links": []})
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = start([*PROGRAM, "topology", "show", "x.json"], env=environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "caf\\xe9" in out


def on_a_terminal(arguments: list[str], columns: int = 80) -> tuple[int, str]:
    """Run the program on a terminal of its own and return exit code and everything shown."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        arguments, stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    return process.wait(timeout=60), shown.decode()


def test_terminal_output() -> None:
    """On a terminal the search shows its progress and the names of the table stand out."""
    code, shown = on_a_terminal([*PROGRAM, *SOLVE])
    assert code == 0
    assert "\x1b[1mfinish time" in shown
    # The cursor that the progress hides is shown again.
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_terminal_width() -> None:
    """On a terminal no line of a table is longer than the terminal is wide."""
    _, shown = on_a_terminal([*PROGRAM, "topology", "list"], columns=60)
    lines = shown.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert max(len(line) for line in lines if not line.startswith("Use:")) <= 60


def test_quiet_terminal() -> None:
    """On a terminal, too, a quiet run shows nothing."""
    assert on_a_terminal([*PROGRAM, *SOLVE, "--quiet"]) == (0, "")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["solve", "--help"]], ids=" ".join
)
def test_help_loads_little(arguments: list[str]) -> None:
    """Help comes at once because nothing heavy is loaded for it."""
    code = (
        "import sys\nfrom teccl.cli import main\n"
        f"main({arguments!r})\n"
        "heavy = {'numpy', 'scipy', 'numba', 'yaml', 'teccl.synthesis', 'teccl.topology'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stderr.strip() == "[]"


def test_module_runs() -> None:
    """`python -m teccl` is the program."""
    ended = subprocess.run(
        [*PROGRAM, "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.startswith("teccl ")
