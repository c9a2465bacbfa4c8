"""Rigid trees: plans made without regard to buffers, with trees moved as a whole where they must.

Where a GPU may keep nothing, or too little, what it receives goes on without a pause, and all that
it adds up arrives at the same moment. Transfers that hang together so are one piece that holds
links at fixed times after its begin. RigidPieces are put in order like single transfers.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from teccl._arrays import BoolArray
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray, concatenated_ranges, starts_of
from teccl.construct.joining import joined_copies
from teccl.construct.params import NEVER, PYTHON_UNITS, TREE_UNITS
from teccl.construct.plan import Plan, with_starts
from teccl.construct.restricted import only_combines
from teccl.construct.route_first import listed_starts, listing_work
from teccl.construct.tasks import Precedence, Tasks, finish_time, precedence, tasks_of_plan
from teccl.construct.unpaused_trees import FreeTime, TreeHop, UnpausedTrees, ends_of, plan_of_trees
from teccl.schedule.ordering import order_by


def may_be_rigid(instance: Instance) -> bool:
    """Whether buffers are limited and trees can be timed in advance."""
    problem = instance.problem
    # What follows at once in whole epochs may wait in time, where transfers take parts of them.
    is_timed = instance.grid is None and not problem.topology.has_profiles
    return problem.buffer is not None and is_timed and (problem.copy or only_combines(problem))


def rigid_tree_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans of every construction without limits, made rigid where buffers are too small."""
    best = NEVER
    for laid in _free_plans(instance, goal):
        for plan in _fitted(instance, laid, goal):
            if plan.finish < best:
                best = plan.finish
                yield plan


def unpaused_tree_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans along trees that never wait, for what no tree made without limits can serve."""
    goal.begin(unpaused_work(instance))
    grown = _unpaused_plan(instance, goal.target)
    if grown is not None:
        yield from _fitted(instance, grown, goal)


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


def unpaused_work(instance: Instance) -> int:
    """Units of growing a tree for each chunk, which looks at all routes."""
    return TREE_UNITS * len(instance.routes) * len(instance.problem.chunks)


def _unpaused_plan(instance: Instance, target: int) -> Plan | None:
    """Return a plan along trees that never wait, one of its own for each chunk."""
    table, trees = instance.problem.chunks, UnpausedTrees(instance)
    found, load = list[list[TreeHop]](), np.zeros(instance.num_resources)
    for chunk in range(len(table)):
        ends = ends_of(instance, chunk)
        if ends is None:
            return None
        # What is fuller than the bound allows is taken only where nothing else leads on.
        root = ends.roots[chunk % len(ends.roots)]
        tree = trees.grow(ends, root, FreeTime(load, max(1, target)))
        tree = tree or trees.grow(ends, root, FreeTime(load, NEVER))
        if tree is None:
            return None
        found.append(tree)
    return plan_of_trees(instance, found)


def _fitted(instance: Instance, plan: Plan, goal: Goal) -> Iterator[Plan]:
    """Yield a plan as it is, if buffers have room for it, or else rigid, as far as it must be."""
    limit, exact = instance.problem.buffer or 0, instance.grid is None
    tasks = tasks_of_plan(instance, plan)
    if finish_time(tasks, tasks.start) == NEVER:
        return
    # Trees may be without times; of chunks of several sizes some plans have only the largest's.
    is_timed = plan.exact or len(instance.problem.chunks.sizes) == 1
    is_timed = is_timed and plan.finish < NEVER
    if is_timed and not _turned_away(_stays(instance, tasks), tasks.start, limit).any():
        yield replace(plan, exact=exact)
        return
    plan = joined_copies(instance, plan)
    tasks = tasks_of_plan(instance, plan)
    stays = _stays(instance, tasks)
    best, start = NEVER, tasks.start
    # First nothing may wait, then only what a buffer has room for, and so on.
    is_rigid = np.ones(len(stays.node), dtype=bool)
    work = PYTHON_UNITS * len(stays.stay)
    while True:
        goal.begin(work)
        for begin, finish in _rigid_starts(instance, tasks, stays, is_rigid, goal):
            start = begin
            if finish < best and not _turned_away(stays, begin, limit).any():
                best = finish
                yield replace(with_starts(plan, begin, finish), exact=exact)
        if is_rigid.all():
            is_rigid, start = ~is_rigid, tasks.start
        more = _turned_away(stays, start, limit) & ~is_rigid
        is_rigid = is_rigid | more
        if limit == 0 or is_rigid.all() or not more.any() or not goal.is_worth(best, work):
            return


class _Stays(NamedTuple):
    """What is received and passed on: the stay of each arc, and the GPU of each stay."""

    order: Precedence
    before: IntArray
    stay: IntArray
    node: IntArray


def _stays(instance: Instance, tasks: Tasks) -> _Stays:
    """Return who waits for whom, and what stays at a GPU meanwhile.

    A sum stays from the first contribution that arrives until it is passed on for the last time; a
    copy that arrives takes the place of what was added up before.
    """
    order = precedence(instance, tasks)
    before = np.repeat(np.arange(len(tasks)), np.diff(order.next_start))
    after, node = order.next_task, tasks.src[order.next_task]
    is_sum = tasks.reduce[before]
    has_copy = np.zeros(len(tasks), dtype=bool)
    has_copy[after[~is_sum]] = True
    keep = ~(is_sum & has_copy[after])
    before, after, node, is_sum = before[keep], after[keep], node[keep], is_sum[keep]
    # Several that wait for one arrival of a copy are one chunk.
    what = np.stack([is_sum, np.where(is_sum, tasks.chunk[before], before), node])
    stays, stay = np.unique(what, axis=1, return_inverse=True)
    order = replace(
        order,
        waits=np.bincount(after, minlength=len(tasks)),
        next_start=starts_of(before, len(tasks)),
        next_task=after,
        next_lag=order.next_lag[keep],
    )
    return _Stays(order, before, stay.ravel(), stays[2])


def _turned_away(stays: _Stays, start: IntArray, limit: int) -> BoolArray:
    """Return which stays a full buffer has no room for.

    Of all that would wait at a GPU at a moment, what waits longest has no room.
    """
    since, until = np.full(len(stays.node), NEVER), np.zeros(len(stays.node), dtype=np.int64)
    np.minimum.at(since, stays.stay, start[stays.before] + stays.order.next_lag)
    np.maximum.at(until, stays.stay, start[stays.order.next_task])
    waits = np.flatnonzero(until > since)
    waits = waits[np.lexsort((since[waits], stays.node[waits]))]
    is_away = np.zeros(len(stays.node), dtype=bool)
    inside: list[tuple[int, int]] = []
    at = -1
    for i in waits.tolist():
        if stays.node[i] != at:
            at, inside = int(stays.node[i]), []
        inside = sorted((end, k) for end, k in [*inside, (int(until[i]), i)] if end > since[i])
        for _, k in inside[limit:]:
            is_away[k] = True
        inside = inside[:limit]
    return is_away


def _rigid_starts(
    instance: Instance, tasks: Tasks, stays: _Stays, is_rigid: BoolArray, goal: Goal
) -> Iterator[tuple[IntArray, int]]:
    """Yield starts of tasks, where nothing waits that is rigid, and the finish."""
    pieces = _pieces(tasks, stays, is_rigid[stays.stay])
    if pieces is None or meets_itself(pieces):
        return
    between = _order_of(stays, pieces, is_rigid[stays.stay])
    # Each piece is as much work as its transfers.
    work = listing_work(len(tasks), len(tasks.hop_link) / max(1, len(tasks)))
    for start, finish in listed_starts(instance, pieces.tasks, between, goal, work=work):
        if finish < NEVER:
            yield start[pieces.piece] + pieces.offset, finish


class RigidPieces(NamedTuple):
    """Transfers that follow from one another as one task, and where each transfer is in which."""

    tasks: Tasks
    piece: IntArray
    offset: IntArray


def _pieces(tasks: Tasks, stays: _Stays, is_rigid: BoolArray) -> RigidPieces | None:
    """Join all tasks that rigid arcs connect; None if no times suit all of these."""
    before, after = stays.before[is_rigid], stays.order.next_task[is_rigid]
    lag = stays.order.next_lag[is_rigid]
    arcs: list[list[tuple[int, int]]] = [[] for _ in range(len(tasks))]
    for a, b, time in zip(before.tolist(), after.tolist(), lag.tolist(), strict=True):
        arcs[a].append((b, time))
        arcs[b].append((a, -time))
    piece, offset = np.full(len(tasks), -1), np.zeros(len(tasks), dtype=np.int64)
    for first in range(len(tasks)):
        reached = [first] if piece[first] < 0 else []
        piece[reached] = first
        for task in reached:
            for other, time in arcs[task]:
                if piece[other] < 0:
                    piece[other], offset[other] = first, offset[task] + time
                    reached.append(other)
        if len(reached) > 1:
            offset[reached] -= offset[reached].min()
    if (offset[after] != offset[before] + lag).any():
        return None
    return joined_pieces(tasks, np.unique(piece, return_inverse=True)[1], offset)


def rigid_pieces(instance: Instance, tasks: Tasks) -> RigidPieces | None:
    """Join all tasks that follow from one another; None if no times suit all of these."""
    stays = _stays(instance, tasks)
    return _pieces(tasks, stays, np.ones(len(stays.stay), dtype=bool))


def joined_pieces(tasks: Tasks, piece: IntArray, offset: IntArray) -> RigidPieces:
    """Return pieces as tasks, each of which begins with the first of its own."""
    by_offset = np.lexsort((offset, piece))
    roots = by_offset[np.flatnonzero(np.diff(piece[by_offset], prepend=-1))]
    res = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    out = np.repeat(np.arange(len(tasks)), np.diff(tasks.out_start))
    by_res = order_by(piece[res], tasks.res_offset + offset[res])
    by_out = order_by(piece[out])
    source = tasks.source_start[roots]
    senders = tasks.source_start[roots + 1] - source
    sources = concatenated_ranges(source, source + senders)
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
        source=tasks.source[sources],
        source_delay=tasks.source_delay[sources],
        feeder=None,
    )
    return RigidPieces(joined, piece, offset)


def _order_of(stays: _Stays, pieces: RigidPieces, is_rigid: BoolArray) -> Precedence:
    """Return which pieces wait for which."""
    count, order = len(pieces.tasks), stays.order
    before, task = stays.before[~is_rigid], order.next_task[~is_rigid]
    first, after = pieces.piece[before], pieces.piece[task]
    lag = pieces.offset[before] + order.next_lag[~is_rigid] - pieces.offset[task]
    by_piece = order_by(first)
    release = np.zeros(count, dtype=np.int64)
    np.maximum.at(release, pieces.piece, order.release - pieces.offset)
    return Precedence(
        waits=np.bincount(after, minlength=count),
        next_start=starts_of(first, count),
        next_task=after[by_piece],
        next_lag=np.maximum(lag[by_piece], 0),
        release=release,
    )


def meets_itself(pieces: RigidPieces) -> bool:
    """Whether some piece would hold a resource twice at the same time."""
    tasks = pieces.tasks
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    order = np.lexsort((tasks.res_offset, tasks.res, owner))
    owner, res, begin = owner[order], tasks.res[order], tasks.res_offset[order]
    same = (owner[1:] == owner[:-1]) & (res[1:] == res[:-1])
    return bool((same & (begin[1:] < (begin + tasks.res_hold[order])[:-1])).any())
