"""Tasks: transfers with the transfers they wait for, from plans and back to schedules."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import (
    Instance,
    IntArray,
    concatenated_ranges,
    in_own_time,
    starts_of,
)
from teccl.construct.params import NEVER
from teccl.construct.plan import Plan
from teccl.schedule.ordering import order_by

# How many times as many keys as occur may be counted.
COUNTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Transfers to be scheduled: each carries one chunk from a GPU to one GPU or several.

    Where switches reduce, one may also carry contributions from several GPUs to one.

    Parameters
    ----------
    chunk, reduce
        What is carried, and whether receivers combine it.
    hop_start, hop_link, hop_offset
        CSR list of links with the offset of each hop.
    res_start, res, res_offset, res_hold
        CSR list of resources held.
    out_start, out_node, out_length
        CSR list of receiving GPUs and when they have it.
    src
        Sending GPU, the first of several.
    source_start, source, source_delay
        CSR list of all sending GPUs, and how much later than the task each sets out.
    start
        When the plan starts it.
    feeder
        Task that brings the chunk to the sender, -1 at a source; None when chunk and sender say.
    """

    chunk: IntArray
    reduce: npt.NDArray[np.bool_]
    src: IntArray
    start: IntArray
    hop_start: IntArray
    hop_link: IntArray
    hop_offset: IntArray
    res_start: IntArray
    res: IntArray
    res_offset: IntArray
    res_hold: IntArray
    out_start: IntArray
    out_node: IntArray
    out_length: IntArray
    source_start: IntArray
    source: IntArray
    source_delay: IntArray
    feeder: IntArray | None = None

    def __len__(self) -> int:
        return len(self.chunk)


def tasks_of_plan(instance: Instance, plan: Plan) -> Tasks:
    """Gather a plan's rows into tasks on an instance with the same routes.

    The instance may measure time differently: a plan made in epochs becomes tasks in picoseconds,
    each timed for its chunk's own size.
    """
    by_transfer = order_by(plan.rows[:, 3], plan.rows[:, 4])
    instance, rows = in_own_time(instance, plan.rows[by_transfer])
    reduce = np.zeros(len(rows), dtype=bool) if plan.reduce is None else plan.reduce[by_transfer]
    routes = instance.routes
    is_first = np.diff(rows[:, 3], prepend=-1) > 0
    task_of_row, first = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
    count = len(first)
    route, shared = rows[:, 1], rows[:, 4]
    delay = meeting_delays(instance, rows, reduce)
    begin, end = own_links(instance, rows, reduce)
    hop, hop_row = concatenated_ranges(begin, end), np.repeat(np.arange(len(rows)), end - begin)
    begin, end = resource_places(instance, begin, end)
    res, res_row = concatenated_ranges(begin, end), np.repeat(np.arange(len(rows)), end - begin)
    # The rows of a passage begin at one GPU, unless it brings contributions together.
    begins = np.flatnonzero((np.diff(task_of_row, prepend=-1) > 0) | (reduce & (shared > 0)))
    return Tasks(
        chunk=rows[first, 0],
        reduce=reduce[first],
        src=routes.src[route[first]],
        start=rows[first, 2],
        hop_start=starts_of(task_of_row[hop_row], count),
        hop_link=routes.links[hop],
        hop_offset=routes.link_offset[hop] + delay[hop_row],
        res_start=starts_of(task_of_row[res_row], count),
        res=routes.res[res],
        res_offset=routes.res_offset[res] + delay[res_row],
        res_hold=routes.res_hold[res],
        out_start=starts_of(task_of_row, count),
        out_node=routes.dst[route],
        out_length=routes.length[route] + delay,
        source_start=starts_of(task_of_row[begins], count),
        source=routes.src[route[begins]],
        source_delay=delay[begins],
        feeder=plan.feeder,
    )


def meeting_delays(instance: Instance, rows: IntArray, reduce: npt.NDArray[np.bool_]) -> IntArray:
    """How much later than its passage each row sets out, so that contributions meet in time.

    All of a passage that adds up arrive at one GPU, over links that are the same once they have
    met: who is nearer sets out later by as much as its way is shorter.
    """
    length = instance.routes.length[rows[:, 1]]
    longest = np.zeros(1 + int(rows[:, 3].max(initial=-1)), dtype=np.int64)
    np.maximum.at(longest, rows[:, 3], length)
    return np.where(reduce, longest[rows[:, 3]] - length, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """Which tasks wait for which, and from when each may start at all."""

    waits: IntArray
    next_start: IntArray
    next_task: IntArray
    next_lag: IntArray
    release: IntArray


def precedence(instance: Instance, tasks: Tasks) -> Precedence:
    """Derive who waits for whom from chunks, nodes and the order of priorities.

    A task that carries a reduction waits for every earlier arrival of its chunk at its sender; a
    copy waits for the one arrival that brings the chunk (or, after a reduction, for all).
    """
    problem = instance.problem
    sender = np.repeat(np.arange(len(tasks)), np.diff(tasks.source_start))
    release = np.zeros(len(tasks), dtype=np.int64)
    tenant = problem.chunks.tenant[tasks.chunk[sender]]
    np.maximum.at(release, sender, instance.ready[tenant, tasks.source] - tasks.source_delay)
    if tasks.feeder is not None:
        return _explicit_precedence(tasks, tasks.feeder, release)
    num_chunks = len(problem.chunks)
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.out_start))
    arrival_key = tasks.out_node * num_chunks + tasks.chunk[owner]
    order = order_by(arrival_key)
    need_key = tasks.source * num_chunks + tasks.chunk[sender]
    low, high = _places(arrival_key[order], need_key, problem.topology.num_nodes * num_chunks)
    feeder = order[concatenated_ranges(low, high)]
    entry = np.repeat(np.arange(len(sender)), high - low)
    waiter, before = sender[entry], owner[feeder]
    # A broadcast of the result waits for contributions, never the other way round.
    keep = ~(tasks.reduce[waiter] & ~tasks.reduce[before]) & (before != waiter)
    feeder, waiter, before = feeder[keep], waiter[keep], before[keep]
    lag = np.maximum(tasks.out_length[feeder] - tasks.source_delay[entry[keep]], 0)
    by_task = order_by(before)
    return Precedence(
        waits=np.bincount(waiter, minlength=len(tasks)),
        next_start=starts_of(before, len(tasks)),
        next_task=waiter[by_task],
        next_lag=lag[by_task],
        release=release,
    )


def _places(keys: IntArray, wanted: IntArray, num: int) -> tuple[IntArray, IntArray]:
    """Where each wanted key begins and ends among sorted ones, which are below `num`."""
    if num > COUNTED * len(keys):
        return np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
    # Counting takes less time where most keys occur.
    first = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=num))])
    return first[wanted], first[wanted + 1]


def _explicit_precedence(tasks: Tasks, feeder: IntArray, release: IntArray) -> Precedence:
    """Every task waits for the one that feeds it and for nothing else."""
    waiter = np.flatnonzero(feeder >= 0)
    before = feeder[waiter]
    by_task = order_by(before)
    return Precedence(
        waits=(feeder >= 0).astype(np.int64),
        next_start=starts_of(before, len(tasks)),
        next_task=waiter[by_task],
        next_lag=tasks.out_length[before[by_task]],
        # What a relay passes on is never its own, so only first legs wait for ready times.
        release=np.where(feeder >= 0, 0, release),
    )


def schedule_tasks(
    instance: Instance,
    tasks: Tasks,
    *,
    key: IntArray,
    weight: float = 0.0,
    order: Precedence,
) -> IntArray:
    """List-schedule tasks, the least key first; returns their starts.

    `weight` counts the work left on a task's other resources against its key.
    """
    from teccl.construct.listing import list_schedule

    start: IntArray = list_schedule(
        *resource_columns(tasks), *arcs_of(order), order.release, key, weight, *_slots(instance)
    )
    return start


def replay_tasks(instance: Instance, tasks: Tasks, *, key: IntArray) -> IntArray:
    """Place tasks one after another in the order of their keys, each as early as possible."""
    from teccl.construct.kernels import replay

    order = precedence(instance, tasks)
    start: IntArray = replay(
        *resource_columns(tasks),
        *arcs_of(order),
        order.release,
        np.argsort(key, kind="stable"),
        *_slots(instance),
    )
    return start


def finish_time(tasks: Tasks, start: IntArray) -> int:
    """Last arrival; a very late time when some task was not placed."""
    if not len(start):
        return 0
    if start.min() < 0:
        return NEVER
    return int((np.repeat(start, np.diff(tasks.out_start)) + tasks.out_length).max())


def justify(
    instance: Instance,
    tasks: Tasks,
    start: IntArray,
    *,
    rounds: int,
    order: Precedence,
    weight: float = 0.0,
) -> IntArray:
    """Schedule backwards from the end and forwards again, each in the other's order.

    A task that was early without need moves late, which makes room; repeating both directions
    shortens most schedules (double justification).
    """
    from teccl.construct.listing import list_schedule

    length = task_lengths(tasks)
    mirrored, arcs = mirror(length, resource_columns(tasks), arcs_of(order))
    best, best_finish = start, finish_time(tasks, start)
    for _ in range(rounds):
        back = list_schedule(
            *mirrored,
            *arcs,
            np.zeros_like(order.release),
            -(start + length),
            weight,
            *_slots(instance),
        )
        if back.min(initial=0) < 0:
            break
        start = schedule_tasks(instance, tasks, key=-(back + length), weight=weight, order=order)
        finish = finish_time(tasks, start)
        if finish >= best_finish:
            break
        best, best_finish = start, finish
    return best


def task_lengths(tasks: Tasks) -> IntArray:
    """Time from each task's start until all of it is over."""
    count = len(tasks)
    length = np.zeros(count, dtype=np.int64)
    out_owner = np.repeat(np.arange(count), np.diff(tasks.out_start))
    res_owner = np.repeat(np.arange(count), np.diff(tasks.res_start))
    np.maximum.at(length, out_owner, tasks.out_length)
    np.maximum.at(length, res_owner, tasks.res_offset + tasks.res_hold)
    return length


def mirror(
    length: IntArray, columns: tuple[IntArray, ...], arcs: tuple[IntArray, ...]
) -> tuple[tuple[IntArray, ...], tuple[IntArray, ...]]:
    """Return resources and arcs of tasks as seen when time runs backwards."""
    res_start, res, res_offset, res_hold = columns
    _, next_start, after, next_lag = arcs
    count = len(length)
    owner = np.repeat(np.arange(count), np.diff(res_start))
    before = np.repeat(np.arange(count), np.diff(next_start))
    lag = length[after] - length[before] + next_lag
    by_after = order_by(after)
    offset = length[owner] - res_offset - res_hold
    by_offset = order_by(owner, offset)
    mirrored = (res_start, res[by_offset], offset[by_offset], res_hold[by_offset])
    backwards = (
        np.bincount(before, minlength=count),
        starts_of(after, count),
        before[by_after],
        lag[by_after],
    )
    return mirrored, backwards


def resource_columns(tasks: Tasks) -> tuple[IntArray, ...]:
    """Return the CSR list of what tasks hold, as kernels take it."""
    return tasks.res_start, tasks.res, tasks.res_offset, tasks.res_hold


def arcs_of(order: Precedence) -> tuple[IntArray, ...]:
    """Return who waits for whom, as kernels take it."""
    return order.waits, order.next_start, order.next_task, order.next_lag


def _slots(instance: Instance) -> tuple[IntArray, IntArray]:
    starts = np.concatenate([[0], np.cumsum(instance.slots)]).astype(np.int64)
    return starts, np.zeros(int(starts[-1]), dtype=np.int64)


def task_tails(tasks: Tasks, order: Precedence) -> IntArray:
    """Longest way from each task's start to the last arrival that hangs on it."""
    from teccl.construct.listing import tails

    longest = np.maximum.reduceat(tasks.out_length, tasks.out_start[:-1])
    sequence = np.argsort(depths(order), kind="stable")
    return tails(order.next_start, order.next_task, order.next_lag, longest, sequence)


def depths(order: Precedence) -> IntArray:
    """Number of waits on the longest chain before each task."""
    depth = np.zeros(len(order.waits), dtype=np.int64)
    waits = order.waits.copy()
    frontier = np.flatnonzero(waits == 0)
    level = 0
    while len(frontier):
        depth[frontier] = level
        reached = order.next_task[
            concatenated_ranges(order.next_start[frontier], order.next_start[frontier + 1])
        ]
        np.subtract.at(waits, reached, 1)
        frontier = np.unique(reached[waits[reached] == 0])
        level += 1
    return depth


def own_links(
    instance: Instance, rows: IntArray, reduce: npt.NDArray[np.bool_]
) -> tuple[IntArray, IntArray]:
    """Where each row's links stand among those of routes, without links that are another row's.

    Copies of a chunk share the first links of their ways, contributions to a sum the last ones.
    """
    links, route, shared = instance.routes.link_start, rows[:, 1], rows[:, 4]
    begin = links[route] + np.where(reduce, 0, shared)
    end = links[route + 1] - np.where(reduce, shared, 0)
    return begin, end


def resource_places(
    instance: Instance, begin: IntArray, end: IntArray
) -> tuple[IntArray, IntArray]:
    """Where the resources of some links of routes stand: each link itself and what it shares."""
    topology = instance.problem.topology
    if not topology.shared:
        return begin, end
    per_link = np.array([1 + len(link.shares) for link in topology.links], dtype=np.int64)
    total = np.concatenate([[0], np.cumsum(per_link[instance.routes.links])])
    return total[begin], total[end]
