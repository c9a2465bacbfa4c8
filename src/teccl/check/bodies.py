"""Bodies: transfers that move as one, and the least times that keep a schedule's order.

A passage through switches is rigid: where rates are constant, all hops of a transfer lie at fixed
offsets from its base, the start of one of its roots. So each transfer is one unknown.
"""

import numpy as np

from teccl.check._arrays import IntArray
from teccl.check.relations import Relations
from teccl.check.relax import is_least, least_solution
from teccl.check.sends import Sends
from teccl.check.timeline import Timeline, physical_timeline
from teccl.check.transfers import Transfers
from teccl.errors import ScheduleError
from teccl.schedule.ordering import order_by
from teccl.topology import Topology

CANNOT_KEEP = "the order cannot be kept on these links; verify the schedule, or make a new one"


def rank_of(transfers: Transfers, timeline: Timeline, gates: IntArray) -> IntArray:
    """Transfers and gates in the order of the schedule, gates before sends of the same time."""
    time = np.concatenate([timeline.start[transfers.root], gates])
    is_body = np.repeat([True, False], [len(transfers.root), len(gates)])
    return order_by(time, is_body)


def least_starts(
    sends: Sends,
    transfers: Transfers,
    topology: Topology,
    original: Timeline,
    relations: Relations,
) -> IntArray:
    """Earliest starts of all sends on links of constant rate.

    Parameters
    ----------
    topology
        The links' rates.
    original
        The schedule's own times, which only set the order of the work.
    relations
        What is kept, feeds included.

    Raises
    ------
    ScheduleError
        If the rates leave no solution.
    """
    at_zero = physical_timeline(sends, transfers, np.zeros(len(sends), dtype=np.int64), topology)
    offset = _offsets(transfers, at_zero.handoff)
    num_bodies, gates = len(transfers.root), relations.gates
    ends, arrivals = offset + at_zero.held, offset + at_zero.arrival
    moment = np.concatenate([offset, ends, arrivals, np.zeros_like(gates)])
    node = np.concatenate([*[transfers.index] * 3, num_bodies + np.arange(len(gates))])
    weight = moment[relations.before] + relations.lag - moment[relations.after]
    before, after = node[relations.before], node[relations.after]
    within = before == after
    if (weight[within] > 0).any():
        raise ScheduleError(CANNOT_KEEP)
    lower = np.zeros(num_bodies + len(gates), dtype=np.int64)
    np.maximum.at(lower, transfers.index, relations.not_before - offset)
    rank = rank_of(transfers, original, gates)
    apart = ~within
    before, after, weight = before[apart], after[apart], weight[apart]
    as_it_is = np.concatenate([original.start[transfers.root], gates])
    if is_least(as_it_is, lower, before, after, weight):
        base: IntArray | None = as_it_is
    else:
        base = least_solution(lower, before, after, weight, rank)
    if base is None:
        raise ScheduleError(CANNOT_KEEP)
    return base[transfers.index] + offset


def _offsets(transfers: Transfers, step: IntArray) -> IntArray:
    """Start of each send relative to the first root of its transfer.

    Parameters
    ----------
    step
        Time from the start of a send that enters a switch to the start of those that leave it.
    """
    offset = np.zeros(len(step), dtype=np.int64)
    known = np.zeros(len(step), dtype=bool)
    known[transfers.root] = True
    into, out = np.flatnonzero(transfers.enters >= 0), np.flatnonzero(transfers.leaves >= 0)
    moment = np.zeros(len(transfers.num_in), dtype=np.int64)
    reached = np.zeros(len(moment), dtype=bool)
    sides = (
        (into, transfers.enters[into], step[into]),
        (out, transfers.leaves[out], np.zeros(len(out), dtype=np.int64)),
    )
    missing = len(step) + 1
    while (~known).sum() < missing:
        missing = int((~known).sum())
        for rows, passage, length in sides:
            new = known[rows] & ~reached[passage]
            moment[passage[new]] = (offset[rows] + length)[new]
            reached[passage[new]] = True
        for rows, passage, length in sides:
            new = ~known[rows] & reached[passage]
            offset[rows[new]] = (moment[passage] - length)[new]
            known[rows[new]] = True
    wrong = (offset[into] + step[into] != moment[transfers.enters[into]]).any()
    if missing or wrong or (offset[out] != moment[transfers.leaves[out]]).any():
        raise ScheduleError(CANNOT_KEEP)
    return offset
