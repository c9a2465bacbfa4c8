"""Rigid trees: plans made without regard to buffers, with trees moved as a whole where they must.

Where a GPU may keep nothing, or too little, everything that hangs on one transfer of a source
follows without a pause: it is one piece that holds links at fixed times after its begin. Pieces
are put in order like single transfers. Sums are multicasts that are turned round.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from teccl._arrays import BoolArray
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray, concatenated_ranges, starts_of
from teccl.construct.joining import joined_copies
from teccl.construct.params import NEVER, PYTHON_UNITS
from teccl.construct.plan import Plan, with_starts
from teccl.construct.route_first import listed_starts
from teccl.construct.tasks import Precedence, Tasks, depths, finish_time, precedence, tasks_of_plan
from teccl.construct.turned import is_turnable, turned_instance, turned_plan
from teccl.schedule.ordering import order_by


def may_be_rigid(instance: Instance) -> bool:
    """Whether buffers are limited and trees can be timed in advance."""
    problem = instance.problem
    is_timed = instance.grid is None and not problem.topology.has_profiles
    is_served = is_turnable(instance) if problem.chunks.reduce.any() else problem.copy
    return problem.buffer is not None and is_timed and is_served


def rigid_tree_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans of every construction without limits, made rigid where buffers are too small."""
    is_sum = bool(instance.problem.chunks.reduce.any())
    limited = turned_instance(instance) if is_sum else instance
    best = NEVER
    for laid in _free_plans(limited, goal):
        for plan in _fitted(limited, laid, goal):
            # What meets in a switch would have to be added up there.
            if plan.finish < best and not (is_sum and plan.rows[:, 4].any()):
                best = plan.finish
                yield turned_plan(instance, plan) if is_sum else plan


def _free_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans for the instance without a limit, of each construction in turn."""
    from teccl.construct.constructions import CONSTRUCTIONS

    free = replace(instance, problem=replace(instance.problem, buffer=None))
    # Insertion knows limits itself.
    serving = [c for c in CONSTRUCTIONS if c.name != "insertion" and c.serves(free)]
    for place, construction in enumerate(serving):
        share = max(goal.allowance - goal.spent, 0) // (len(serving) - place)
        part = replace(
            goal, allowance=share, spent=0, known=NEVER, finishes={}, shares={}, taken={}
        )
        yield from construction.plans(free, part)
        goal.spent += part.spent


def _fitted(instance: Instance, plan: Plan, goal: Goal) -> Iterator[Plan]:
    """Yield a plan as it is, if buffers have room for it, or else rigid, as far as it must be."""
    limit = instance.problem.buffer or 0
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    if tasks.reduce.any() or (order.waits > 1).any() or finish_time(tasks, tasks.start) == NEVER:
        return
    # Of chunks of several sizes some plans have only the times of the largest.
    is_timed = plan.exact or len(instance.problem.chunks.sizes) == 1
    if is_timed and not _turned_away(tasks, order, tasks.start, limit).any():
        yield replace(plan, exact=True)
        return
    plan = joined_copies(instance, plan)
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    best, start = NEVER, tasks.start
    # First no arrival may wait, then only those that a buffer has no room for, and so on.
    is_rigid = np.ones(len(order.next_task), dtype=bool)
    work = PYTHON_UNITS * len(order.next_task)
    while True:
        goal.begin(work)
        for begin, finish in _rigid_starts(instance, tasks, order, is_rigid, goal):
            start = begin
            if finish < best and not _turned_away(tasks, order, begin, limit).any():
                best = finish
                yield replace(with_starts(plan, begin, finish), exact=True)
        if is_rigid.all():
            is_rigid, start = ~is_rigid, tasks.start
        more = _turned_away(tasks, order, start, limit) & ~is_rigid
        is_rigid = is_rigid | more
        if limit == 0 or is_rigid.all() or not more.any() or not goal.is_worth(best, work):
            return


def _turned_away(tasks: Tasks, order: Precedence, start: IntArray, limit: int) -> BoolArray:
    """Return which arcs of the precedence belong to arrivals that a full buffer has no room for.

    Of all that would wait at a GPU at a moment, what waits longest has no room.
    """
    before = np.repeat(np.arange(len(tasks)), np.diff(order.next_start))
    after, node = order.next_task, tasks.src[order.next_task]
    # Several that wait for one arrival are one chunk that stays until the last of them.
    arrivals, number = np.unique(np.stack([before, node]), axis=1, return_inverse=True)
    since, until = np.zeros((2, arrivals.shape[1]), dtype=np.int64)
    since[number] = start[before] + order.next_lag
    np.maximum.at(until, number, start[after])
    waits = np.flatnonzero(until > since)
    waits = waits[np.lexsort((since[waits], arrivals[1, waits]))]
    is_away = np.zeros(len(since), dtype=bool)
    inside: list[tuple[int, int]] = []
    at = -1
    for i in waits.tolist():
        if arrivals[1, i] != at:
            at, inside = int(arrivals[1, i]), []
        inside = sorted((end, k) for end, k in [*inside, (int(until[i]), i)] if end > since[i])
        for _, k in inside[limit:]:
            is_away[k] = True
        inside = inside[:limit]
    away: BoolArray = is_away[number]
    return away


def _rigid_starts(
    instance: Instance, tasks: Tasks, order: Precedence, is_rigid: BoolArray, goal: Goal
) -> Iterator[tuple[IntArray, int]]:
    """Yield starts of tasks, where those after a rigid arc follow at once, and the finish."""
    pieces = _pieces(tasks, order, is_rigid)
    if _meets_itself(pieces):
        return
    between = _order_of(order, pieces, is_rigid)
    for start, finish in listed_starts(instance, pieces.tasks, between, goal):
        if finish < NEVER:
            yield start[pieces.piece] + pieces.offset, finish


class _Pieces(NamedTuple):
    """What hangs on each transfer of a source as one task, and where each task is in which."""

    tasks: Tasks
    piece: IntArray
    offset: IntArray


def _pieces(tasks: Tasks, order: Precedence, is_rigid: BoolArray) -> _Pieces:
    """Join all tasks that follow from one transfer by rigid arcs."""
    piece, offset = np.arange(len(tasks)), np.zeros(len(tasks), dtype=np.int64)
    for task in np.argsort(depths(order), kind="stable").tolist():
        arcs = np.arange(order.next_start[task], order.next_start[task + 1])
        arcs = arcs[is_rigid[arcs]]
        piece[order.next_task[arcs]] = piece[task]
        offset[order.next_task[arcs]] = offset[task] + order.next_lag[arcs]
    roots, piece = np.unique(piece, return_inverse=True)
    res = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    out = np.repeat(np.arange(len(tasks)), np.diff(tasks.out_start))
    by_res = order_by(piece[res], tasks.res_offset + offset[res])
    by_out = order_by(piece[out])
    source = tasks.source_start[roots]
    senders = tasks.source_start[roots + 1] - source
    joined = replace(
        tasks,
        chunk=tasks.chunk[roots],
        reduce=tasks.reduce[roots],
        src=tasks.src[roots],
        start=tasks.start[roots],
        hop_start=np.arange(len(roots) + 1),
        hop_link=tasks.hop_link[tasks.hop_start[roots]],
        hop_offset=np.zeros(len(roots), dtype=np.int64),
        res_start=starts_of(piece[res], len(roots)),
        res=tasks.res[by_res],
        res_offset=(tasks.res_offset + offset[res])[by_res],
        res_hold=tasks.res_hold[by_res],
        out_start=starts_of(piece[out], len(roots)),
        out_node=tasks.out_node[by_out],
        out_length=(tasks.out_length + offset[out])[by_out],
        source_start=np.concatenate([[0], np.cumsum(senders)]),
        source=tasks.source[concatenated_ranges(source, source + senders)],
        feeder=None,
    )
    return _Pieces(joined, piece, offset)


def _order_of(order: Precedence, pieces: _Pieces, is_rigid: BoolArray) -> Precedence:
    """Return which pieces wait for which: those that begin with a transfer after a loose arc."""
    count = len(pieces.tasks)
    before = np.repeat(np.arange(len(pieces.piece)), np.diff(order.next_start))[~is_rigid]
    after, lag = pieces.piece[order.next_task[~is_rigid]], order.next_lag[~is_rigid]
    first = pieces.piece[before]
    by_piece = order_by(first)
    roots = np.flatnonzero(pieces.offset == 0)
    release = np.zeros(count, dtype=np.int64)
    np.maximum.at(release, pieces.piece[roots], order.release[roots])
    return Precedence(
        waits=np.bincount(after, minlength=count),
        next_start=starts_of(first, count),
        next_task=after[by_piece],
        next_lag=(pieces.offset[before] + lag)[by_piece],
        release=release,
    )


def _meets_itself(pieces: _Pieces) -> bool:
    """Whether some piece would hold a resource twice at the same time."""
    tasks = pieces.tasks
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    order = np.lexsort((tasks.res_offset, tasks.res, owner))
    owner, res, begin = owner[order], tasks.res[order], tasks.res_offset[order]
    same = (owner[1:] == owner[:-1]) & (res[1:] == res[:-1])
    return bool((same & (begin[1:] < (begin + tasks.res_hold[order])[:-1])).any())
