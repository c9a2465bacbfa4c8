"""Small instances for the tests of the constructive schedulers."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.construct.networks import random_network

from teccl.construct.constructions import construct
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.params import BUDGET, PART, PATIENCE
from teccl.construct.plan import Plan
from teccl.construct.realise import realise
from teccl.construct.tasks import Tasks
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.reachability import find_unreachable
from teccl.schedule import Schedule
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict
from teccl.verification import verify

# Two GPUs on a switch: 2 GB/s and 1 us into it, 1 GB/s and 2 us out of it.
SWITCHED_PAIR: dict[str, Any] = {
    "nodes": [{"name": "a"}, {"name": "b"}, {"name": "s", "kind": "switch"}],
    "links": [
        {"src": "a", "dst": "s", "bandwidth": "2GB/s", "alpha": "1us"},
        {"src": "s", "dst": "b", "bandwidth": "1GB/s", "alpha": "2us"},
        {"src": "b", "dst": "s", "bandwidth": "2GB/s", "alpha": "1us"},
        {"src": "s", "dst": "a", "bandwidth": "1GB/s", "alpha": "2us"},
    ],
}


def make_problem(
    topology: str | dict[str, Any], collective: str | Demand, size: str = "1MB", **options: Any
) -> Problem:
    """Return a problem on a preset or on the topology of a document."""
    network = (
        Topology.parse(topology) if isinstance(topology, str) else topology_from_dict(topology)
    )
    demand = collective
    if not isinstance(demand, Demand):
        demand = Demand.collective(demand, size=size)
    return Problem(topology=network, demand=demand, **options)


def make_instance(*arguments: Any, epoch: Any = None, **options: Any) -> Instance:
    """Return the instance of a problem; with an epoch it counts in epochs."""
    problem = make_problem(*arguments, **options)
    return Instance.build(problem, None if epoch is None else TimeGrid.build(problem, epoch))


def random_fabric(seed: int) -> Instance | None:
    """Return a collective on a random network; None where it cannot be, or rates change."""
    rng = random.Random(seed)
    network = random_network(rng)
    collective = rng.choice(["allgather", "reducescatter", "allreduce"])
    problem = Problem(topology=network, demand=Demand.collective(collective, size="8MB"))
    if find_unreachable(problem) is not None or network.has_profiles:
        return None
    return Instance.build(problem)


def assert_disjoint(tasks: Tasks, start: np.ndarray) -> None:
    """No two tasks hold a resource at the same time."""
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    begin = start[owner] + tasks.res_offset
    order = np.lexsort((begin, tasks.res))
    same = tasks.res[order][1:] == tasks.res[order][:-1]
    ends = (begin + tasks.res_hold)[order][:-1]
    assert np.all(ends[same] <= begin[order][1:][same])


def plans(instance: Instance, *, target: int, level: str, seed: int = 0) -> Iterator[Plan]:
    """Construct with the means of an effort; a quick one tries what serves first."""
    total = BUDGET[level]
    goal = Goal(
        target=target,
        allowance=0 if level == "quick" else total // PART,
        price=PATIENCE[level] / total,
        seed=seed,
    )
    return construct(instance, goal)


def best_plan(instance: Instance, *, level: str = "normal", seed: int = 0, target: int = 0) -> Plan:
    """Return the last and best of the plans for an instance."""
    *_, last = plans(instance, target=target, level=level, seed=seed)
    return last


def verified(instance: Instance, plan: Plan) -> Schedule:
    """Return the schedule of a plan; it must pass verification."""
    schedule = realise(instance, plan, method="construct")
    assert verify(schedule) == ()
    return schedule
