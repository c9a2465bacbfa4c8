"""Failures of a run: one clear message, all ranks end, nothing is left running."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run
from tests.runtime.ranks import run_script

import teccl
from teccl.errors import RunError
from teccl.runtime import launch

pytest.importorskip("mpi4py", reason="mpi4py is not installed; pip install 'teccl[mpi]'")

PROGRAM = [sys.executable, "-m", "teccl"]
LIMIT_S = 60.0


@pytest.fixture
def schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A schedule file for three ranks, in the working folder."""
    monkeypatch.chdir(tmp_path)
    result = teccl.solve("ring:gpus=3", "allreduce", size="10KB", effort="quick")
    result.schedule.save("schedule.json")
    return Path("schedule.json")


def workers_of(supervisor: int) -> list[int]:
    """Processes of ranks that some supervisor has started."""
    mark = f"TECCL_SUPERVISOR={supervisor}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or mark not in (entry / "environ").read_bytes():
                continue
            if b"teccl.runtime.worker" in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def started(*arguments: str, ranks: int) -> tuple[subprocess.Popen, list[int]]:
    """Start a long run and wait until all its ranks are up."""
    process = subprocess.Popen(
        [*PROGRAM, "run", "schedule.json", "--repeat", "1000000", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        # mpiexec and its helper carry the mark too; ranks are Python.
        pids = [p for p in workers_of(process.pid) if Path(f"/proc/{p}/exe").resolve() == python()]
        if len(pids) == ranks:
            time.sleep(1.0)
            return process, sorted(pids)
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the ranks did not come up")


def python() -> Path:
    return Path("/proc/self/exe").resolve()


def assert_all_gone(supervisor: int) -> None:
    """No process of a run is left."""
    end = time.monotonic() + 10
    while workers_of(supervisor) and time.monotonic() < end:
        time.sleep(0.05)
    assert workers_of(supervisor) == []


def test_a_killed_rank_ends_the_others(schedule):
    """SIGKILL of one rank ends the run with one line and a code that is not zero."""
    process, pids = started(ranks=3)
    os.kill(pids[1], signal.SIGKILL)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "died (signal 9)" in err
    assert_all_gone(process.pid)


def test_a_stopped_rank_runs_into_the_timeout(schedule):
    """A rank that hangs lets the others give up after the timeout and say what they wait for."""
    process, pids = started("--timeout", "2s", ranks=3)
    os.kill(pids[1], signal.SIGSTOP)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert len(err.splitlines()) == 1
    assert "2 s" in err
    assert_all_gone(process.pid)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ranks_do_not_outlive_the_command(schedule, sign):
    """However the command ends, its ranks end too."""
    process, _ = started(ranks=3)
    process.send_signal(sign)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0
    assert_all_gone(process.pid)
    # Where the command could not remove its folder, a rank does.
    assert list(Path(tempfile.gettempdir()).glob("teccl-run-*")) == []


def test_another_number_of_ranks_is_refused(schedule):
    """A schedule for three ranks does not run on two."""
    outcome = run("run", schedule, "--ranks", 2)
    assert_refused(outcome)
    assert "needs 3" in outcome.err


def test_another_number_of_ranks_under_mpirun_is_refused(schedule, tmp_path):
    """Under mpiexec, one rank says it and all end."""
    done = run_script(
        tmp_path,
        2,
        "import sys; from teccl.cli import main; sys.exit(main(['run', 'schedule.json']))",
    )
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert "the schedule needs 3 ranks and there are 2" in lines[0]


def test_a_run_under_mpirun_prints_once(schedule, tmp_path):
    """Started by mpiexec, the command uses those ranks and the first of them prints."""
    done = run_script(
        tmp_path,
        3,
        "import sys; from teccl.cli import main\n"
        "sys.exit(main(['run', 'schedule.json', '--check', '--repeat', '2']))",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("3 ranks, 2 repeats") == 1


WRONG = """
import numpy as np
from mpi4py import MPI
import teccl
from teccl.errors import RunError
from teccl.runtime import launch
from teccl.runtime.mpi import MpiCollective

call = MpiCollective(teccl.Schedule.load("schedule.json"), MPI.COMM_WORLD, timeout=20)
size = 2500 - (MPI.COMM_WORLD.rank == 1) * {short}
call.run(np.zeros(size, {send!r}), np.zeros(2500, "float32"))
"""


@pytest.mark.parametrize(
    ("short", "send", "message"),
    [
        (1, "float32", "has 2499 elements, the schedule needs 2500"),
        (0, "float64", "buffers have types float64 and float32"),
        (0, "complex64", "data type 'complex64' is not supported"),
    ],
)
def test_wrong_buffers_end_all_ranks(schedule, tmp_path, short, send, message):
    """A buffer of the wrong size or type on one rank is named, and no rank hangs."""
    done = run_script(tmp_path, 3, WRONG.format(short=short, send=send))
    assert done.returncode != 0
    assert message in done.stderr


def test_without_mpi4py_the_remedy_is_named(schedule, monkeypatch):
    """A missing extra is one line that says how to install it."""
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mpi4py" else found(name)
    )
    outcome = run("run", schedule)
    assert_refused(outcome, codes=(1,))
    assert "pip install 'teccl[mpi]'" in outcome.err


def test_without_a_launcher_the_remedy_is_named(schedule, monkeypatch):
    """A missing mpiexec is one line too."""
    monkeypatch.setattr("teccl.runtime.launch.shutil.which", lambda *_, **__: None)
    outcome = run("run", schedule)
    assert_refused(outcome, codes=(1,))
    assert "no mpiexec" in outcome.err


def test_a_launcher_that_fails_is_quoted(schedule, monkeypatch, tmp_path):
    """What a broken mpiexec prints reaches the user."""
    broken = tmp_path / "mpiexec"
    broken.write_text("#!/bin/sh\necho no such network >&2\nexit 7\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setattr("teccl.runtime.launch.find_launcher", lambda: broken)
    outcome = run("run", schedule)
    assert_refused(outcome, codes=(1,))
    assert "no such network" in outcome.err
    assert "code 7" in outcome.err


def test_a_launcher_of_another_mpi_is_named(schedule, monkeypatch, tmp_path):
    """Ranks that do not see each other say why."""
    foreign = tmp_path / "mpiexec"
    foreign.write_text('#!/bin/sh\nshift 2\n"$@"\n', encoding="utf-8")
    foreign.chmod(0o755)
    monkeypatch.setattr("teccl.runtime.launch.find_launcher", lambda: foreign)
    outcome = run("run", schedule)
    assert_refused(outcome, codes=(1,))
    assert "belongs to another MPI" in outcome.err


HANGING = """
import sys
from teccl.runtime.launch import launched_rank
from teccl.runtime.worker import in_world

def tell(problem):
    print(problem, file=sys.stderr, flush=True)

def work(comm, watchdog):
    watchdog.beat()
    if comm.rank == 1:
        comm.recv(source=0)  # which never sends

in_world(work, tell, rank=launched_rank(), timeout=0.5)
"""


def test_a_hang_inside_mpi_is_ended_by_the_watchdog(tmp_path):
    """A rank that is stuck in a call of MPI is ended by a thread, with one line."""
    done = run_script(tmp_path, 2, HANGING)
    assert done.returncode != 0
    assert "rank 1 hung for 0.5 s inside MPI" in done.stderr


DIFFERENT = """
from mpi4py import MPI
import teccl
from teccl.errors import RunError
from teccl.runtime import launch
from teccl.runtime.mpi import MpiCollective

comm = MPI.COMM_WORLD
MpiCollective(teccl.Schedule.load("schedule.json"), comm, op="max" if comm.rank == 2 else "sum")
"""


def test_ranks_that_disagree_are_told(schedule, tmp_path):
    """A rank with another schedule or other options is found before anything is sent."""
    done = run_script(tmp_path, 3, DIFFERENT)
    assert done.returncode != 0
    assert "rank 2 has another schedule or other options than rank 0" in done.stderr


def test_a_run_longer_than_the_timeout_goes_on(schedule):
    """The timeout is about standing still, not about how long a run takes."""
    outcome = run(
        *("run", schedule, "--time-scale", "3e6", "--timeout", "2s"),
        *("--repeat", "1", "--warmup", "0"),
    )
    assert (outcome.code, outcome.err) == (0, "")


PREPARING = """
from mpi4py import MPI
import teccl
from teccl.errors import RunError
from teccl.runtime import launch
from teccl.runtime.measure import RunOptions, measure
from teccl.runtime.mpi import MpiCollective

events = []
run = MpiCollective.run
MpiCollective.run = lambda *given, **named: (events.append("run"), run(*given, **named))
schedule = teccl.Schedule.load("schedule.json")
options = RunOptions(repeat=1, warmup=0)
measure(schedule, MPI.COMM_WORLD, options, beat=lambda: events.append("beat"))
assert events[:3] == ["beat", "beat", "run"], events
print("fine")
"""


def test_preparing_a_run_gives_signs_of_life(schedule, tmp_path):
    """Ranks that prepare a large schedule on a busy machine are not taken for hung."""
    done = run_script(tmp_path, 3, PREPARING)
    assert (done.returncode, done.stdout.count("fine")) == (0, 3), done.stderr


@pytest.mark.parametrize(
    ("output", "told"),
    [("EXIT CODE: 9", "died (signal 9)"), ("EXIT CODE: 1", "rank 0: Exception: lost")],
)
def test_what_others_raise_after_a_kill_is_not_the_reason(tmp_path, output, told):
    """A rank that loses another one fails in MPI; the one that was killed is named if any was."""
    error = {"kind": "run", "message": "rank 0: Exception: lost", "time": 1.0, "own": False}
    (tmp_path / "error-0.json").write_text(json.dumps(error))
    (tmp_path / "output").write_text(f"RANK 1 PID 7\n{output}\n")
    (tmp_path / "pid-1").write_text("7")
    with pytest.raises(RunError, match=re.escape(told)):
        launch._outcome(1, tmp_path, Path("mpiexec"), None, hung=False)
