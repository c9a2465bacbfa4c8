"""Plans made of plans for simpler instances: halves in turn, and between two changes of rates."""

import random
from dataclasses import replace

import pytest
from tests.verification.helpers import net, rate, seconds

import teccl
from teccl.construct.compositions import allreduces_in_turn, regime_plans
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.synthesis import solve
from teccl.timegrid import TimeGrid
from teccl.topology import Topology


def changing_star(seed: int) -> Topology:
    """Return a few GPUs at a switch, over links whose rates change once."""
    draw = random.Random(seed)
    names = [f"gpu{i}" for i in range(draw.randint(3, 5))]
    star = net(" ".join(names) + " | hub", ", ".join(f"{name}-hub" for name in names))
    links = tuple(
        replace(
            link,
            bandwidth=rate(draw.choice([10, 25, 50])),
            alpha=seconds(draw.choice(["0", "0.1", "0.7"])),
            profile=((seconds(draw.randint(1, 20)), rate(draw.choice([5, 20, 60]))),),
        )
        for link in star.links
    )
    return replace(star, links=links)


@pytest.mark.parametrize(
    ("seed", "collective"), [(0, "allgather"), (1, "alltoall"), (2, "allreduce")]
)
def test_rates_that_change_behind_a_switch_are_served_on_a_grid(seed: int, collective: str) -> None:
    """A switch passes data on in an exact epoch, whatever the rate was when it was sent."""
    result = solve(changing_star(seed), collective, size="64KB", grid=True, effort="quick")
    assert teccl.verify(result.schedule) == ()


def test_a_plan_lies_between_two_changes() -> None:
    """What does not end before rates change begins when they have."""
    topology = changing_star(0)
    problem = Problem(topology=topology, demand=Demand.collective("allgather", size="2MB"))
    grid = TimeGrid.build(problem)
    instance = Instance.build(problem, grid)
    (plan,) = regime_plans(instance, Goal())
    changes = [grid.ready_epoch(link.profile[0][0]) for link in topology.links]
    assert plan.finish <= min(changes) or plan.rows[:, 2].min() >= min(changes)


@pytest.mark.parametrize("buffer", [1, 2, 4])
def test_allreduces_through_relays_keep_to_their_buffers(buffer: int) -> None:
    """Sums that wait at their owners count, and so do those that others pass on."""
    result = solve("ring:gpus=6", "allreduce", size="1MB", buffer=buffer, effort="quick")
    assert teccl.verify(result.schedule) == ()
    assert result.schedule.problem.num_chunks <= buffer


def test_halves_in_turn_need_room_for_the_sums_of_each_gpu() -> None:
    """A GPU keeps as many sums as it owns chunks."""
    demand = Demand.collective("allreduce", size="1MB")
    problems = [
        Problem(topology=Topology.parse("ring:gpus=6"), demand=demand, num_chunks=n, buffer=2)
        for n in (1, 2, 3)
    ]
    assert [allreduces_in_turn(Instance.build(p)) for p in problems] == [True, True, False]
