"""Links and shared capacities in physical time: who holds them when."""

import numpy as np

from teccl.check import lengths
from teccl.check._arrays import IntArray, expand, ints, overloads, scaled
from teccl.check.sends import Sends
from teccl.check.timeline import Timeline
from teccl.check.transfers import Passing, Transfers
from teccl.check.violation import Findings, ViolationKind
from teccl.topology import Topology


def clashes(place: IntArray, begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs (earlier, later) of neighbours at one place of which the later begins too soon.

    Intervals are not empty, so that all at a place are disjoint if all neighbours are.
    """
    order = np.lexsort((begin, place))
    earlier, later = order[:-1], order[1:]
    clash = (place[earlier] == place[later]) & (begin[later] < end[earlier])
    return earlier[clash], later[clash]


def shared_uses(topology: Topology, link: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs (send, shared capacity) for all shared capacities that sends occupy."""
    number = {name: i for i, name in enumerate(topology.shared)}
    names = ints([number[name] for each in topology.links for name in each.shares])
    count = ints([len(each.shares) for each in topology.links])
    first = np.cumsum(count) - count
    rows = np.repeat(np.arange(len(link)), count[link])
    return rows, names[expand(first[link], count[link])]


def check_links(sends: Sends, transfers: Transfers, timeline: Timeline, findings: Findings) -> None:
    """Check that links, and capacities they share, carry no more than they can at any time."""
    if transfers.passing is Passing.CIRCUIT:
        _check_circuits(sends, transfers, timeline, findings)
    else:
        everything = np.arange(len(sends))
        _check_alone(sends, timeline, findings, everything, sends.link, ViolationKind.OVERLAP)
    topology = sends.problem.topology
    if topology.shared:
        rows, capacity = shared_uses(topology, sends.link)
        _check_alone(sends, timeline, findings, rows, capacity, ViolationKind.SHARED_OVERLAP)


def _check_alone(
    sends: Sends,
    timeline: Timeline,
    findings: Findings,
    rows: IntArray,
    place: IntArray,
    kind: ViolationKind,
) -> None:
    """Check that the sends at each place follow one another."""
    begin = timeline.start[rows]
    end = begin + timeline.held[rows]
    earlier, later = clashes(place, begin, end)
    pairs = dict(zip(later.tolist(), earlier.tolist(), strict=True))
    topology = sends.problem.topology
    names = list(topology.shared)

    def add(use: int) -> None:
        other = rows[pairs[use]]
        held_by = f"by chunk {sends.chunk[other]} until {timeline.show(end[pairs[use]])}"
        what = "the link"
        if kind is ViolationKind.SHARED_OVERLAP:
            what = f"shared capacity {names[place[use]]}"
            held_by += f" on {topology.link_name(int(sends.link[other]))}"
        begins = timeline.show(begin[use])
        detail = f"begins at {begins} while {what} is held {held_by}"
        timeline.note(findings, sends, kind, int(rows[use]), detail)

    findings.add_each(kind, later, add)


def _check_circuits(
    sends: Sends, transfers: Transfers, timeline: Timeline, findings: Findings
) -> None:
    """Check that the rates of the circuits on each link sum to at most its bandwidth."""
    topology = sends.problem.topology
    rates = [lengths.link_rate(topology, link) for link in topology.links]
    link_rate = scaled(rates, len(sends))
    rate = link_rate[sends.link]
    slowest = np.full(len(transfers.root), link_rate.max(initial=0), dtype=rate.dtype)
    np.minimum.at(slowest, transfers.index, rate)
    end = timeline.start + timeline.held

    def add(row: int) -> None:
        detail = "the circuits on the link from here on need more than its bandwidth"
        timeline.note(findings, sends, ViolationKind.OVERLOAD, row, detail)

    load = slowest[transfers.index]
    over = overloads(sends.link, timeline.start, end, load, rate)
    findings.add_each(ViolationKind.OVERLOAD, over, add)
