"""What links carry under hyper-edges: no more than the widest way through them."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from teccl.keywords import SwitchMode
from teccl.problem import Problem
from teccl.topology import Topology

IntArray = npt.NDArray[np.int64]


def at_circuit_rates(problem: Problem) -> Problem:
    """Return a problem with the rates at which hyper-edges use its links.

    A hyper-edge holds every link of its way alone, for as long as the slowest one takes.
    """
    topology = problem.topology
    if problem.switch is not SwitchMode.HYPER_EDGE or not topology.num_switches:
        return problem
    rates = topology.rates
    known = sorted(set(rates))
    number = {rate: place for place, rate in enumerate(known)}
    rank = np.array([number[rate] for rate in rates], dtype=np.int64)
    before = _widest(topology, rank, topology.link_src, topology.link_dst)[topology.link_src]
    after = _widest(topology, rank, topology.link_dst, topology.link_src)[topology.link_dst]
    widest = np.minimum(before, after)
    # Dead ends are on no way at all; whatever they carry changes nothing.
    slower = np.flatnonzero((widest >= 0) & (widest < rank)).tolist()
    if not slower:
        return problem
    links = list(topology.links)
    for e in slower:
        links[e] = replace(links[e], bandwidth=known[widest[e]])
    return replace(problem, topology=replace(topology, links=tuple(links)))


def _widest(topology: Topology, rank: IntArray, first: IntArray, then: IntArray) -> IntArray:
    """Rank of the slowest link on the widest way from any GPU to each node through switches."""
    inside = topology.is_switch[then]
    reached = np.where(topology.is_switch, -1, rank.max(initial=0))
    for _ in range(topology.num_switches):
        found = reached.copy()
        np.maximum.at(found, then[inside], np.minimum(rank, reached[first])[inside])
        if np.array_equal(found, reached):
            break
        reached = found
    return reached
