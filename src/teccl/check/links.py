"""Links and shared capacities in physical time: who holds them when."""

from typing import NamedTuple

import numpy as np

from teccl.check import lengths
from teccl.check._arrays import IntArray, NumberArray, expand, ints, overloads, scaled
from teccl.check.sends import Sends
from teccl.check.timeline import Timeline
from teccl.check.transfers import Passing, Transfers
from teccl.check.violation import Findings, ViolationKind
from teccl.schedule.ordering import order_by
from teccl.topology import Topology


def clashes(place: IntArray, begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs (earlier, later) of neighbours at one place of which the later begins too soon.

    Intervals are not empty, so that all at a place are disjoint if all neighbours are.
    """
    order = order_by(place, begin)
    earlier, later = order[:-1], order[1:]
    clash = (place[earlier] == place[later]) & (begin[later] < end[earlier])
    return earlier[clash], later[clash]


class Uses(NamedTuple):
    """Pairs of a send and a link or shared capacity that it occupies."""

    row: IntArray
    place: IntArray


def link_uses(sends: Sends) -> Uses:
    """Every send with its link."""
    return Uses(np.arange(len(sends)), sends.link)


def shared_uses(topology: Topology, link: IntArray) -> Uses:
    """Sends on the given links with every shared capacity that they occupy."""
    number = {name: i for i, name in enumerate(topology.shared)}
    names = ints([number[name] for each in topology.links for name in each.shares])
    count = ints([len(each.shares) for each in topology.links])
    first = np.cumsum(count) - count
    rows = np.repeat(np.arange(len(link)), count[link])
    return Uses(rows, names[expand(first[link], count[link])])


def circuit_loads(
    sends: Sends, transfers: Transfers, topology: Topology
) -> tuple[NumberArray, NumberArray]:
    """Bandwidth of each send's link and the part of it that its circuit needs, in a common unit."""
    rates = [lengths.link_rate(topology, link) for link in topology.links]
    rate = scaled(rates, len(sends))[sends.link]
    slowest = np.full(len(transfers.root), rate.max(initial=0), dtype=rate.dtype)
    np.minimum.at(slowest, transfers.index, rate)
    return rate, slowest[transfers.index]


def check_links(sends: Sends, transfers: Transfers, timeline: Timeline, findings: Findings) -> None:
    """Check that links, and capacities they share, carry no more than they can at any time."""
    if transfers.passing is Passing.CIRCUIT:
        _check_circuits(sends, transfers, timeline, findings)
    else:
        _check_alone(sends, timeline, findings, link_uses(sends), ViolationKind.OVERLAP)
    topology = sends.problem.topology
    if topology.shared:
        shared = shared_uses(topology, sends.link)
        _check_alone(sends, timeline, findings, shared, ViolationKind.SHARED_OVERLAP)


def _check_alone(
    sends: Sends,
    timeline: Timeline,
    findings: Findings,
    uses: Uses,
    kind: ViolationKind,
) -> None:
    """Check that the sends at each place follow one another."""
    rows, place = uses
    begin = timeline.start[rows]
    end: IntArray = begin + timeline.held[rows]
    earlier, later = clashes(place, begin, end)
    pairs = dict(zip(later.tolist(), earlier.tolist(), strict=True))
    topology = sends.problem.topology
    names = list(topology.shared)

    def add(use: int) -> None:
        other = rows[pairs[use]]
        held_by = f"by chunk {sends.chunk[other]} until {timeline.show(int(end[pairs[use]]))}"
        what = "the link"
        if kind is ViolationKind.SHARED_OVERLAP:
            what = f"shared capacity {names[place[use]]}"
            held_by += f" on {topology.link_name(int(sends.link[other]))}"
        begins = timeline.show(int(begin[use]))
        detail = f"begins at {begins} while {what} is held {held_by}"
        timeline.note(findings, sends, kind, int(rows[use]), detail)

    findings.add_each(kind, later, add)


def _check_circuits(
    sends: Sends, transfers: Transfers, timeline: Timeline, findings: Findings
) -> None:
    """Check that the rates of the circuits on each link sum to at most its bandwidth."""
    rate, load = circuit_loads(sends, transfers, sends.problem.topology)
    end = timeline.start + timeline.held

    def add(row: int) -> None:
        detail = "the circuits on the link from here on need more than its bandwidth"
        timeline.note(findings, sends, ViolationKind.OVERLOAD, row, detail)

    over = overloads(sends.link, timeline.start, end, load, rate)
    findings.add_each(ViolationKind.OVERLOAD, over, add)
