"""The store: what is saved comes back the same, damaged entries do not."""

import sqlite3

import pytest

from teccl import Demand, Topology
from teccl.errors import InputError
from teccl.result import Status
from teccl.studies.hashed_tasks import Task
from teccl.studies.store import Store


@pytest.fixture
def task() -> Task:
    demand = Demand.collective("allgather", size="1MB")
    return Task(topology=Topology.parse("ring:gpus=4"), demand=demand, method="ring")


def test_results_come_back_the_same(task, own_store):
    """Figures, bound and schedule survive the file."""
    result = task.run()
    with Store() as store:
        store.save(task, result)
    with Store() as store:
        again = store.load(task)
    assert again is not None
    assert again.to_dict() == result.to_dict()
    assert (again.schedule.sends == result.schedule.sends).all()
    assert again.schedule.bound == result.schedule.bound


def test_grid_results_and_failures_come_back(own_store):
    """Epochs, and why there is no schedule, are kept too."""
    demand = Demand.collective("allgather", size="1MB")
    ring = Topology.parse("ring:gpus=4")
    grid = Task(topology=ring, demand=demand, options={"grid": True})
    cut = Task(topology=ring.without_links(["0:1", "2:3"]), demand=demand)
    with Store() as store:
        for task in (grid, cut):
            result = task.run()
            store.save(task, result)
            assert store.load(task).to_dict() == result.to_dict()
    assert result.status is Status.INFEASIBLE


def test_other_options_are_other_tasks(task):
    """Everything that decides a result is part of the key."""
    other = Task(topology=task.topology, demand=task.demand, method="ring", options={"chunks": 2})
    assert len({task.key, other.key}) == 2
    assert Task(topology=task.topology, demand=task.demand, method="ring").key == task.key


def test_damaged_entries_are_absent(task, own_store):
    """A row that was changed on disk is not believed."""
    with Store() as store:
        store.save(task, task.run())
    database = sqlite3.connect(own_store)
    with database:
        database.execute("UPDATE results SET payload = substr(payload, 1, 100)")
    database.close()
    with Store() as store:
        assert store.load(task) is None


def test_another_file_is_refused(tmp_path):
    """A file that is no store is named in the error and left alone."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be read as a header")
    with pytest.raises(InputError, match=r"notes\.txt"):
        Store(path)
    assert path.read_text().startswith("not a database")
