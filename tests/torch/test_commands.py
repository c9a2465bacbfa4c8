"""`teccl run` and `teccl calibrate` with the back end torch: what they print and refuse."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run
from tests.test_schemas import assert_fits
from tests.torch.ranks import needs_torch
from tests.torch.schedules import COLLECTIVES, has_root, solved

import teccl
from teccl.demand import Collective, Demand, Tenant

TORCH = ("--backend", "torch")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@needs_torch()
@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_run_of_every_collective(here, collective):
    """Among some of the GPUs of a line, with others that forward only."""
    topology = teccl.Topology.parse("line:gpus=4")
    root = 3 if has_root(collective) else None
    demand = Demand.collective(collective, size=10_001, ranks=(0, 3), root=root)
    schedule = teccl.solve(topology, demand=demand, effort="quick").schedule
    schedule.save("schedule.json")
    outcome = run("run", "schedule.json", *TORCH, "--repeat", 2, "--check", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert (document["ranks"], document["wrong"], document["differs"]) == (4, 0, 0)


@needs_torch()
@pytest.mark.parametrize(
    ("collective", "ranks"),
    [
        ("allreduce", 3),
        *(
            pytest.param(collective, ranks, marks=pytest.mark.slow)
            for collective in ("alltoall", "broadcast")
            for ranks in (2, 3)
        ),
    ],
)
def test_run_of_a_group_beside_ranks_that_take_no_part(here, collective, ranks):
    """All ranks of the topology are started, and only some of them are members.

    The columns are those of MPI's run, every element is right, and the JSON fits its schema.
    """
    demand = Demand.collective(collective, size=1001, ranks=(0, 2))
    options = {"chunks": 3, "effort": "quick"}
    found = teccl.solve("fully-connected:gpus=3", demand=demand, **options)
    found.schedule.save("schedule.json")
    outcome = run(
        *("run", "schedule.json", *TORCH, "--ranks", ranks, "--repeat", 2, "--check", "--json")
    )
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert_fits("run", document)
    assert document["library"].startswith("gloo of torch")
    assert (document["ranks"], document["wrong"], document["differs"]) == (ranks, 0, 0)


def ranks_of(supervisor: int) -> list[int]:
    """Processes of ranks that a command has started."""
    mark, found = f"TECCL_SUPERVISOR={supervisor}\0".encode(), []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def until(condition) -> None:
    """Wait for something that takes a while on a busy machine."""
    end = time.monotonic() + 120
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@needs_torch()
@pytest.mark.parametrize(
    "sign",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_ranks_do_not_outlive_the_command(here, sign):
    """However the command ends, its ranks end too and no temporary folder stays."""
    solved("ring:gpus=2", "allreduce").save("schedule.json")
    command = [sys.executable, "-m", "teccl", "run", "schedule.json", *TORCH, "--repeat", "1000000"]
    environment = {**os.environ, "TMPDIR": str(here)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        until(lambda: list(here.glob("teccl-run-*/rendezvous")))
        assert len(ranks_of(process.pid)) == 2
        process.send_signal(sign)
        process.communicate(timeout=60)
    assert process.returncode != 0
    until(lambda: not ranks_of(process.pid))
    assert list(here.glob("teccl-run-*")) == []


@needs_torch()
def test_calibrate_measures_over_torch(here):
    """Links, and what one more message costs; the topology can be solved on."""
    outcome = run(
        *("calibrate", *TORCH, "--sizes", "1KB:64KB", "--repeat", 3, "--json"), "-o", "two.yaml"
    )
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert_fits("calibrate", document)
    assert document["num_ranks"] == 2
    assert document["overhead_s"] >= 0
    assert teccl.Topology.parse("two.yaml").num_links == 2


@needs_torch()
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--emulate",), "does not emulate links; use --backend mpi"),
        (("--ranks", "7"), "the schedule needs 2 ranks and there are 7"),
        (("--backend", "tensorflow"), "backend 'tensorflow' is unknown; use mpi, torch"),
    ],
)
def test_bad_options_of_run_are_refused(here, arguments, said):
    """One line names the option and the remedy."""
    solved("ring:gpus=2", "allgather").save("schedule.json")
    outcome = run("run", "schedule.json", *TORCH, *arguments)
    assert_refused(outcome)
    assert said in outcome.err


@needs_torch()
def test_types_that_torch_does_not_reduce_are_refused(here):
    """What no rank could do ends the run with one line."""
    solved("ring:gpus=2", "allreduce").save("schedule.json")
    outcome = run("run", "schedule.json", *TORCH, "--dtype", "uint16")
    assert_refused(outcome)
    assert "torch does not reduce uint16 by sum" in outcome.err


@needs_torch()
def test_several_collectives_at_once_are_left_to_mpi(here):
    """torch.distributed makes one call at a time."""
    tenants = tuple(
        Tenant(collective=Collective.ALLGATHER, size=Fraction(1000), name=name) for name in "ab"
    )
    demand = Demand(tenants=tenants)
    teccl.solve("ring:gpus=2", demand=demand, effort="quick").schedule.save("two.json")
    outcome = run("run", "two.json", *TORCH)
    assert_refused(outcome)
    assert "use --backend mpi" in outcome.err


def test_without_torch_the_command_says_what_to_install(here, monkeypatch):
    """One line, and exit code 1 as without MPI."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else found(name)
    )
    solved("ring:gpus=2", "allgather").save("schedule.json")
    outcome = run("run", "schedule.json", *TORCH)
    assert_refused(outcome, (1,))
    assert "pip install 'teccl[torch]'" in outcome.err
    assert_refused(run("calibrate", *TORCH), (1,))
