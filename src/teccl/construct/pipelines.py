"""Pipelines: pieces that follow each other at equal distances along a few trees that never wait.

Where GPUs may keep little, a tree is one piece that holds its links at fixed times after its begin
(see `rigid_trees`). Many such pieces of many trees fit beside each other only by chance; along the
same trees, begun a period apart, they never meet if the trees of one period do not.
"""

from collections.abc import Iterator

import numpy as np

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import NEVER, PYTHON_UNITS
from teccl.construct.plan import Plan
from teccl.construct.rigid_trees import RigidPieces, may_be_rigid, meets_itself, rigid_pieces
from teccl.construct.tasks import tasks_of_plan
from teccl.construct.unpaused_trees import (
    Ends,
    FreeTime,
    TreeHop,
    UnpausedTrees,
    ends_of,
    plan_of_trees,
)

# Trees in a period, each number tried by itself.
_TREES = (1, 2)
# How much fuller links may be, and how much longer periods may be, at every try.
_FULLER, _LONGER = 1.2, 1.02
# Tries until links may be some hundred times as full as they must be, or periods thrice as long.
_FILLINGS, _PERIODS = 25, 50


def may_be_piped(instance: Instance) -> bool:
    """Whether all pieces have the same ends and size, and buffers are limited."""
    table = instance.problem.chunks
    alike = (table.source_set, table.destination_set, table.tenant)
    return (
        may_be_rigid(instance)
        and bool(instance.slots.max() == 1)
        and all(len(np.unique(column)) == 1 for column in alike)
        and len(table.sizes) == 1
        and not instance.ready.any()
        and ends_of(instance, 0) is not None
    )


def pipeline_work(instance: Instance) -> int:
    """Units of growing trees, and of making all transfers."""
    return PYTHON_UNITS * (len(instance.routes) + len(instance.problem.chunks))


def pipelined_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans with one and more trees for each period."""
    best, ends = NEVER, ends_of(instance, 0)
    assert ends is not None
    trees = UnpausedTrees(instance)
    for count in _TREES:
        if count > len(instance.problem.chunks):
            return
        for forest in _forests(trees, ends, count, goal):
            goal.begin(PYTHON_UNITS * sum(map(len, forest)))
            plan = _repeated(instance, forest)
            if plan is not None and plan.finish < best:
                best = plan.finish
                yield plan
        if not goal.is_worth(best, pipeline_work(instance)):
            return


def _forests(
    trees: UnpausedTrees, ends: Ends, count: int, goal: Goal
) -> Iterator[list[list[TreeHop]]]:
    """Yield trees that together hold no link for much longer than they must, and their laps."""
    instance = trees.instance
    roots = _by_distance(instance, ends)
    share = max(goal.target, 1) * count / len(instance.problem.chunks)
    cap = max(share, trees.least_hold(ends))
    for _ in range(_FILLINGS):
        goal.begin(PYTHON_UNITS * len(instance.routes))
        free, grown = FreeTime(np.zeros(instance.num_resources), cap), list[list[TreeHop]]()
        for number in range(count):
            tree = trees.grow(ends, roots[number % len(roots)], free)
            if tree is None:
                break
            grown.append(tree)
        if len(grown) == count:
            yield grown
            if ends.sums and ends.copies:
                laps = [trees.lap(tree) for tree in grown]
                if all(lap is not None for lap in laps):
                    yield [lap for lap in laps if lap is not None]
            return
        cap *= _FULLER


def _by_distance(instance: Instance, ends: Ends) -> list[int]:
    """Return where trees may begin, the GPU that is nearest to all others first."""
    from teccl.construct.timetable import all_distances

    if len(ends.roots) == 1:
        return list(ends.roots)
    routes, num = instance.routes, instance.problem.topology.num_nodes
    distance = all_distances(routes.src, routes.dst, routes.length, num, NEVER)
    members = np.array(sorted(ends.members))
    reach = distance[np.ix_(members, members)].max(axis=1)
    nearest: list[int] = members[np.argsort(reach, kind="stable")].tolist()
    return nearest


def _repeated(instance: Instance, trees: list[list[TreeHop]]) -> Plan | None:
    """Return a plan in which all pieces take these trees in turns, or None if they meet."""
    plan = plan_of_trees(instance, trees)
    pieces = rigid_pieces(instance, tasks_of_plan(instance, plan))
    if pieces is None or meets_itself(pieces):
        return None
    found = _phases(pieces, instance.num_resources)
    if found is None:
        return None
    period, phase = found
    start = (phase[pieces.piece] + pieces.offset)[plan.rows[:, 3]]
    return _laid_out(instance, plan, start, period, len(trees))


def _laid_out(instance: Instance, plan: Plan, start: IntArray, period: int, count: int) -> Plan:
    """Return the plan of all pieces, period after period."""
    chunks = len(instance.problem.chunks)
    rounds = -(-chunks // count)
    rows = np.tile(plan.rows, (rounds, 1))
    turn = np.repeat(np.arange(rounds), len(plan.rows))
    rows[:, 0] += turn * count
    rows[:, 2] = np.tile(start, rounds) + turn * period
    rows[:, 3] += turn * (int(plan.rows[:, 3].max()) + 1)
    is_asked = rows[:, 0] < chunks
    assert plan.reduce is not None
    reduce = np.tile(plan.reduce, rounds)[is_asked]
    rows = rows[is_asked]
    rows[:, 2] -= rows[:, 2].min()
    rows[:, 3] = np.unique(rows[:, 3], return_inverse=True)[1]
    finish = int((rows[:, 2] + instance.routes.length[rows[:, 1]]).max())
    return Plan(rows=rows, reduce=reduce, finish=finish, exact=instance.grid is None)


def _phases(pieces: RigidPieces, num_resources: int) -> tuple[int, IntArray] | None:
    """Return a period, and begins of all pieces within it with which none ever meets another."""
    tasks = pieces.tasks
    load = np.bincount(tasks.res, tasks.res_hold, minlength=num_resources)
    period = int(load.max())
    for _ in range(_PERIODS):
        period = _apart(pieces, period)
        phase = _placed(pieces, period)
        if phase is not None:
            return period, phase
        period = int(period * _LONGER) + 1
    return None


def _apart(pieces: RigidPieces, period: int) -> int:
    """Return the least period, from a given one on, with which no piece meets its own images."""
    tasks = pieces.tasks
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    order = np.lexsort((tasks.res_offset, tasks.res, owner))
    kind = np.stack([owner[order], tasks.res[order]])
    begin, hold = tasks.res_offset[order], tasks.res_hold[order]
    pairs = list[tuple[int, int, int]]()
    for apart in range(1, len(order)):
        same = np.flatnonzero((kind[:, apart:] == kind[:, :-apart]).all(axis=0))
        if not len(same):
            break
        columns = begin[same + apart] - begin[same], hold[same], hold[same + apart]
        pairs += zip(*(column.tolist() for column in columns), strict=True)
    before = 0
    while period > before:
        before = period
        for pair in pairs:
            period = _free_period(*pair, period)
    return period


def _free_period(distance: int, first: int, second: int, period: int) -> int:
    """Return the least period, from a given one on, with which two holds of a link never meet.

    The second begins so long after the first. If images of the first begin `times` before it, it
    begins when the last of them is over and ends before the next one begins.
    """
    for times in range(distance // period, 0, -1):
        least = max(period, -(-(distance + second) // (times + 1)))
        if least * times <= distance - first:
            return least
    return max(period, distance + second)


def _placed(pieces: RigidPieces, period: int) -> IntArray | None:
    """Return begins of pieces, each the first at which it meets none before it, or None."""
    tasks, booked = pieces.tasks, dict[int, list[tuple[int, int]]]()
    phase = np.zeros(len(tasks), dtype=np.int64)
    for piece in np.argsort(-np.diff(tasks.res_start), kind="stable").tolist():
        own = slice(tasks.res_start[piece], tasks.res_start[piece + 1])
        columns = (tasks.res[own], tasks.res_offset[own], tasks.res_hold[own])
        entries = list(zip(*(column.tolist() for column in columns), strict=True))
        begin = _first_phase(entries, booked, period)
        if begin is None:
            return None
        phase[piece] = begin
        for r, offset, hold in entries:
            booked.setdefault(r, []).append(((begin + offset) % period, hold))
    return phase


def _first_phase(
    entries: list[tuple[int, int, int]], booked: dict[int, list[tuple[int, int]]], period: int
) -> int | None:
    """Return the first begin within a period at which nothing is held twice."""
    begin, agreed, place = 0, 0, 0
    while agreed < len(entries):
        r, offset, hold = entries[place]
        wait = 0
        for since, busy in booked.get(r, []):
            behind = (begin + offset - since) % period
            if behind < busy:
                wait = max(wait, busy - behind)
            elif period - behind < hold:
                wait = max(wait, period - behind + busy)
        begin += wait
        if begin >= period:
            return None
        # What was moved may meet others now, so that it is looked at again.
        agreed = 0 if wait else agreed + 1
        place = place if wait else (place + 1) % len(entries)
    return begin
