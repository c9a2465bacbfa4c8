"""Which pairs of a star bind: races that cuts over time part off, beside all other races."""

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.bounds.fluid import can_finish
from tests.bounds.instances import UNIT, random_topology

from teccl.bounds import all_bounds
from teccl.bounds.circuit_rates import at_circuit_rates
from teccl.bounds.network import Network
from teccl.bounds.quickest import race_bound
from teccl.bounds.summary import FAMILIES
from teccl.bounds.transshipment import _latest, _race, _star
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem
from teccl.reachability import find_unreachable
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict

UNIT_PS = int(UNIT * 10**12)


def star_problem(seed: int) -> tuple[Problem, bool] | None:
    """What one of up to five GPUs sends to others or gets from them, and whether it gets it."""
    rng = random.Random(f"star {seed}")
    topology = random_topology(rng)
    inward, count = rng.random() < 0.5, topology.num_gpus
    ends = [(rank, 0) if inward else (0, rank) for rank in range(1, count)]
    tenant = Tenant(
        collective=Collective.EXPLICIT,
        size=Fraction(1000),
        chunks=tuple(
            ExplicitChunk((a,), (b,), size=Fraction(1000 * rng.randrange(1, 4))) for a, b in ends
        ),
        ready={rank: rng.choice([0, 2, 3]) * UNIT for rank in range(count) if rng.random() < 0.2},
    )
    problem = Problem(topology=topology, demand=Demand(tenants=(tenant,)))
    is_served = count > 2 and find_unreachable(problem) is None
    return (problem, inward) if is_served else None


def found_and_best(seed: int) -> tuple[int, int] | None:
    """The bound of the races that cuts part off, and that of the best of all races."""
    drawn = star_problem(seed)
    if drawn is None:
        return None
    problem, inward = drawn
    network = Network.build(at_circuit_rates(problem), fluid=True)
    star = _star(network, int(problem.topology.gpus[0]), inward=inward)
    assert star is not None
    races = [
        race_bound(network, _race(star, np.array(chosen)), UNIT_PS)
        for chosen in product([False, True], repeat=len(star.source))
        if any(chosen)
    ]
    found = _latest(network, star, 1)
    return (0 if found is None else found.value), max(b.value for b in races if b is not None)


def is_undercut(seed: int) -> bool:
    """Whether fluid data can be delivered before what the races prove, in steps of half a unit."""
    drawn, found = star_problem(seed), found_and_best(seed)
    if drawn is None or found is None:
        return False
    steps = -(-max(found) * 2 // UNIT_PS)
    return can_finish(drawn[0], UNIT / 2, steps - 1)


def test_races_hold_on_a_sample():
    """No race proves more than a flow over time needs."""
    assert [seed for seed in range(30) if is_undercut(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 11))
def test_races_hold(number):
    """The same on many problems."""
    assert [seed for seed in range(100 * number, 100 * number + 100) if is_undercut(seed)] == []


def test_cuts_part_off_the_race_that_binds():
    """What is found is the best of all races, but for the length of an interval."""
    pairs = [pair for seed in range(30) if (pair := found_and_best(seed)) is not None]
    assert len(pairs) > 15
    assert all(found <= best for found, best in pairs)
    assert all(found >= best * (1 - 1 / 64) for found, best in pairs)


def sparse(seed: int, count: int) -> Topology:
    """Each GPU is joined to one or two of those before it, by quick or by wide links."""
    rng, links = random.Random(f"sparse {seed}"), []
    for rank in range(1, count):
        for other in {rng.randrange(rank) for _ in range(2)}:
            rate, alpha = rng.choice([("180GB/s", "3.3us"), ("69GB/s", "2us")])
            ends = {"src": f"gpu{other}", "dst": f"gpu{rank}", "bidirectional": True}
            links.append({**ends, "bandwidth": rate, "alpha": alpha})
    nodes = [{"name": f"gpu{rank}"} for rank in range(count)]
    return topology_from_dict({"schema_version": 1, "nodes": nodes, "links": links})


def test_cuts_that_stay_in_place_do_not_tell_of_all_races(monkeypatch):
    """On sparse networks of two kinds of links some race takes longer than all other bounds say."""
    demand = Demand.collective("scatter", size="4MB", root=0)
    problems = [Problem(topology=sparse(seed, 12), demand=demand) for seed in range(6)]
    values = [all_bounds(problem, most_cuts=4)[0].value for problem in problems]
    monkeypatch.delitem(FAMILIES, "transshipment")
    before = [all_bounds(problem, most_cuts=4)[0].value for problem in problems]
    assert all(value >= old for value, old in zip(values, before, strict=True))
    assert sum(value > old for value, old in zip(values, before, strict=True)) >= 3
