"""Prices over time: what they prove is never more than a flow over time needs, and often that."""

import random
from fractions import Fraction

import numpy as np
import pytest
from tests.bounds.fluid import can_finish
from tests.bounds.instances import UNIT, fluid_problem, random_topology, scaled
from tests.bounds.mixture import most_by
from tests.sampling import counts

from teccl.bounds import all_bounds, timed_lengths
from teccl.bounds.circuit_rates import at_circuit_rates
from teccl.bounds.lengths import unicast_load
from teccl.bounds.network import Network
from teccl.bounds.timed_flow import Course, Intervals
from teccl.bounds.windows import FAR
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.topology import Topology

UNIT_PS = int(UNIT * 10**12)
MODES = [{}, {}, {"switch": SwitchMode.NO_COPY}, {"transit": Transit.CUT_THROUGH}]
# Random prices for each problem.
TRIES = 12


def exchange(rng: random.Random, topology: Topology) -> Demand:
    """A few chunks from one GPU to one other each, some of them ready late."""
    ranks = range(topology.num_gpus)
    pairs = [rng.sample(ranks, 2) for _ in range(rng.randrange(2, 6))]
    tenant = Tenant(
        collective=Collective.EXPLICIT,
        size=Fraction(1000),
        chunks=tuple(ExplicitChunk((a,), (b,)) for a, b in pairs),
        ready={rank: rng.choice([0, 2, 3]) * UNIT for rank in ranks if rng.random() < 0.2},
    )
    return Demand(tenants=(tenant,))


def random_exchange(seed: int) -> Problem | None:
    """An exchange among up to five GPUs; None if something cannot get where it is wanted."""
    rng = random.Random(f"exchange {seed}")
    topology = random_topology(rng)
    mode = rng.choice(MODES) if topology.num_switches else {}
    problem = Problem(topology=topology, demand=exchange(rng, topology), **mode)
    is_served = bool(topology.links) and course_of(problem).longest < FAR
    return problem if is_served else None


def course_of(problem: Problem) -> Course:
    network = Network.build(at_circuit_rates(problem), fluid=True)
    return Course.of(network, unicast_load(network).pairs)


def proven_by_chance(course: Course, seed: int) -> int:
    """The latest time that some random prices prove, on grids of any interval."""
    rng = np.random.default_rng(seed)
    best = 0
    for _ in range(TRIES):
        grid = Intervals(
            int(rng.integers(UNIT_PS // 3, 2 * UNIT_PS)), int(rng.integers(1, 16)) * UNIT_PS
        )
        prices = rng.choice([0, 0, 0, 1, 1, 2], (len(course.onward), grid.number))
        best = max(best, timed_lengths._proven(course, grid, prices))
    return best


def is_undercut(seed: int) -> bool:
    """Whether fluid data can be delivered before what prices prove, in steps of half a unit."""
    problem = random_exchange(seed)
    if problem is None:
        return False
    course = course_of(problem)
    chosen = timed_lengths.timed_length_bounds(course.network, course.longest + 1)
    bound = max([proven_by_chance(course, seed), *(bound.value for bound in chosen)])
    steps = -(-bound * 2 // UNIT_PS)
    return steps > 0 and can_finish(problem, UNIT / 2, steps - 1)


def excess(seed: int) -> float | None:
    """By how much prices exceed a horizon that data just needs where rates change over time."""
    rng = random.Random(f"changes {seed}")
    problem = fluid_problem(rng, 3, lambda topology: exchange(rng, topology))
    course = course_of(problem)
    if problem.switch is SwitchMode.HYPER_EDGE or course.longest >= FAR:
        return None
    horizon = -(-course.longest // UNIT_PS) + rng.choice([1, 2, 2, 3, 4])
    factor = most_by(problem, UNIT, horizon)
    if not 0 < factor < float("inf"):
        return None
    # The linear program is exact to some nine digits.
    course = course_of(scaled(problem, Fraction(factor) * (1 - Fraction(1, 10**6))))
    chosen = timed_lengths.timed_length_bounds(course.network, course.longest + 1)
    bounds = [proven_by_chance(course, seed), *(bound.value for bound in chosen)]
    return max(bounds) / (horizon * UNIT_PS) - 1


def test_prices_hold_where_rates_change_on_a_sample():
    """No prices prove more than the best mixture of ways takes, rates that change included."""
    found = {seed: excess(seed) for seed in range(8)}
    assert any(value is not None for value in found.values())
    assert {seed: value for seed, value in found.items() if value is not None and value > 0} == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 21))
def test_prices_hold_where_rates_change(number):
    """The same on many problems."""
    found = {seed: excess(seed) for seed in range(20 * number, 20 * number + 20)}
    assert {seed: value for seed, value in found.items() if value is not None and value > 0} == {}


@pytest.mark.parametrize("count", counts(15, 40))
def test_prices_hold_on_a_sample(count):
    """No prices prove more than a flow over time needs."""
    assert [seed for seed in range(count) if is_undercut(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 41))
def test_prices_hold(number):
    """The same on many problems."""
    assert [seed for seed in range(100 * number, 100 * number + 100) if is_undercut(seed)] == []


def test_relays_on_a_dgx1():
    """Three of seven GPUs are two hops away: 24 KB enter each GPU by relays, after 0.7 us."""
    demand = Demand.collective("alltoall", size="64KB")
    problem = Problem(topology=Topology.parse("dgx1"), demand=demand)
    best = all_bounds(problem, most_cuts=4)[0]
    others = [b for b in all_bounds(problem, most_cuts=4) if b.kind != "timed-lengths"]
    assert others[0].value == 1_592_000
    assert best.kind == "timed-lengths"
    # By a linear program with exact latencies the least time is 1.72 us.
    assert 1_710_000 <= best.value <= 1_720_000


def test_nothing_is_gained_where_one_receives_all():
    """What comes to one GPU has a quickest flow already."""
    demand = Demand.collective("gather", size="64KB")
    bounds = all_bounds(Problem(topology=Topology.parse("dgx1"), demand=demand))
    assert "timed-lengths" not in {bound.kind for bound in bounds}


def test_nodes_that_look_alike_share_a_flow():
    """Every GPU of a fat tree sees the same; on a random graph most differ."""
    sizes = {}
    for spec in ("fat-tree:k=4", "random:gpus=16,degree=3,seed=7"):
        demand = Demand.collective("alltoall", size="64KB")
        course = course_of(Problem(topology=Topology.parse(spec), demand=demand))
        flow = timed_lengths.TimedFlow.of(course, most=10_000)
        sizes[spec] = [arcs.alike for arcs in flow.arcs]
    assert sizes["fat-tree:k=4"] == [16]
    assert len(sizes["random:gpus=16,degree=3,seed=7"]) > 12
