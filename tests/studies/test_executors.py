"""Executors: the same results everywhere, and dead workers survived."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from teccl import Demand, Topology
from teccl.errors import DemandError, InputError
from teccl.progress import CancelToken
from teccl.runtime.launch import _RANK_VARIABLES
from teccl.studies.executors import MAX_LOSSES, Crew, WorkersLostError, open_crew
from teccl.studies.hashed_tasks import Task
from teccl.studies.running import Workplace
from teccl.studies.sweeping import sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadly(Task):
    """A task whose worker is killed the first few times."""

    marks: Path
    deaths: int

    def run(self):
        # Atomic, so that a retry sees what the killed try left.
        tries = len(list(self.marks.iterdir()))
        (self.marks / str(tries)).touch()
        if tries < self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        return Task.run(self)


def ring_task(size="1KB", **more):
    kind = Deadly if more else Task
    return kind(
        topology=Topology.parse("ring:gpus=4"),
        demand=Demand.collective("allgather", size=size),
        method="ring",
        **more,
    )


@pytest.mark.parametrize(("deaths", "is_found"), [(1, True), (MAX_LOSSES, False)])
def test_a_killed_worker_is_survived(tmp_path, deaths, is_found):
    """A task whose worker dies is run again, and reported if it keeps dying; others finish."""
    marks = tmp_path / "marks"
    marks.mkdir()
    deadly = ring_task(marks=marks, deaths=deaths)
    others = [ring_task(f"{i}KB") for i in range(2, 5)]
    with open_crew(jobs=2) as crew:
        outcomes = {outcome.task.key: outcome for outcome in crew.run([deadly, *others])}
    assert len(outcomes) == 4
    assert all(outcomes[task.key].result is not None for task in others)
    assert (outcomes[deadly.key].result is not None) == is_found
    if not is_found:
        assert "died" in outcomes[deadly.key].reason


PLAIN = """
import multiprocessing.spawn
from teccl.studies.running import Workplace
from teccl.studies.sweeping import sweep

print("once")
before = multiprocessing.spawn.get_preparation_data
place = Workplace(jobs=2, store=False)
for row in sweep("ring:gpus=4", "allgather", sizes="1KB,2KB", methods="ring", place=place):
    print(row.size_bytes, row.best.method)
print(multiprocessing.spawn.get_preparation_data is before)
"""


def test_a_script_needs_no_guard_around_a_study(tmp_path):
    """Workers do not run the script that started them."""
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert ended.stdout.splitlines() == ["once", "1000 ring", "2000 ring", "True"]


def test_workers_load_the_main_module_for_what_lives_there(monkeypatch):
    """A callable of the script cannot be had otherwise."""

    def progress(news):
        """Hear of it."""

    assert not replace(ring_task(), options={"progress": progress}).needs_main
    monkeypatch.setattr(progress, "__module__", "__main__")
    assert replace(ring_task(), options={"progress": progress}).needs_main


class Broken(Executor):
    """Workers that die whatever they are given."""

    def __init__(self):
        self.given = []

    def submit(self, function, task):
        """Lose the worker."""
        self.given.append(task)
        future = Future()
        future.set_exception(BrokenExecutor())
        return future


def test_workers_that_all_die_end_the_study():
    """Nobody waits until every task has lost as many workers as it may."""
    workers = Broken()
    tasks = [ring_task(f"{i}KB") for i in range(1, 9)]
    with pytest.raises(WorkersLostError, match="every worker"):
        list(Crew(start=lambda: workers, width=2).run(tasks))
    assert {task.key for task in workers.given} == {task.key for task in tasks[:2]}


def test_bad_input_in_a_worker_is_raised():
    """An error of the user's making ends the study with its own message."""
    task = Task(
        topology=Topology.parse("ring:gpus=4"),
        demand=Demand.collective("allgather", size="1KB", ranks=(0, 9)),
    )
    with open_crew(jobs=2) as crew, pytest.raises(DemandError, match="rank 9"):
        list(crew.run([task, ring_task()]))


def figures(found):
    """Return what a sweep found, without times."""
    rows = [result.to_dict() for result in found.results]
    return [{k: v for k, v in row.items() if k != "solve_seconds"} for row in rows]


def test_any_executor_gives_the_same_results(here):
    """Threads of the caller's own do what this process does, and stay open."""
    arguments = ("dgx1", "allgather")
    mine = sweep(*arguments, sizes="1KB,64KB", place=here)
    with ThreadPoolExecutor(1) as threads:
        place = Workplace(executor=threads, store=False)
        theirs = sweep(*arguments, sizes="1KB,64KB", place=place)
        assert threads.submit(len, "abc").result() == 3
    assert figures(mine) == figures(theirs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same_results_and_survives_a_kill(here):
    """Two worker processes of a Dask cluster, one of them killed in mid-task."""
    distributed = pytest.importorskip("distributed")
    arguments = ("ndv2:chassis=2", "allgather")
    mine = sweep(*arguments, sizes="1KB:1GB", place=here)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:

        def kill():
            time.sleep(1.0)
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        place = Workplace(dask=cluster.scheduler_address, store=False)
        theirs = sweep(*arguments, sizes="1KB:1GB", place=place)
        killer.join()
    assert figures(mine) == figures(theirs)


@pytest.mark.parametrize("address", ["zzz", "tcp://host", ""])
def test_an_address_without_a_port_is_refused_at_once(address):
    """Nobody waits for a scheduler that cannot be there."""
    with pytest.raises(InputError, match="port"), open_crew(dask=address):
        pass


def test_ranks_are_wanted_within_an_mpi_job_only(monkeypatch):
    """Outside of one there is nothing to wait for."""
    for name in _RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="mpiexec"), open_crew(mpi=True):
        pass


def test_tasks_that_run_are_ended_after_a_cancel():
    """Nobody waits for a long search once its time is over; nothing of it is kept."""
    token = CancelToken(patience_s=0.1)
    long = replace(ring_task(), method="milp", options={"epoch": "1ns", "chunks": 4})
    with open_crew(jobs=2) as crew:
        outcomes = crew.run([long, replace(long, options={"epoch": "2ns", "chunks": 4})], token)
        threading.Timer(1.0, token.cancel).start()
        assert list(outcomes) == []


def test_a_task_that_is_broken_off_is_no_outcome():
    """In this process, too, a cancel ends the search, and what it had is not kept."""
    token = CancelToken()
    token.cancel()
    with open_crew(jobs=1) as crew:
        assert list(crew.run([ring_task()], token)) == []
