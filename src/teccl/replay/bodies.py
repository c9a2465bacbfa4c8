"""Bodies: transfers that move as one, and the least times that keep a schedule's order.

A passage through switches is rigid: where rates are constant, all hops of a transfer lie at fixed
offsets from its base, the start of one of its roots. So each transfer is one unknown.
"""

import numpy as np

from teccl._arrays import IntArray
from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.replay.crossings import Passages
from teccl.replay.relations import Relations
from teccl.replay.relax import is_least, least_solution
from teccl.replay.times import Times
from teccl.schedule.ordering import order_by
from teccl.schedule.sends import SendArray

CANNOT_KEEP = "the order cannot be kept on these links; verify the schedule, or make a new one"


def rank_of(passages: Passages, times: Times, gates: IntArray) -> IntArray:
    """Passages and gates in the order of the schedule, gates before sends of the same time."""
    time = np.concatenate([times.start[passages.root], gates])
    is_body = np.repeat([True, False], [len(passages.root), len(gates)])
    return order_by(time, is_body)


def least_starts(
    rows: SendArray,
    problem: Problem,
    passages: Passages,
    original: Times,
    relations: Relations,
) -> IntArray:
    """Earliest starts of all sends on links of constant rate.

    Parameters
    ----------
    rows, problem
        The sends, and the links' rates.
    original
        The schedule's own times, which only set the order of the work.
    relations
        What is kept, feeds included.

    Raises
    ------
    ScheduleError
        If the rates leave no solution.
    """
    at_zero = Times.of(problem, rows, np.zeros(len(rows), dtype=np.int64))
    offset = _offsets(passages, at_zero.handoff)
    num_bodies, gates = len(passages.root), relations.gates
    ends, arrivals = offset + at_zero.held, offset + at_zero.arrival
    moment = np.concatenate([offset, ends, arrivals, np.zeros_like(gates)])
    node = np.concatenate([*[passages.index] * 3, num_bodies + np.arange(len(gates))])
    weight = moment[relations.before] + relations.lag - moment[relations.after]
    before, after = node[relations.before], node[relations.after]
    within = before == after
    if (weight[within] > 0).any():
        raise ScheduleError(CANNOT_KEEP)
    lower = np.zeros(num_bodies + len(gates), dtype=np.int64)
    np.maximum.at(lower, passages.index, relations.not_before - offset)
    rank = rank_of(passages, original, gates)
    apart = ~within
    before, after, weight = before[apart], after[apart], weight[apart]
    as_it_is = np.concatenate([original.start[passages.root], gates])
    if is_least(as_it_is, lower, before, after, weight):
        base: IntArray | None = as_it_is
    else:
        base = least_solution(lower, before, after, weight, rank)
    if base is None:
        raise ScheduleError(CANNOT_KEEP)
    return base[passages.index] + offset


def _offsets(passages: Passages, step: IntArray) -> IntArray:
    """Start of each send relative to the first root of its transfer.

    Parameters
    ----------
    step
        Time from the start of a send that enters a switch to the start of those that leave it.
    """
    offset = np.zeros(len(step), dtype=np.int64)
    known = np.zeros(len(step), dtype=bool)
    known[passages.root] = True
    into, out = np.flatnonzero(passages.enters >= 0), np.flatnonzero(passages.leaves >= 0)
    moment = np.zeros(len(passages.entry), dtype=np.int64)
    reached = np.zeros(len(moment), dtype=bool)
    sides = (
        (into, passages.enters[into], step[into]),
        (out, passages.leaves[out], np.zeros(len(out), dtype=np.int64)),
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
    wrong = (offset[into] + step[into] != moment[passages.enters[into]]).any()
    if missing or wrong or (offset[out] != moment[passages.leaves[out]]).any():
        raise ScheduleError(CANNOT_KEEP)
    return offset
