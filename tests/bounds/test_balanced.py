"""Prices from rounds: they find bridges, and stay below what schedules reach."""

import numpy as np

import teccl
from teccl.bounds.balanced import balanced_prices
from teccl.topology import Topology


def all_pairs(topology):
    """Return rates, sources, destinations and amounts of an AllToAll."""
    rates = np.array([float(rate) for rate in topology.rates])
    src, dst = np.nonzero(~np.eye(topology.num_gpus, dtype=bool))
    return rates, src, dst, np.ones(len(src))


def test_a_bridge_is_the_dearest_link():
    """The middle of a line carries most of an AllToAll."""
    line = Topology.parse("line:gpus=6")
    price = balanced_prices(line, *all_pairs(line))
    dearest = {frozenset((line.links[i].src, line.links[i].dst)) for i in np.argsort(-price)[:2]}
    assert dearest == {frozenset({2, 3})}


def test_large_networks_are_left_out():
    """Beyond the limit there are no prices."""
    torus = Topology.parse("torus:dims=16x16")
    assert balanced_prices(torus, *all_pairs(torus)) is None


def test_the_bound_of_a_large_line_is_tight():
    """A line of 60 GPUs is too large for the flow, and its middle still binds."""
    result = teccl.solve("line:gpus=60", "alltoall", size="6MB", effort="quick")
    assert result.physical_gap <= 0.02
