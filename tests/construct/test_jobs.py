"""Jobs: serial scheduling, forwards, backwards and of what is scarce first."""

import numpy as np
import pytest
from tests.construct.small import assert_disjoint, make_instance, random_fabric

from teccl.bounds import summarise
from teccl.construct.instance import Instance, without_long_ways
from teccl.construct.jobs import Jobs, due_times, justify_serially, schedule_scarce_first
from teccl.construct.serial import between, heads, in_sequence
from teccl.construct.tasks import Precedence, Tasks, finish_time, precedence, tasks_of_plan
from teccl.construct.trees import plan_across
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology.topology_files import topology_from_dict

H100 = "dgx-h100:chassis=4"


def laid(instance: Instance) -> tuple[Tasks, Precedence]:
    """Return the tasks of trees laid across switches, and who waits for whom."""
    plan = plan_across(instance, target=1e6)
    assert plan is not None
    tasks = tasks_of_plan(instance, plan)
    return tasks, precedence(instance, tasks)


def assert_kept(tasks: Tasks, order: Precedence, start: np.ndarray) -> None:
    """No resource is held twice at a time and nothing starts before its inputs are there."""
    assert_disjoint(tasks, start)
    before = np.repeat(np.arange(len(tasks)), np.diff(order.next_start))
    assert np.all(start[before] + order.next_lag <= start[order.next_task])
    assert np.all(start >= order.release)


@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "allreduce"])
@pytest.mark.parametrize("spec", ["star:gpus=6", "internal1:chassis=4", H100])
def test_scarce_first_keeps_resources_and_waits(spec: str, collective: str) -> None:
    """Whatever the key, what is scheduled so is a schedule."""
    instance = without_long_ways(make_instance(spec, collective, "64MB", num_chunks=2))
    tasks, order = laid(instance)
    key = np.random.default_rng(0).permutation(len(tasks))
    start = schedule_scarce_first(instance, tasks, key=key, rounds=1, order=order)
    assert finish_time(tasks, start) < 2**61
    assert_kept(tasks, order, start)


@pytest.mark.parametrize("seed", range(30))
def test_random_fabrics_keep_resources_and_waits(seed: int) -> None:
    """So on any fabric across whose switches trees can be laid."""
    instance = random_fabric(seed)
    if instance is None or instance.slots.max() > 1:
        pytest.skip("the fabric drawn is cut, its rates change or links have slots")
    plan = plan_across(instance, target=1e6, seed=seed)
    if plan is None:
        pytest.skip("no trees can be laid across this fabric")
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    key = np.random.default_rng(seed).permutation(len(tasks))
    start = schedule_scarce_first(instance, tasks, key=key, rounds=1, order=order)
    assert_kept(tasks, order, start)


def test_scarce_first_feeds_full_links_in_their_order() -> None:
    """Where slow uplinks are full it beats justification, which has all tasks equally urgent."""
    made = make_instance("dgx-h100:chassis=8", "allreduce", "1GB", num_chunks=8)
    instance, bound = without_long_ways(made), summarise(made.problem).physical_ps
    plan = plan_across(instance, target=0.98 * bound, steepness=200.0, length_weight=30.0)
    assert plan is not None
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    turn = np.random.default_rng(0).permutation(len(made.problem.chunks))[tasks.chunk]
    place = turn / len(made.problem.chunks) + ~tasks.reduce
    key = due_times(order, (place * bound / 2).astype(np.int64))
    first = schedule_scarce_first(instance, tasks, key=key, rounds=3, order=order)
    plain = justify_serially(instance, tasks, key=key, rounds=3, order=order)
    assert finish_time(tasks, first) < finish_time(tasks, plain)


@pytest.mark.parametrize(("slow", "is_alike"), [("50GB/s", True), ("93GB/s", False)])
def test_starts_are_multiples_only_where_holds_are(slow: str, is_alike: bool) -> None:
    """Ports nearly as fast as others are not left idle until the others' next turn."""
    links = [f"gpu{i}" for i in range(4)]
    topology = topology_from_dict(
        {
            "nodes": [*({"name": name} for name in links), {"name": "s", "kind": "switch"}],
            "links": [
                {
                    "src": name,
                    "dst": "s",
                    "bandwidth": "100GB/s" if number else slow,
                    "alpha": "1us",
                    "bidirectional": True,
                }
                for number, name in enumerate(links)
            ],
        }
    )
    demand = Demand.collective("allgather", size="64MB")
    instance = Instance.build(Problem(topology=topology, demand=demand, num_chunks=16))
    tasks, order = laid(instance)
    quantum = Jobs.of(instance, tasks, order).quantum
    assert (quantum > 1).all() if is_alike else (quantum == 1).all()
    key = np.random.default_rng(0).permutation(len(tasks))
    start = justify_serially(instance, tasks, key=key, rounds=1, order=order)
    assert_kept(tasks, order, start)


def test_due_times_leave_time_for_what_follows() -> None:
    """A task is due when it is wanted, or earlier where something waits for it."""
    instance = without_long_ways(make_instance(H100, "allreduce", "64MB"))
    tasks, order = laid(instance)
    wanted = np.random.default_rng(0).integers(0, 10**9, len(tasks))
    due = due_times(order, wanted)
    before = np.repeat(np.arange(len(tasks)), np.diff(order.next_start))
    assert np.all(due <= wanted)
    assert np.all(due[before] + order.next_lag <= due[order.next_task])
    slack = np.full(len(tasks), 2**60)
    np.minimum.at(slack, before, due[order.next_task] - order.next_lag - due[before])
    assert np.all((due == wanted) | (slack == 0))


def test_a_part_has_what_was_kept_of_all() -> None:
    """Jobs that are left out take their resources and waits with them."""
    instance = without_long_ways(make_instance(H100, "allreduce", "64MB"))
    tasks, order = laid(instance)
    jobs = Jobs.of(instance, tasks, order)
    kept = np.random.default_rng(0).random(len(tasks)) < 0.5
    held = np.random.default_rng(1).random(instance.num_resources) < 0.5
    part = jobs.part(kept, held)
    starts, res, offset, hold = part.columns
    old_starts, old_res, old_offset, old_hold = jobs.columns
    for new, old in enumerate(np.flatnonzero(kept).tolist()):
        here, there = slice(*starts[new : new + 2]), slice(*old_starts[old : old + 2])
        mask = held[old_res[there]]
        assert res[here].tolist() == old_res[there][mask].tolist()
        assert offset[here].tolist() == old_offset[there][mask].tolist()
        assert hold[here].tolist() == old_hold[there][mask].tolist()
    before = np.repeat(np.arange(len(tasks)), np.diff(order.next_start))
    stays = kept[before] & kept[order.next_task]
    assert len(part.arcs[2]) == int(stays.sum())
    assert part.arcs[0].sum() == int(stays.sum())


def test_what_lies_between_urgent_tasks_is_kept() -> None:
    """Of a chain only what both follows and leads to something urgent stays."""
    # 0 > 1 > 2 > 3 > 4, and 1 and 3 are urgent; 5 waits for 1 and leads nowhere.
    next_start, next_task = np.array([0, 1, 3, 4, 5, 5, 5]), np.array([1, 2, 5, 3, 4])
    waits = np.array([0, 1, 1, 1, 1, 1])
    sequence = in_sequence(waits, next_start, next_task)
    assert sequence.tolist() == [0, 1, 2, 5, 3, 4]
    urgent = np.array([False, True, False, True, False, False])
    assert np.flatnonzero(between(sequence, next_start, next_task, urgent)).tolist() == [1, 2, 3]
    lag, release = np.full(5, 10), np.array([0, 0, 99, 0, 0, 0])
    head = heads(sequence, next_start, next_task, lag, release)
    assert head.tolist() == [0, 10, 99, 109, 119, 20]


def test_justification_ends_between_two_placements() -> None:
    """Rounds of large problems take seconds, and a time limit must not wait for the last."""

    def stop() -> None:
        raise TimeoutError

    instance = without_long_ways(make_instance("star:gpus=3", "allgather", "64MB", num_chunks=2))
    tasks, order = laid(instance)
    key = np.arange(len(tasks))
    justify_serially(instance, tasks, key=key, rounds=0, order=order, checkpoint=stop)
    with pytest.raises(TimeoutError):
        justify_serially(instance, tasks, key=key, rounds=1, order=order, checkpoint=stop)
