"""From plans to schedules: exact picoseconds for every hop, and epochs on a grid."""

import numpy as np

from teccl.construct.instance import Instance, IntArray, concatenated_ranges, in_own_time
from teccl.construct.plan import Plan
from teccl.construct.restricted import place_paths
from teccl.construct.tasks import (
    Tasks,
    meeting_delays,
    own_links,
    replay_tasks,
    tasks_of_plan,
)
from teccl.keywords import SwitchMode, Transit
from teccl.schedule import Schedule, send_array
from teccl.schedule.timing import transmission_from


def realise(instance: Instance, plan: Plan, *, method: str) -> Schedule:
    """Give every hop of a plan its physical start.

    A plan in picoseconds is exact already when all chunks have one size and links one rate, and so
    is one on a grid that rounds nothing. Any other is placed again in the same order: a grid
    rounds, and a switch buffers nothing, so that what fits the grid may have to wait a little in
    physical time.
    """
    if plan.exact:
        return _timed(instance, plan, method)
    if instance.problem.topology.has_profiles:
        return _booked(instance, plan, method)
    unit = _exact_unit(instance)
    return (
        _placed(instance, plan, method) if unit is None else _scaled(instance, plan, method, unit)
    )


def _exact_unit(instance: Instance) -> int | None:
    """Picoseconds that a unit of an instance's time stands for, None where routes differ in it."""
    if len(instance.problem.chunks.sizes) > 1:
        return None
    if instance.grid is None:
        return 1
    physical = _physical(instance)
    if (instance.slots > 1).any() or physical.ready.any():
        return None
    times = [
        (each.length, each.link_offset, each.res_offset, each.res_hold)
        for each in (instance.routes, physical.routes)
    ]
    unit = int(times[1][0].max() // max(1, times[0][0].max()))
    same = all(np.array_equal(a * unit, b) for a, b in zip(*times, strict=True))
    return unit if same else None


def _scaled(instance: Instance, plan: Plan, method: str, unit: int) -> Schedule:
    """Return the schedule of a plan whose time needs nothing but another unit."""
    routes, rows = instance.routes, plan.rows
    reduce = np.zeros(len(rows), dtype=bool) if plan.reduce is None else plan.reduce
    hop, end = own_links(instance, rows, reduce)
    begin = rows[:, 2] + meeting_delays(instance, rows, reduce)
    if (end - hop != 1).any():
        owner = np.repeat(np.arange(len(rows)), end - hop)
        hop, rows, reduce = concatenated_ranges(hop, end), rows[owner], reduce[owner]
        begin = begin[owner]
    start = begin + routes.link_offset[hop]
    sends = send_array(
        rows[:, 0],
        routes.links[hop],
        start * unit,
        transfer=rows[:, 3],
        reduce=reduce,
        epoch=0 if instance.grid is None else start,
    )
    return Schedule(
        problem=instance.problem,
        sends=sends,
        grid=instance.grid,
        method=method,
        shifts=plan.shifts,
    )


def _timed(instance: Instance, plan: Plan, method: str) -> Schedule:
    """Return the schedule of a plan whose starts hold for each chunk's own size."""
    instance, rows = in_own_time(instance, plan.rows)
    reduce = np.zeros(len(rows), dtype=bool) if plan.reduce is None else plan.reduce
    hop, end = own_links(instance, rows, reduce)
    owner = np.repeat(np.arange(len(rows)), end - hop)
    hop = concatenated_ranges(hop, end)
    begin = rows[:, 2] + meeting_delays(instance, rows, reduce)
    sends = send_array(
        rows[owner, 0],
        instance.routes.links[hop],
        begin[owner] + _offsets(instance, rows[owner], hop),
        transfer=rows[owner, 3],
        reduce=reduce[owner],
    )
    return Schedule(problem=instance.problem, sends=sends, method=method, shifts=plan.shifts)


def _offsets(instance: Instance, rows: IntArray, hop: IntArray) -> IntArray:
    """Time from the start of a row's route to each of its hops, at rates as they are then."""
    problem, routes = instance.problem, instance.routes
    if not problem.topology.has_profiles:
        return routes.link_offset[hop]
    alpha, overhead = problem.topology.alpha_ps, problem.topology.overhead_ps
    offset = np.zeros(len(hop), dtype=np.int64)
    for i, (row, last) in enumerate(zip(rows.tolist(), hop.tolist(), strict=True)):
        now = row[2]
        for link in routes.links[routes.link_start[row[1]] : last].tolist():
            steps = problem.topology.rate_steps(problem.topology.links[link])
            chunk_bytes, extra = problem.chunks.size(row[0]), int(overhead[link])
            now += transmission_from(steps, chunk_bytes, now, overhead_ps=extra) + int(alpha[link])
        offset[i] = now - row[2]
    return offset


def _placed(instance: Instance, plan: Plan, method: str) -> Schedule:
    """Return the schedule of a plan whose transfers keep their order and get new times."""
    physical = _physical(instance)
    tasks, timed = tasks_of_plan(instance, plan), tasks_of_plan(physical, plan)
    if plan.path is None:
        start = replay_tasks(physical, timed, key=tasks.start)
    else:
        first = np.searchsorted(plan.path, np.arange(int(plan.path.max(initial=-1)) + 1))
        start = place_paths(physical, plan, key=plan.rows[first, 2]).rows[:, 2]
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.hop_start))
    sends = send_array(
        tasks.chunk[owner],
        tasks.hop_link,
        start[owner] + timed.hop_offset,
        transfer=owner,
        reduce=tasks.reduce[owner],
        epoch=0 if instance.grid is None else tasks.start[owner] + tasks.hop_offset,
    )
    return Schedule(
        problem=instance.problem,
        sends=sends,
        grid=instance.grid,
        method=method,
        shifts=plan.shifts,
    )


def _physical(instance: Instance) -> Instance:
    """Return the same routes in picoseconds."""
    if instance.grid is None:
        return instance
    return Instance.build(instance.problem, ways=instance.routes.ways())


def _booked(instance: Instance, plan: Plan, method: str) -> Schedule:
    """Place tasks one by one on links whose bandwidth changes over time, whole paths as one."""
    from teccl.construct.booking import Booking

    tasks, booking = tasks_of_plan(instance, plan), Booking(instance.problem)
    epochs: list[int] = []
    # What feeds a task where copies travel apart; elsewhere any copy serves, as the booking knows.
    fed = [-1] * len(tasks) if tasks.feeder is None else tasks.feeder.tolist()
    arrival: dict[int, int] = {}
    for body in bodies(tasks, plan):
        hops = [slice(tasks.hop_start[t], tasks.hop_start[t + 1]) for t in body]
        for t, own in zip(body, hops, strict=True):
            epochs += _epochs(instance, int(tasks.start[t]), tasks.hop_link[own].tolist())
        links = tuple(link for own in hops for link in tasks.hop_link[own].tolist())
        chunk = int(tasks.chunk[body[0]])
        if plan.path is None:
            earliest, reduce = arrival.get(fed[body[0]]), bool(tasks.reduce[body[0]])
            arrival[body[0]] = booking.carry(chunk, links, earliest=earliest, reduce=reduce)
        else:
            booking.carry_whole(chunk, links)
    sends = booking.sends()
    if instance.grid is not None:
        sends["epoch"] = epochs
    return Schedule(problem=instance.problem, sends=sends, grid=instance.grid, method=method)


def _epochs(instance: Instance, start: int, links: list[int]) -> list[int]:
    """Epochs of a transfer's links, each of which comes after the one that leads to it."""
    problem, grid = instance.problem, instance.grid
    if grid is None:
        return [0] * len(links)
    topology, found = problem.topology, []
    at: dict[int, int] = {}
    for link in links:
        src, dst = topology.links[link].src, topology.links[link].dst
        epoch = at.get(src, start)
        found.append(epoch)
        if problem.switch is SwitchMode.HYPER_EDGE:
            at[dst] = epoch
        elif problem.transit is Transit.CUT_THROUGH:
            at[dst] = epoch + int(grid.delta[link])
        else:
            at[dst] = epoch + grid.kappa_at(link, epoch) + int(grid.delta[link])
    return found


def bodies(tasks: Tasks, plan: Plan) -> list[list[int]]:
    """Return tasks that are placed together, those that begin first before the others."""
    order = np.argsort(tasks.start, kind="stable").tolist()
    if plan.path is None:
        return [[t] for t in order]
    found: dict[int, list[int]] = {}
    path = plan.path[np.unique(plan.rows[:, 3], return_index=True)[1]].tolist()
    for t in order:
        found.setdefault(path[t], []).append(t)
    return list(found.values())
