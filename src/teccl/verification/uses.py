"""Uses: which links and shared capacities sends occupy, and which of them clash there."""

from typing import NamedTuple

import numpy as np

from teccl._arrays import IntArray, expand, ints
from teccl.schedule.ordering import order_by
from teccl.topology import Topology
from teccl.verification.timeline import Timeline


class Clashes(NamedTuple):
    """Pairs of sends at one place of which the later begins before the earlier has ended."""

    earlier: IntArray
    later: IntArray
    place: IntArray


class Uses(NamedTuple):
    """Pairs of a send and a link or shared capacity that it occupies."""

    row: IntArray
    place: IntArray

    def clashes(self, timeline: Timeline) -> Clashes:
        """Find neighbours at a place that overlap; sends take time, so no others need be asked."""
        begin = timeline.start[self.row]
        end = begin + timeline.held[self.row]
        order = order_by(self.place, begin)
        earlier, later = order[:-1], order[1:]
        clash = (self.place[earlier] == self.place[later]) & (begin[later] < end[earlier])
        earlier, later = earlier[clash], later[clash]
        return Clashes(self.row[earlier], self.row[later], self.place[later])


def shared_uses(topology: Topology, link: IntArray) -> Uses:
    """Sends on the given links with every shared capacity that they occupy."""
    number = {name: i for i, name in enumerate(topology.shared)}
    names = ints([number[name] for each in topology.links for name in each.shares])
    count = ints([len(each.shares) for each in topology.links])
    first = np.cumsum(count) - count
    rows = np.repeat(np.arange(len(link)), count[link])
    return Uses(rows, names[expand(first[link], count[link])])
