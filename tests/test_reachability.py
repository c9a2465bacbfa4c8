"""Whether a network can deliver what is wanted."""

import pytest
from tests.verification.helpers import net, task, wants

from teccl.problem import SwitchMode, Transit
from teccl.reachability import find_unreachable

CIRCUITS = [{"transit": Transit.CUT_THROUGH}, {"switch": SwitchMode.HYPER_EDGE}]


def test_a_missing_way_is_named():
    """Chunk and nodes are told."""
    problem = task(net("a b c", "a>b, b>c"), wants(([2], [0])))
    found = find_unreachable(problem)
    assert found is not None
    assert "cannot get from c to a: net has no path" in found.describe(problem)


@pytest.mark.parametrize("options", CIRCUITS)
def test_a_circuit_cannot_hold_a_capacity_twice(options):
    """Where every way shares a capacity with itself, only storing and forwarding helps."""
    topology = net("a b | s", "a>s /x, s>b /x", shared={"x": 1})
    problem = task(topology, wants(([0], [1])), **options)
    found = find_unreachable(problem)
    assert found is not None
    assert "that holds no shared capacity twice" in found.describe(problem)
    assert find_unreachable(task(topology, wants(([0], [1])))) is None


@pytest.mark.parametrize("options", CIRCUITS)
def test_ways_beside_a_shared_capacity_are_found(options):
    """A detour by a GPU begins a circuit anew."""
    topology = net("a b c | s t", "a>s /x, s>b /x, s>c, c>t, t>b /x", shared={"x": 1})
    assert find_unreachable(task(topology, wants(([0], [1])), **options)) is None
