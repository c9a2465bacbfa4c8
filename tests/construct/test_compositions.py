"""Plans made of plans for simpler instances: mean rates, pauses between changes."""

import random
from dataclasses import replace

import pytest
from tests.verification.helpers import US, net, rate, seconds, with_profile

import teccl
from teccl.construct.booking import Booking
from teccl.construct.compositions import (
    at_lasting_rates,
    at_mean_rates,
    mean_rate_plans,
    regime_plans,
)
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.realise import realise
from teccl.demand import Demand
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.replay import simulate
from teccl.synthesis import solve
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.verification import verify


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


def changing_leaves(seed: int) -> Topology:
    """Return GPUs below two leaves and two spines, with some links whose rates change once."""
    draw = random.Random(seed)
    names = "a-l, b-l, c-m, d-m, l-x 5 0.1, l-y 5 0.1, m-x 5 0.1, m-y 5 0.1"
    fabric = net("a b c d | l m x y", names)
    links = tuple(
        replace(link, profile=((seconds(draw.randint(1, 20)), rate(draw.choice([1, 3, 8]))),))
        if draw.random() < 0.4
        else link
        for link in fabric.links
    )
    return replace(fabric, links=links)


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


def test_mean_rates_are_what_links_carry_by_then():
    """A link of 10 GB/s that falls to 2 GB/s after 5 us has 4 GB/s on the mean of 20 us."""
    topology = with_profile(net("a b", "a-b 10"), "a>b", (5, 2))
    problem = Problem(topology=topology, demand=Demand.collective("broadcast", size=1000))
    still = at_mean_rates(Instance.build(problem), 20 * US).problem.topology
    assert [link.bandwidth for link in still.links] == [rate(4), rate(10)]
    assert not still.has_profiles


def test_rates_that_last_are_no_higher_than_what_links_fall_to():
    """One link falls from 10 to 2 GB/s after 5 us, the other rises, to 4 GB/s on the mean."""
    topology = with_profile(net("a b", "a>b 10, b>a 2"), "a>b", (5, 2))
    topology = with_profile(topology, "b>a", (15, 10))
    problem = Problem(topology=topology, demand=Demand.collective("broadcast", size=1000))
    still = at_lasting_rates(Instance.build(problem), 20 * US).problem.topology
    assert [link.bandwidth for link in still.links] == [rate(2), rate(4)]


def test_a_link_that_falls_late_is_not_what_the_end_waits_for():
    """Plans at mean rates leave the end of a ring's AllReduce to a link at a fifth of its rate."""
    topology = with_profile(Topology.parse("ring:gpus=4"), "gpu3>gpu0", (18, 10))
    result = solve(topology, "allreduce", size="1900KB", effort="quick")
    assert result.finish_time_s is not None
    assert result.finish_time_s < 40e-6


def test_stages_are_made_at_rates_that_last():
    """One shot gets around a link that falls; sums along trees take 1.67 us."""
    topology = with_profile(Topology.parse("mi300x"), "c0/gpu5>c0/gpu7", ("0.09", "12.8"))
    result = solve(topology, "allreduce", size="27KB", effort="quick")
    assert result.verified
    assert result.finish_time_s is not None
    assert result.finish_time_s < 1.6e-6


@pytest.mark.parametrize("collective", ["broadcast", "allgather", "reducescatter", "allreduce"])
@pytest.mark.parametrize("seed", range(3))
def test_plans_at_mean_rates_hold_at_rates_as_they_change(seed, collective):
    """Plans that suit mean rates keep the rules and end when they say, copies in switches too."""
    demand = Demand.collective(collective, size="400KB")
    instance = Instance.build(Problem(topology=changing_star(seed), demand=demand, num_chunks=2))
    plans = list(mean_rate_plans(instance, Goal(target=10 * US, allowance=100_000)))
    assert plans
    for plan in plans:
        schedule = realise(instance, plan, method="construct")
        assert not verify(schedule)
        assert simulate(schedule).finish_ps <= plan.finish


@pytest.mark.parametrize("collective", ["broadcast", "allgather"])
@pytest.mark.parametrize("buffer", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_copies_never_wait_at_rates_as_they_change(seed, buffer, collective):
    """Where buffers are limited, what follows without a pause is moved as one piece."""
    demand = Demand.collective(collective, size="400KB")
    problem = Problem(topology=changing_leaves(seed), demand=demand, num_chunks=4, buffer=buffer)
    instance = Instance.build(problem)
    plans = list(mean_rate_plans(instance, Goal(target=10 * US, allowance=100_000)))
    assert plans
    for plan in plans:
        schedule = realise(instance, plan, method="construct")
        assert not verify(schedule)
        assert simulate(schedule).finish_ps <= plan.finish


def test_legs_that_would_meet_themselves_are_refused():
    """Two branches that come to one link at the same moment can have no times."""
    topology = net("a b c d e | s t", "a>b, a>c, b>s, c>s, s>t, t>d, t>e")
    demand = Demand.collective("broadcast", size=1000)
    booking = Booking(Problem(topology=topology, demand=demand, buffer=0))
    names = ("a>b", "a>c", "b>s", "s>t", "t>d", "c>s", "s>t", "t>e")
    links = tuple(topology.find_links(name)[0] for name in names)
    with pytest.raises(MethodError, match="twice at once"):
        booking.carry_whole(0, links)
