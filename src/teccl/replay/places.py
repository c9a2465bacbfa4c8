"""Places: the order of sends on links and shared capacities."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teccl._arrays import IntArray, expand, ints, scaled
from teccl.errors import ScheduleError
from teccl.replay.crossings import Passages
from teccl.replay.relations import Book
from teccl.replay.times import Times
from teccl.schedule.columns import Sends
from teccl.schedule.ordering import order_by


class PlaceUses(NamedTuple):
    """Pairs of a send and a link or shared capacity that it occupies."""

    row: IntArray
    place: IntArray


def link_uses(sends: Sends) -> PlaceUses:
    """Every send with its link."""
    return PlaceUses(np.arange(len(sends)), sends.link)


def shared_uses(sends: Sends) -> PlaceUses:
    """Sends with every shared capacity of their links."""
    topology = sends.problem.topology
    number = {name: i for i, name in enumerate(topology.shared)}
    shares = [[number[name] for name in link.shares] for link in topology.links]
    count = ints([len(each) for each in shares])
    first = np.cumsum(count) - count
    rows = np.repeat(np.arange(len(sends)), count[sends.link])
    place = ints([i for each in shares for i in each])
    return PlaceUses(rows, place[expand(first[sends.link], count[sends.link])])


def keep_apart(book: Book, times: Times, uses: PlaceUses, *, may_meet: bool) -> None:
    """Keep sends that follow one another at a place disjoint and in order.

    Circuits that meet on a link are free relative to each other, and still never need more than
    the link has: circuits that meet at one instant of the replay meet pairwise, so they met
    pairwise in the schedule (those that did not are kept apart), and intervals of a line that
    meet pairwise have an instant in common (Helly), at which the schedule carried all of them.
    """
    rows, place = uses
    begin = times.start[rows]
    end = begin + times.held[rows]
    order = order_by(place, begin)
    before, after = order[:-1], order[1:]
    same = place[before] == place[after]
    before, after = before[same], after[same]
    crowded = np.unique(place[after[begin[after] < end[before]]])
    if len(crowded) and not may_meet:
        raise ScheduleError("sends overlap on a link or shared capacity; verify the schedule first")
    plain = ~np.isin(place[after], crowded)
    book.keep(book.end(rows[before[plain]]), book.start(rows[after[plain]]))
    meeting = np.flatnonzero(np.isin(place, crowded))
    meeting = meeting[np.argsort(place[meeting], kind="stable")]
    for here in np.split(meeting, np.flatnonzero(np.diff(place[meeting])) + 1):
        before, after = _followers(begin[here], end[here])
        book.keep(book.end(rows[here[before]]), book.start(rows[here[after]]))


def _followers(begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs (i, j) of intervals with ``end[i] <= begin[j]`` from which all such pairs follow.

    If k lies wholly between i and j, the pair (i, j) follows from (i, k) and (k, j). So j needs
    only those before it that end after the latest begin among all before it.
    """
    by_end = np.argsort(end, kind="stable")
    ends = end[by_end]
    latest = np.maximum.accumulate(begin[by_end])
    high = np.searchsorted(ends, begin, side="right")
    after = np.flatnonzero(high > 0)
    high = high[after]
    low = np.searchsorted(ends, latest[high - 1], side="right")
    return by_end[expand(low, high - low)], np.repeat(after, high - low)


def single_file(
    sends: Sends, passages: Passages, times: Times, rates: tuple[Fraction, ...]
) -> tuple[IntArray, IntArray]:
    """Pairs (end, start) of moments that part circuits which met but do not fit on other rates.

    Where the circuits that were on a link together need more than it has now, all circuits on the
    link follow one another in the order of their starts.

    Parameters
    ----------
    rates
        Bytes per second that each link carries now.
    """
    rate = scaled(rates, len(sends))[sends.link]
    slowest = np.full(len(passages.root), rate.max(initial=0), dtype=rate.dtype)
    np.minimum.at(slowest, passages.index, rate)
    need = slowest[passages.index]
    link, change = np.tile(sends.link, 2), np.concatenate([need, -need])
    is_begin = np.repeat([True, False], len(sends))
    order = order_by(link, np.concatenate([times.start, times.start + times.held]), is_begin)
    # The changes on each link sum to zero, so one running sum serves all links.
    needed = np.cumsum(change[order])
    is_over = is_begin[order] & (needed > np.tile(rate, 2)[order]).astype(bool)
    rows = np.flatnonzero(np.isin(sends.link, link[order[is_over]]))
    rows = rows[np.lexsort((sends.transfer[rows], times.start[rows], sends.link[rows]))]
    same = sends.link[rows[1:]] == sends.link[rows[:-1]]
    return rows[:-1][same] + len(sends), rows[1:][same]
