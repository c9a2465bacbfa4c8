"""Simulation: a schedule re-timed, everything in its order as early as that allows."""

from dataclasses import dataclass, replace

import numpy as np

from teccl._parallel import both
from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.replay.bodies import CANNOT_KEEP, least_starts
from teccl.replay.crossings import Crossing, Passages
from teccl.replay.feeds import Feeds, feeds_of
from teccl.replay.order import order_of
from teccl.replay.places import single_file
from teccl.replay.profiled import least_profiled_starts
from teccl.replay.relations import Relations
from teccl.replay.times import Times
from teccl.schedule.additions import SumArray
from teccl.schedule.columns import Sends
from teccl.schedule.sends import Schedule
from teccl.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A schedule re-timed.

    Parameters
    ----------
    schedule
        The same sends at their earliest times.
    finish_ps
        Picoseconds until the last arrival.
    tenant_finish_ps
        The same for each tenant's chunks.
    """

    schedule: Schedule
    finish_ps: int
    tenant_finish_ps: tuple[int, ...]


def simulate(schedule: Schedule, *, topology: Topology | None = None) -> Replay:
    """Replay a schedule: keep its order and begin every send as early as that allows.

    What follows another on a link or shared capacity keeps following it; a send waits for the
    arrival that feeds it; passages through switches stay whole; a reduction finds the same
    contributions; under a buffer limit the order of arrivals and departures at each GPU stays.
    No send of a correct schedule becomes later, and the result is correct again.

    Parameters
    ----------
    schedule
        A correct schedule.
    topology
        Replay on the same nodes and links with other rates and latencies. The order is that of
        the schedule on its own links. Epochs and bounds do not carry over.

    Raises
    ------
    ScheduleError
        If the schedule breaks the rules its order rests on, or `topology` has other links or
        rates on which the order cannot be kept.

    Examples
    --------
    A broadcast along a line that wastes time before the second hop:

    >>> from teccl import Demand, Problem, Topology
    >>> from teccl.schedule import Schedule, send_array
    >>> demand = Demand.collective("broadcast", size="1MB")
    >>> problem = Problem(topology=Topology.parse("line:gpus=3"), demand=demand)
    >>> sends = send_array(chunk=[0, 0], link=[0, 2], start_ps=[0, 99_000_000])
    >>> simulate(Schedule(problem=problem, sends=sends)).finish_ps
    41000000
    """
    problem = schedule.problem if topology is None else _moved(schedule.problem, topology)
    sends = Sends.of(schedule)
    passages = Passages.of(sends)
    original = Times.of(schedule.problem, schedule.sends, schedule.sends["start_ps"].copy())
    relations, feeds = _order(sends, passages, original, schedule.sums)
    replayed = _settle(schedule, problem, passages, original, relations, sends=sends, feeds=feeds)
    if (replayed.start >= relations.before_time).any():
        raise ScheduleError(CANNOT_KEEP)
    rows = schedule.sends.copy()
    rows["start_ps"] = replayed.start
    retimed = replace(schedule, problem=problem, sends=rows, claimed_finish_ps=None)
    if topology is not None:
        retimed = replace(retimed, grid=None, bound=None)
    tenants = np.zeros(len(problem.demand.tenants), dtype=np.int64)
    np.maximum.at(tenants, problem.chunks.tenant[sends.chunk], replayed.arrival)
    return Replay(
        schedule=retimed,
        finish_ps=int(replayed.arrival.max(initial=0)),
        tenant_finish_ps=tuple(tenants.tolist()),
    )


def _moved(problem: Problem, topology: Topology) -> Problem:
    """Return the problem on other rates."""
    old = problem.topology
    ends = [(link.src, link.dst, link.shares) for link in old.links]
    if topology.nodes != old.nodes or ends != [(e.src, e.dst, e.shares) for e in topology.links]:
        raise ScheduleError(
            f"{topology!r} has other nodes or links than {old!r}; change rates and alphas only"
        )
    return replace(problem, topology=topology)


def _order(
    sends: Sends, passages: Passages, original: Times, sums: SumArray | None
) -> tuple[Relations, Feeds]:
    """Return the order of a schedule that keeps the rules the order rests on, and its feeds."""
    passages.refuse_broken(sends, original.start, original.handoff)
    relations, feeds = both(
        lambda: order_of(sends, passages, original, sums),
        lambda: feeds_of(sends, original),
        num_sends=len(sends),
    )
    if not relations.with_feeds(feeds).are_kept(original):
        raise ScheduleError("a gpu sends what it does not hold yet; verify the schedule first")
    return relations, feeds


def _settle(
    schedule: Schedule,
    problem: Problem,
    passages: Passages,
    original: Times,
    relations: Relations,
    *,
    sends: Sends,
    feeds: Feeds,
) -> Times:
    """Replay until every send is fed by what its GPU holds first.

    The first round takes that from the schedule. If another arrival has become the first by then,
    the next round lets it feed; each round's times satisfy the next round's relations, so times
    only fall and the rounds end. What they end with replays to itself.
    """
    times, topology = original, problem.topology
    is_moved = topology is not schedule.problem.topology
    if is_moved and passages.passing is Crossing.CIRCUIT:
        parted = single_file(sends, passages, original, topology.rates)
        relations = relations.plus(*parted)
    least = least_profiled_starts if topology.has_profiles else least_starts
    is_plain = len(passages.root) == len(sends) and not (is_moved or topology.has_profiles)
    if is_plain and relations.with_feeds(feeds).leave_no_room(original):
        # Plans that come as early as they can are the rule, and large ones take long to solve for.
        return original
    while True:
        kept = relations.with_feeds(feeds)
        start = least(schedule.sends, problem, passages, original, kept)
        if start is None:
            # An order that ties sends in circles over changing rates can make labels creep. The
            # times so far keep the order too, unless they are those of other links.
            if is_moved and times is original:
                raise ScheduleError(CANNOT_KEEP)
            return times
        if not is_moved and np.array_equal(start, times.start):
            return times
        times = Times.of(problem, schedule.sends, start)
        next_feeds = feeds_of(sends, times)
        if next_feeds.same_as(feeds):
            return times
        feeds = next_feeds
