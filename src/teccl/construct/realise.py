"""From plans to schedules: exact picoseconds for every hop, and epochs on a grid."""

from dataclasses import replace

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.plan import Plan
from teccl.construct.restricted import place_paths
from teccl.construct.tasks import Tasks, replay_tasks, tasks_of_plan
from teccl.schedule import Schedule, send_array


def realise(instance: Instance, plan: Plan, *, method: str) -> Schedule:
    """Give every hop of a plan its physical start.

    A plan in picoseconds is exact already when all chunks have one size and links one rate. Any
    other is placed again in the same order: a grid rounds, and a switch buffers nothing, so that
    what fits the grid may have to wait a little in physical time.
    """
    tasks = tasks_of_plan(instance, plan)
    problem = instance.problem
    if problem.topology.has_profiles:
        return _booked(instance, tasks, method)
    exact = instance.grid is None and len(problem.chunks.sizes) == 1
    timed = tasks if exact else _physical_tasks(instance, plan)
    if exact:
        start = tasks.start
    elif plan.path is None:
        start = replay_tasks(_physical(instance), timed, key=tasks.start)
    else:
        sizes = range(len(problem.chunks.sizes))
        first = np.searchsorted(plan.path, np.arange(int(plan.path.max(initial=-1)) + 1))
        key = plan.rows[first, 2]
        start = place_paths([_physical(instance, i) for i in sizes], plan, key=key).rows[:, 2]
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.hop_start))
    sends = send_array(
        tasks.chunk[owner],
        tasks.hop_link,
        start[owner] + timed.hop_offset,
        transfer=owner,
        reduce=tasks.reduce[owner],
        epoch=_epochs(instance, tasks, owner),
    )
    return Schedule(problem=problem, sends=sends, grid=instance.grid, method=method)


def _epochs(instance: Instance, tasks: Tasks, owner: IntArray) -> IntArray | int:
    return 0 if instance.grid is None else tasks.start[owner] + tasks.hop_offset


def _physical(instance: Instance, size: int = 0) -> Instance:
    """Return the same routes in picoseconds for one of the chunk sizes."""
    return Instance.build(instance.problem, ways=instance.routes.ways(), size=size)


def _physical_tasks(instance: Instance, plan: Plan) -> Tasks:
    """Return a plan's tasks in picoseconds, each timed for its chunk's own size."""
    table = instance.problem.chunks
    tasks = tasks_of_plan(_physical(instance), plan)
    hop_owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.hop_start))
    res_owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    out_owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.out_start))
    size = table.size_index[tasks.chunk]
    for number in range(1, len(table.sizes)):
        other = tasks_of_plan(_physical(instance, number), plan)
        is_it = size == number
        tasks = replace(
            tasks,
            hop_offset=np.where(is_it[hop_owner], other.hop_offset, tasks.hop_offset),
            res_offset=np.where(is_it[res_owner], other.res_offset, tasks.res_offset),
            res_hold=np.where(is_it[res_owner], other.res_hold, tasks.res_hold),
            out_length=np.where(is_it[out_owner], other.out_length, tasks.out_length),
        )
    return tasks


def _booked(instance: Instance, tasks: Tasks, method: str) -> Schedule:
    """Place tasks one by one on links whose bandwidth changes over time."""
    from teccl.construct.booking import Booking

    booking = Booking(instance.problem)
    epochs: list[int] = []
    for t in np.argsort(tasks.start, kind="stable").tolist():
        hops = slice(tasks.hop_start[t], tasks.hop_start[t + 1])
        epochs += (tasks.start[t] + tasks.hop_offset[hops]).tolist()
        links = tuple(tasks.hop_link[tasks.hop_start[t] : tasks.hop_start[t + 1]].tolist())
        booking.carry(int(tasks.chunk[t]), links, reduce=bool(tasks.reduce[t]))
    sends = booking.sends()
    if instance.grid is not None:
        sends["epoch"] = epochs
    return Schedule(problem=instance.problem, sends=sends, grid=instance.grid, method=method)
