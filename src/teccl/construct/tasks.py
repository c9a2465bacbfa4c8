"""Tasks: transfers with the transfers they wait for, from plans and back to schedules."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray
from teccl.construct.multicast import Plan
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array
from teccl.timegrid import TimeGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Transfers to be scheduled: each carries one chunk from a GPU to one GPU or several.

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
        Sending GPU.
    priority
        Least first.
    """

    chunk: IntArray
    reduce: npt.NDArray[np.bool_]
    src: IntArray
    priority: IntArray
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

    def __len__(self) -> int:
        return len(self.chunk)


def tasks_of_plan(
    instance: Instance, plan: Plan, *, reduce: bool = False
) -> Tasks:
    """Gather a plan's rows into tasks on an instance with the same routes.

    The instance may measure time differently: a plan made in epochs becomes tasks in picoseconds.
    """
    rows = plan.rows[np.lexsort((plan.rows[:, 4], plan.rows[:, 3]))]
    routes = instance.routes
    _, task_of_row = np.unique(rows[:, 3], return_inverse=True)
    count = int(task_of_row.max(initial=-1)) + 1
    first = np.searchsorted(task_of_row, np.arange(count))
    route, shared = rows[:, 1], rows[:, 4]
    hop = _ranges(routes.link_start[route] + shared, routes.link_start[route + 1])
    hop_owner = np.repeat(task_of_row, routes.link_start[route + 1] - routes.link_start[route] - shared)
    skip = _shared_resources(instance, route, shared)
    res = _ranges(routes.res_start[route] + skip, routes.res_start[route + 1])
    res_owner = np.repeat(task_of_row, routes.res_start[route + 1] - routes.res_start[route] - skip)
    return Tasks(
        chunk=rows[first, 0],
        reduce=np.full(count, reduce),
        src=routes.src[route[first]],
        priority=rows[first, 2],
        hop_start=np.searchsorted(hop_owner, np.arange(count + 1)),
        hop_link=routes.links[hop],
        hop_offset=routes.link_offset[hop],
        res_start=np.searchsorted(res_owner, np.arange(count + 1)),
        res=routes.res[res],
        res_offset=routes.res_offset[res],
        res_hold=routes.res_hold[res],
        out_start=np.searchsorted(task_of_row, np.arange(count + 1)),
        out_node=routes.dst[route],
        out_length=routes.length[route],
    )


def concatenate(parts: Sequence[Tasks]) -> Tasks:
    """Put several task sets together, in order."""
    columns = {}
    for name in ("chunk", "reduce", "src", "priority", "hop_link", "hop_offset", "res",
                 "res_offset", "res_hold", "out_node", "out_length"):
        columns[name] = np.concatenate([getattr(part, name) for part in parts])
    for name in ("hop_start", "res_start", "out_start"):
        starts = [getattr(part, name) for part in parts]
        ends = np.cumsum([0, *(s[-1] for s in starts)])
        pieces = [s[:-1] + end for s, end in zip(starts, ends[:-1], strict=True)]
        columns[name] = np.concatenate([*pieces, [ends[-1]]]).astype(np.int64)
    return Tasks(**columns)


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
    num_chunks = len(problem.chunks)
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.out_start))
    arrival_key = tasks.out_node * num_chunks + tasks.chunk[owner]
    order = np.argsort(arrival_key, kind="stable")
    sorted_key = arrival_key[order]
    need_key = tasks.src * num_chunks + tasks.chunk
    low = np.searchsorted(sorted_key, need_key, side="left")
    high = np.searchsorted(sorted_key, need_key, side="right")
    feeder = order[_ranges(low, high)]
    waiter = np.repeat(np.arange(len(tasks)), high - low)
    before = owner[feeder]
    # A broadcast of the result waits for contributions, never the other way round.
    keep = ~(tasks.reduce[waiter] & ~tasks.reduce[before]) & (before != waiter)
    feeder, waiter, before = feeder[keep], waiter[keep], before[keep]
    by_task = np.argsort(before, kind="stable")
    release = instance.ready[problem.chunks.tenant[tasks.chunk], tasks.src]
    return Precedence(
        waits=np.bincount(waiter, minlength=len(tasks)),
        next_start=np.searchsorted(before[by_task], np.arange(len(tasks) + 1)),
        next_task=waiter[by_task],
        next_lag=tasks.out_length[feeder[by_task]],
        release=release,
    )


def schedule_tasks(
    instance: Instance,
    tasks: Tasks,
    *,
    priority: IntArray | None = None,
    in_order: bool = False,
) -> tuple[IntArray, int]:
    """Schedule tasks by priority; returns their starts and the finish time.

    With `in_order` each task is placed after all of lower priority value, which repeats a known
    order exactly; otherwise whatever is ready may go first.
    """
    from teccl.construct.kernels import replay
    from teccl.construct.listing import list_schedule

    order = precedence(instance, tasks)
    slot_start = np.concatenate([[0], np.cumsum(instance.slots)]).astype(np.int64)
    priority = tasks.priority if priority is None else priority
    start = (replay if in_order else list_schedule)(
        tasks.res_start,
        tasks.res,
        tasks.res_offset,
        tasks.res_hold,
        order.waits,
        order.next_start,
        order.next_task,
        order.next_lag,
        order.release,
        np.argsort(priority, kind="stable") if in_order else priority,
        slot_start,
        np.zeros(int(slot_start[-1]), dtype=np.int64),
    )
    if len(start) and start.min() < 0:
        raise AssertionError("some task waits for itself")
    ends = np.repeat(start, np.diff(tasks.out_start)) + tasks.out_length
    return start, int(ends.max(initial=0))


def task_tails(instance: Instance, tasks: Tasks) -> IntArray:
    """Longest way from each task's start to the last arrival that hangs on it."""
    from teccl.construct.listing import tails

    order = precedence(instance, tasks)
    longest = np.maximum.reduceat(tasks.out_length, tasks.out_start[:-1])
    sequence = np.argsort(_depths(order), kind="stable")
    return tails(order.next_start, order.next_task, order.next_lag, longest, sequence)


def _depths(order: Precedence) -> IntArray:
    """Number of waits on the longest chain before each task."""
    depth = np.zeros(len(order.waits), dtype=np.int64)
    waits = order.waits.copy()
    frontier = np.flatnonzero(waits == 0)
    level = 0
    while len(frontier):
        depth[frontier] = level
        reached = order.next_task[
            _ranges(order.next_start[frontier], order.next_start[frontier + 1])
        ]
        np.subtract.at(waits, reached, 1)
        frontier = np.unique(reached[waits[reached] == 0])
        level += 1
    return depth


def to_schedule(
    problem: Problem,
    tasks: Tasks,
    start: IntArray,
    *,
    method: str,
    grid: TimeGrid | None = None,
    epoch: IntArray | None = None,
) -> Schedule:
    """Turn scheduled tasks into a schedule; `epoch` gives each hop's epoch on a grid."""
    hops = np.diff(tasks.hop_start)
    owner = np.repeat(np.arange(len(tasks)), hops)
    sends = send_array(
        tasks.chunk[owner],
        tasks.hop_link,
        start[owner] + tasks.hop_offset,
        transfer=owner,
        reduce=tasks.reduce[owner],
        epoch=0 if epoch is None else epoch,
    )
    return Schedule(problem=problem, sends=sends, grid=grid, method=method)


def with_priority(tasks: Tasks, priority: IntArray) -> Tasks:
    """Return the same tasks with other priorities."""
    return replace(tasks, priority=priority)


def _ranges(low: IntArray, high: IntArray) -> IntArray:
    """Concatenate the integer ranges low[i]..high[i]."""
    counts = high - low
    ends = np.cumsum(counts)
    offsets = np.repeat(low - (ends - counts), counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + offsets


def _shared_resources(instance: Instance, route: IntArray, shared: IntArray) -> IntArray:
    """Resource entries of the links that a row shares with another of its transfer."""
    topology, routes = instance.problem.topology, instance.routes
    if not shared.any():
        return np.zeros(len(route), dtype=np.int64)
    per_link = np.array([1 + len(link.shares) for link in topology.links], dtype=np.int64)
    total = np.concatenate([[0], np.cumsum(per_link[routes.links])])
    return total[routes.link_start[route] + shared] - total[routes.link_start[route]]
