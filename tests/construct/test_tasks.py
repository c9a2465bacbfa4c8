"""Tasks: who waits for whom, and what list scheduling, justification and replay do."""

import numpy as np
import pytest
from tests.construct.small import make_instance

from teccl.construct.instance import Instance
from teccl.construct.multicast import Tables, greedy
from teccl.construct.plan import Plan, single_rows
from teccl.construct.tasks import (
    Tasks,
    finish_time,
    justify,
    precedence,
    replay_tasks,
    schedule_tasks,
    task_tails,
    tasks_of_plan,
)
from teccl.construct.trees import laid_plan

US = 10**6


def line_tasks(**columns: object) -> tuple[Instance, Tasks]:
    """Return a broadcast along a line of three GPUs, hops of 20 us and half a microsecond."""
    made = make_instance("line:gpus=3", "broadcast")
    forth = [made.problem.topology.find_links(spec)[0] for spec in ("0>1", "1>2")]
    rows = single_rows(np.zeros(2, dtype=np.int64), np.array(forth))
    return made, tasks_of_plan(made, Plan(rows=rows, **columns))


def laid_tasks(spec: str, collective: str) -> tuple[Instance, Tasks]:
    """Return the tasks of trees laid on a topology."""
    made = make_instance(spec, collective, num_chunks=2)
    plan = laid_plan(made, Tables.build(made), target=1e6)
    assert plan is not None
    return made, tasks_of_plan(made, plan)


def test_a_relay_waits_for_what_it_passes_on() -> None:
    """The second hop waits for the arrival of the first."""
    made, tasks = line_tasks()
    order = precedence(made, tasks)
    assert order.waits.tolist() == [0, 1]
    assert (order.next_task.tolist(), order.next_lag.tolist()) == ([1], [20 * US + US // 2])


def test_a_sum_waits_for_all_contributions() -> None:
    """In a reduction on a star of links the root's neighbours come first, then the result."""
    made = make_instance("line:gpus=3", "allreduce", "3KB")
    spec = ("0>1", "2>1", "1>0", "1>2")
    links = np.array([made.problem.topology.find_links(s)[0] for s in spec])
    rows = single_rows(np.zeros(4, dtype=np.int64), links)
    plan = Plan(rows=rows, reduce=np.array([True, True, False, False]))
    order = precedence(made, tasks_of_plan(made, plan))
    assert order.waits.tolist() == [0, 0, 2, 2]


def test_given_feeders_replace_the_search() -> None:
    """Where a plan names its feeders, tasks wait for these alone."""
    made, tasks = line_tasks(feeder=np.array([-1, -1]))
    assert precedence(made, tasks).waits.tolist() == [0, 0]


def test_list_schedule_starts_at_once() -> None:
    """A relay sends on the instant it has the chunk."""
    made, tasks = line_tasks()
    start = schedule_tasks(
        made, tasks, key=np.zeros(2, dtype=np.int64), order=precedence(made, tasks)
    )
    assert start.tolist() == [0, 20 * US + US // 2]
    assert finish_time(tasks, start) == 41 * US


def test_tails_reach_to_the_end() -> None:
    """The tail of a task is the longest way to the last arrival that hangs on it."""
    made, tasks = line_tasks()
    assert task_tails(tasks, precedence(made, tasks)).tolist() == [41 * US, 20 * US + US // 2]


def test_circular_waits_are_not_placed() -> None:
    """Tasks that wait for each other are never started, and the finish says so."""
    made, tasks = line_tasks(feeder=np.array([1, 0]))
    start = schedule_tasks(
        made, tasks, key=np.zeros(2, dtype=np.int64), order=precedence(made, tasks)
    )
    assert start.tolist() == [-1, -1]
    assert finish_time(tasks, start) >= 2**61


def assert_feasible(made: Instance, tasks: Tasks, start: np.ndarray) -> None:
    """Assert that waits are kept and no resource is held twice at a time."""
    order = precedence(made, tasks)
    before = np.repeat(np.arange(len(tasks)), np.diff(order.next_start))
    assert (start[before] + order.next_lag <= start[order.next_task]).all()
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    begin = start[owner] + tasks.res_offset
    for resource in np.unique(tasks.res):
        mine = np.flatnonzero(tasks.res == resource)
        mine = mine[np.argsort(begin[mine])]
        ends = begin[mine] + tasks.res_hold[mine]
        assert (ends[:-1] <= begin[mine][1:]).all()


CASES = [("dgx1", "allreduce"), ("ring:gpus=5", "alltoall"), ("star:gpus=4", "reducescatter")]


@pytest.mark.parametrize(("spec", "collective"), CASES)
def test_list_schedules_are_feasible(spec: str, collective: str) -> None:
    """Waits and resources are respected whatever the keys are."""
    made, tasks = laid_tasks(spec, collective)
    for seed in range(3):
        key = np.random.default_rng(seed).permutation(len(tasks))
        assert_feasible(
            made, tasks, schedule_tasks(made, tasks, key=key, order=precedence(made, tasks))
        )


@pytest.mark.parametrize(("spec", "collective"), CASES)
def test_justification_is_never_later(spec: str, collective: str) -> None:
    """Justified starts are feasible and end no later, also from a poor order."""
    made, tasks = laid_tasks(spec, collective)
    for seed in range(3):
        key = np.random.default_rng(seed).permutation(len(tasks))
        start = schedule_tasks(made, tasks, key=key, order=precedence(made, tasks))
        better = justify(made, tasks, start, rounds=4, order=precedence(made, tasks))
        assert finish_time(tasks, better) <= finish_time(tasks, start)
        assert_feasible(made, tasks, better)


def test_justification_shortens_a_poor_order() -> None:
    """From an order that starts short tails first there is something to gain."""
    made, tasks = laid_tasks("dgx1", "allreduce")
    order = precedence(made, tasks)
    poor = schedule_tasks(made, tasks, key=task_tails(tasks, order), order=order)
    better = justify(made, tasks, poor, rounds=8, order=order)
    assert finish_time(tasks, better) < finish_time(tasks, poor)


def test_replay_keeps_the_order_on_every_resource() -> None:
    """A replay starts tasks no later than the plan, in the plan's order on each resource."""
    made = make_instance("dgx2", "allgather")
    plan = greedy(made, Tables.build(made), seed=0, join=True)
    assert plan is not None
    tasks = tasks_of_plan(made, plan)
    start = replay_tasks(made, tasks, key=tasks.start)
    assert (start <= tasks.start).all()
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    for resource in np.unique(tasks.res):
        mine = owner[tasks.res == resource]
        mine = mine[np.argsort(tasks.start[mine], kind="stable")]
        assert (np.diff(start[mine]) >= 0).all()


def test_joined_rows_are_one_task() -> None:
    """Rows of one passage through a switch hold the shared link once."""
    made = make_instance("star:gpus=4", "allgather")
    plan = greedy(made, Tables.build(made), seed=0, join=True)
    assert plan is not None
    tasks = tasks_of_plan(made, plan)
    assert len(tasks) < len(plan.rows) == len(tasks.out_node)
    assert len(tasks.hop_link) == len(tasks) + len(plan.rows)
