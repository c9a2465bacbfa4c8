"""Relations between moments of sends that a replay keeps: the order of a schedule.

A *moment* is the start or the end of a send, its arrival, or a *gate*, a moment of its own that
comes no earlier than all moments led to it (so that "all of these before each of those" takes as
many relations as there are moments, not their product). A relation says that one moment comes at
least `lag` picoseconds after another.
"""

from dataclasses import dataclass, replace

import numpy as np

from teccl.check._arrays import (
    NEVER,
    BoolArray,
    IntArray,
    expand,
    ints,
    last_marked,
    new_run,
    number_runs,
    overloads,
)
from teccl.check.buffers import visits
from teccl.check.feeds import Feeds
from teccl.check.links import Uses, circuit_loads, clashes, link_uses, shared_uses
from teccl.check.sends import Sends
from teccl.check.timeline import Timeline
from teccl.check.transfers import Passing, Transfers
from teccl.errors import ScheduleError
from teccl.schedule.ordering import order_by
from teccl.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """Relations ``moment[after] >= moment[before] + lag``, and limits on starts.

    Parameters
    ----------
    gates
        When each gate was passed in the schedule itself.
    not_before, before_time
        Per send, when it may begin, and the time it must begin before.
    """

    before: IntArray
    after: IntArray
    lag: IntArray
    gates: IntArray
    not_before: IntArray
    before_time: IntArray

    def with_feeds(self, feeds: Feeds) -> "Relations":
        """Add that sends wait for the arrivals and the data that feed them."""
        fed = np.flatnonzero(feeds.feeder >= 0)
        joined = self.plus(feeds.feeder[fed] + 2 * len(feeds.feeder), fed)
        return replace(joined, not_before=np.maximum(self.not_before, feeds.not_before))

    def plus(self, before: IntArray, after: IntArray) -> "Relations":
        """Add relations without lag."""
        return replace(
            self,
            before=np.concatenate([self.before, before]),
            after=np.concatenate([self.after, after]),
            lag=np.concatenate([self.lag, np.zeros_like(before)]),
        )

    def are_kept(self, timeline: Timeline) -> bool:
        """Whether they hold for given times."""
        start, end = timeline.start, timeline.start + timeline.held
        moment = np.concatenate([start, end, timeline.arrival, self.gates])
        kept = (moment[self.after] >= moment[self.before] + self.lag).all()
        return bool(kept and (start >= self.not_before).all())

    def leave_no_room(self, timeline: Timeline) -> bool:
        """Whether it is plain that no send could begin earlier: each rests on something.

        For times that keep the relations, of sends that each are a transfer of their own. A send
        rests on its earliest time or, without room, on one that begins before it; following those
        leads to an earliest time.
        """
        starts = len(timeline.start)
        if len(self.gates) or (self.after >= starts).any():
            return False
        moment = np.concatenate([timeline.start, timeline.start + timeline.held, timeline.arrival])
        earliest = moment[self.before] + self.lag
        tight = earliest == timeline.start[self.after]
        tight &= earliest > timeline.start[self.before % starts]
        rests = timeline.start == self.not_before
        rests[self.after[tight]] = True
        return bool(rests.all())


class Book:
    """Collects relations; moments are numbered starts, ends, arrivals, then gates."""

    def __init__(self, num_sends: int) -> None:
        self.num_sends = num_sends
        self._parts: list[tuple[IntArray, IntArray, IntArray]] = []
        self._gates: list[IntArray] = []
        self._num_gates = 0
        self.not_before = np.zeros(num_sends, dtype=np.int64)
        self.before_time = np.full(num_sends, NEVER)

    def start(self, rows: IntArray) -> IntArray:
        """Moments at which sends begin."""
        return rows

    def end(self, rows: IntArray) -> IntArray:
        """Moments at which sends free their links."""
        return rows + self.num_sends

    def arrival(self, rows: IntArray) -> IntArray:
        """Moments at which sends are at their far ends."""
        return rows + 2 * self.num_sends

    def open_gates(self, times: IntArray) -> IntArray:
        """New gates, by the times at which the schedule passes them."""
        first = 3 * self.num_sends + self._num_gates
        self._gates.append(times)
        self._num_gates += len(times)
        return first + np.arange(len(times))

    def keep(self, before: IntArray, after: IntArray, lag: IntArray | int = 0) -> None:
        """Relate moments pair by pair."""
        lags = np.broadcast_to(np.asarray(lag, dtype=np.int64), len(before))
        self._parts.append((before, after, lags))

    def close(self) -> Relations:
        """Return everything collected."""
        columns = zip(*self._parts, strict=True) if self._parts else [[ints([])]] * 3
        before, after, lag = (np.concatenate(column) for column in columns)
        gates = np.concatenate([*self._gates, ints([])]).astype(np.int64)
        return Relations(
            before=before,
            after=after,
            lag=lag,
            gates=gates,
            not_before=self.not_before,
            before_time=self.before_time,
        )


def order_of(sends: Sends, transfers: Transfers, timeline: Timeline) -> Relations:
    """Everything of a schedule's order but which arrival feeds which send.

    Raises
    ------
    ScheduleError
        If links that carry one transfer at a time carry several.
    """
    book = Book(len(sends))
    may_meet = transfers.passing is Passing.CIRCUIT
    _keep_apart(book, timeline, link_uses(sends), may_meet=may_meet)
    if sends.problem.topology.shared:
        shared = shared_uses(sends.problem.topology, sends.link)
        _keep_apart(book, timeline, shared, may_meet=False)
    if sends.combines.any():
        _keep_own(book, sends, timeline)
        _keep_reads(book, sends, timeline)
        _keep_replacements(book, sends, timeline)
    if sends.problem.buffer is not None:
        _keep_visits(book, sends, timeline)
    return book.close()


def _keep_apart(book: Book, timeline: Timeline, uses: Uses, *, may_meet: bool) -> None:
    """Keep sends that follow one another at a place disjoint and in order.

    Circuits that meet on a link are free relative to each other, and still never need more than
    the link has: circuits that meet at one instant of the replay meet pairwise, so they met
    pairwise in the schedule (those that did not are kept apart), and intervals of a line that
    meet pairwise have an instant in common (Helly), at which the schedule carried all of them.
    """
    rows, place = uses
    begin = timeline.start[rows]
    end = begin + timeline.held[rows]
    _, later = clashes(place, begin, end)
    if len(later) and not may_meet:
        raise ScheduleError("sends overlap on a link or shared capacity; verify the schedule first")
    crowded = np.unique(place[later])
    plain = np.flatnonzero(~np.isin(place, crowded))
    order = plain[order_by(place[plain], begin[plain])]
    before, after = order[:-1], order[1:]
    same = place[before] == place[after]
    book.keep(book.end(rows[before[same]]), book.start(rows[after[same]]))
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
    sends: Sends, transfers: Transfers, timeline: Timeline, topology: Topology
) -> tuple[IntArray, IntArray]:
    """Pairs (end, start) of moments that part circuits which met but do not fit on other rates.

    Where the circuits that were on a link together need more than it has now, all circuits on the
    link follow one another in the order of their starts.
    """
    rate, load = circuit_loads(sends, transfers, topology)
    end = timeline.start + timeline.held
    over = sends.link[overloads(sends.link, timeline.start, end, load, rate)]
    rows = np.flatnonzero(np.isin(sends.link, over))
    rows = rows[np.lexsort((sends.transfer[rows], timeline.start[rows], sends.link[rows]))]
    same = sends.link[rows[1:]] == sends.link[rows[:-1]]
    return rows[:-1][same] + len(sends), rows[1:][same]


def _keep_own(book: Book, sends: Sends, timeline: Timeline) -> None:
    """Keep whether a send of a reduction finds its GPU's own contribution."""
    rows = np.flatnonzero(sends.combines & sends.from_gpu)
    rows = rows[sends.is_source(sends.chunk[rows], sends.src[rows])]
    ready = timeline.own_ready(sends, rows)
    has_it = timeline.start[rows] >= ready
    book.not_before[rows[has_it]] = ready[has_it]
    book.before_time[rows[~has_it]] = ready[~has_it]


def _keep_reads(book: Book, sends: Sends, timeline: Timeline) -> None:
    """Keep, at each accumulator, which arrivals a send finds merged and which it does not."""
    rows = np.flatnonzero(sends.combines)
    arriving, leaving = rows[sends.to_gpu[rows]], rows[sends.from_gpu[rows]]
    row = np.concatenate([arriving, leaving])
    is_send = np.repeat([False, True], [len(arriving), len(leaving)])
    key = sends.keys(sends.chunk[row], np.where(is_send, sends.src[row], sends.dst[row]))
    time = np.where(is_send, timeline.start[row], timeline.arrival[row])
    order = np.lexsort((is_send, time, key))
    row, is_send, key, time = row[order], is_send[order], key[order], time[order]
    # Runs of arrivals and runs of sends alternate, so it is enough that each run keeps behind the
    # one before it. A gate stands behind runs of several; a single moment is its own gate.
    begins = new_run(key, is_send)
    run = number_runs(key, is_send)
    # What has not arrived when a send begins comes at least a picosecond after that.
    lag = is_send.astype(np.int64)
    moment = np.where(is_send, book.start(row), book.arrival(row))
    gate, gate_lag = moment[begins], lag[begins]
    is_crowd = np.bincount(run) > 1
    last = np.append(begins[1:], True)[: len(begins)]
    gate[is_crowd] = book.open_gates((time + lag)[last][is_crowd])
    gate_lag[is_crowd] = 0
    crowd = np.flatnonzero(is_crowd[run])
    book.keep(moment[crowd], gate[run[crowd]], lag[crowd])
    follows = np.flatnonzero((run > 0) & (key[begins][run - 1] == key))
    book.keep(gate[run[follows] - 1], moment[follows], gate_lag[run[follows] - 1])


def _keep_replacements(book: Book, sends: Sends, timeline: Timeline) -> None:
    """Keep the order between arrivals that replace an accumulator and all others there."""
    row = np.flatnonzero(sends.combines & sends.to_gpu)
    key = sends.keys(sends.chunk[row], sends.dst[row])
    replaces = ~sends.is_reduce[row]
    order = np.lexsort((replaces, timeline.arrival[row], key))
    row, key, replaces = row[order], key[order], replaces[order]
    run = number_runs(key)
    moment = book.arrival(row)
    earlier = _before(last_marked(replaces, run), run)
    follows = np.flatnonzero(earlier >= 0)
    # At one instant merges come first, so a merge that followed must stay strictly later.
    book.keep(moment[earlier[follows]], moment[follows], (~replaces[follows]).astype(np.int64))
    tied = follows[timeline.arrival[row[follows]] == timeline.arrival[row[earlier[follows]]]]
    book.keep(moment[tied], moment[earlier[tied]])
    later = _next_marked(replaces, run)
    merges = np.flatnonzero(~replaces & (later >= 0))
    book.keep(moment[merges], moment[later[merges]])


def _before(found: IntArray, run: IntArray) -> IntArray:
    """Shift by one within runs: what was found up to the position before."""
    shifted = np.full(len(found), -1, dtype=np.int64)
    shifted[1:] = np.where(run[1:] == run[:-1], found[:-1], -1)
    return shifted


def _next_marked(marks: BoolArray, run: IntArray) -> IntArray:
    """Position of the first marked entry from each position on in the same run, -1 where none."""
    mirrored = last_marked(marks[::-1], run[::-1])[::-1]
    return np.where(mirrored >= 0, len(marks) - 1 - mirrored, -1)


def _keep_visits(book: Book, sends: Sends, timeline: Timeline) -> None:
    """Keep the order in which chunks that a GPU forwards arrive there and depart.

    Then no more chunks wait at an instant of the replay than waited together in the schedule:
    chunks that now wait together wait pairwise together, so none departed before another arrived
    in the schedule either, and by Helly some instant of the schedule has them all. A forward that
    left at the instant of its arrival is tied to it from both sides.
    """
    seen = visits(sends, timeline)
    key = sends.keys(sends.chunk[seen.row], seen.gpu)
    run = number_runs(key)
    departs = seen.origin >= 0
    counts = departs | (~seen.is_forward & (_next_marked(departs, run) >= 0))
    entry = np.flatnonzero(counts)
    entry = entry[np.lexsort((seen.is_forward[entry], seen.time[entry], seen.gpu[entry]))]
    row, time, gpu = seen.row[entry], seen.time[entry], seen.gpu[entry]
    moment = np.where(seen.is_forward[entry], book.start(row), book.arrival(row))
    here = np.flatnonzero(gpu[1:] == gpu[:-1])
    book.keep(moment[here], moment[here + 1])
    tied = here[time[here] == time[here + 1]]
    book.keep(moment[tied + 1], moment[tied])
