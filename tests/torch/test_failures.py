"""Whatever is wrong, every rank says so; none hangs and none gives a wrong result."""

import json
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.torch.ranks import ROOT, Ranks, needs_torch, run_ranks
from tests.torch.schedules import one_shot, solved, write_plan

from teccl.schedule import Schedule

TIMEOUT_S = 60.0
NO_TORCH = """
import sys
sys.modules["torch"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
import teccl.torch
"""


def test_without_torch_the_import_says_what_to_install():
    """One line names the extra."""
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "ModuleNotFoundError: teccl.torch needs PyTorch 2.4 or newer; "
        "install it with: pip install 'teccl[torch]'"
    )


def test_teccl_never_imports_torch():
    """Neither the package nor its command line do."""
    code = "import sys, teccl, teccl.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def incorrect(schedule: Schedule) -> Schedule:
    """A schedule that lacks its last sends."""
    from dataclasses import replace

    return replace(schedule, sends=schedule.sends[:-2].copy(), claimed_finish_ps=None)


@pytest.fixture(scope="module")
def refused(tmp_path_factory) -> list[dict[str, str]]:
    """What two ranks said to every group that must not start."""
    folder = tmp_path_factory.mktemp("refused")
    pair = solved("fully-connected:gpus=2", "allreduce")
    write_plan(folder / "plan-a", [(0, 100_000, pair)])
    write_plan(folder / "plan-b", [(0, 100_001, pair)])
    write_plan(folder / "plan-of-4", [(0, 100_000, solved("ring:gpus=4", "allreduce"))])
    write_plan(folder / "damaged", [(0, 100_000, pair)])
    (folder / "damaged" / "schedule0.json.gz").write_bytes(b"no schedule")
    write_plan(folder / "incorrect", [(0, 100_000, incorrect(pair))])
    write_plan(folder / "outside", [(0, 100_000, pair)])
    plan = json.loads((folder / "outside" / "plan.json").read_text())
    plan["ranges"][0]["schedule"] = "../plan-a/schedule0.json.gz"
    (folder / "outside" / "plan.json").write_text(json.dumps(plan))
    ranks = run_ranks(ROOT / "tests" / "torch" / "programs" / "refusals.py", 2, folder)
    return [dict(line.split(" ", 1) for line in rank.out.splitlines()) for rank in ranks]


@needs_torch()
@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("different-plans", "rank 1 has another plan than rank 0"),
        ("one-without-plan", "rank 1 has another plan than rank 0"),
        ("different-topologies", "rank 1 has another topology than rank 0"),
        ("missing-plan", "holds no plan.json; make one with: teccl sweep"),
        ("missing-on-one", "holds no plan.json; make one with: teccl sweep"),
        ("other-world", "is for 4 GPUs and there are 2 ranks; start 4"),
        ("damaged", "schedule0.json.gz"),
        ("outside", "is no plain file name"),
        ("incorrect", "schedule0.json.gz failed verification"),
        ("other-topology", "has 5 GPUs and there are 2 ranks"),
    ],
)
def test_groups_that_cannot_agree_do_not_start(refused, case, said):
    """Every rank refuses and says why, also the one that has nothing wrong itself."""
    for rank in refused:
        assert said in rank[case]


@needs_torch()
def test_a_rank_that_does_not_call_is_named(refused):
    """After the timeout the others say for whom they waited, and make no further call."""
    assert refused[0]["late"] == "started"
    assert "waited 3 s for rank 1" in refused[0]["alone"]
    assert "failed before" in refused[0]["again"]


@needs_torch()
@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_rank_that_dies_at_the_start_is_named(moment, tmp_path):
    """Before or after all have agreed, the others do not start and say why."""
    script = ROOT / "tests" / "torch" / "programs" / "starter.py"
    with Ranks(script, 3, tmp_path, moment) as ranks:
        ended = ranks.wait()
    assert ended[1].code == 9
    for rank in (0, 2):
        assert ended[rank].code == 7, ended[rank].err[-2000:]
        assert "rank 1" in ended[rank].out
        assert "RunError" in ended[rank].out


@needs_torch()
def test_a_call_that_is_interrupted_breaks_the_group():
    """What is half-way on the wire must not meet the next call; the others notice."""
    from teccl.errors import RunError
    from teccl.torch.failures import Faults

    faults, closed = Faults(None, 1, (4, 6), 1.0), []
    faults.on_break = lambda: closed.append(True)
    faults.interrupt("allreduce")
    assert closed == [True]
    with pytest.raises(RunError, match="allreduce was interrupted on rank 6"):
        faults.check()


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def kill_one(folder: Path, seed: int, size: int = 4) -> None:
    """Kill a random rank at a random moment; the others name it in time."""
    rng = random.Random(seed)
    for collective in ("allreduce", "allgather"):
        plan = [(0, 100_000, solved(f"ring:gpus={size}", collective))]
        write_plan(folder / "plans" / collective, plan)
    write_plan(folder / "plans" / "alltoall", [(0, 100_000, one_shot(size, "alltoall"))])
    script = ROOT / "tests" / "torch" / "programs" / "victim.py"
    variables = {"TECCL_PLAN": str(folder / "plans")}
    if seed % 2:
        # The first rank keeps the store, and takes it along if it dies.
        variables["MEET_AT"] = f"tcp://127.0.0.1:{free_port()}"
    with Ranks(script, size, folder, str(TIMEOUT_S), **variables) as ranks:
        until = time.monotonic() + 2 * TIMEOUT_S
        while not all((folder / f"ready-{rank}").exists() for rank in range(size)):
            assert time.monotonic() < until, [
                (folder / f"err-{rank}").read_text()[-500:] for rank in range(size)
            ]
            time.sleep(0.05)
        time.sleep(rng.random())
        victim = rng.randrange(size)
        ranks.processes[victim].send_signal(signal.SIGKILL)
        killed = time.time()
        for rank, ended in enumerate(ranks.wait()):
            if rank != victim:
                assert ended.code == 7, ended.err[-2000:]
                assert f"because rank {victim} died" in ended.out
                said = float(ended.out.split("ended")[-1])
                assert said - killed < TIMEOUT_S


@needs_torch()
def test_a_rank_that_dies_is_named_by_all_others(tmp_path):
    """Killed in the middle of collectives of both groups."""
    kill_one(tmp_path, 0, size=3)


@needs_torch()
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 20))
def test_ranks_that_die_are_named_by_all_others(seed, tmp_path):
    """The same, twenty times in all."""
    kill_one(tmp_path, seed)
