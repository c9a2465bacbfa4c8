"""Restart: the order of a schedule that the user gives, in the times that it takes now."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.synthesis.features import Features
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.units import PICOSECONDS, display_time, format_size


class Restart:
    """Replays a schedule of the same problem on a fabric whose rates may have changed."""

    name = "restart"

    def refusal(self, features: Features) -> str | None:
        """There must be a schedule to start from."""
        return None if features.request.from_schedule is not None else "no schedule was given"

    def work(self, _: Features) -> int:
        """Replay what is there."""
        return 0

    def attempts(self, search: Search) -> Iterator[None]:
        """Offer the replay, or say why the order is of no use."""
        obstacle = replay_start(search)
        if obstacle is not None:
            search.note = f"started anew: {obstacle}"
            search.report("restart", search.note)
        yield


def replay_start(search: Search) -> str | None:
    """Offer the schedule to start from in new times; say what keeps it from being of use."""
    from teccl.replay import simulate
    from teccl.verification import has_same_order, verify

    start = search.request.from_schedule
    assert start is not None
    problem = _asked(search.request, start)
    # Whether it keeps to another limit on buffers is for the judge to say.
    start = replace(start, problem=replace(start.problem, buffer=problem.buffer))
    obstacle = _difference(search.request, problem, start) or _congestion(search, problem, start)
    if obstacle is not None:
        return obstacle
    try:
        replay = simulate(start, topology=problem.topology)
    except ScheduleError as reason:
        return str(reason)
    if verify(replay.schedule):
        return "the schedule does not fit the problem any more"
    if not (search.request.any_order or has_same_order(replay.schedule)):
        return "its ranks add in different orders, which --any-order allows"
    search.offer_replay(replay)
    return None


def _asked(request: Request, start: Schedule) -> Problem:
    """Return the problem cut as the schedule's is, unless a number of chunks is asked for."""
    if request.chunks is None and start.problem.whole_buffer:
        return request.whole_problem(start.problem.num_chunks)
    return request.problem(request.chunks or start.problem.num_chunks)


def _congestion(search: Search, problem: Problem, start: Schedule) -> str | None:
    """Say why a schedule's order is too slow to be of use; None if nothing shows that it is.

    What a link carries takes its time in whatever order, and no order is faster on slower links.
    Twice the bound is far more than a new schedule takes, and replaying could take as long.
    """
    if not search.target or problem.topology.has_profiles:
        return None
    most = 2 * search.target
    finish = start.claimed_finish_ps
    if finish is not None and finish > most and _is_nowhere_faster(problem, start.problem):
        return f"its order takes at least {display_time(finish / PICOSECONDS)}"
    sizes = problem.chunks.size_index[start.sends["chunk"]]
    held_ps = problem.hold_ps[start.sends["link"], sizes]
    load_ps = np.bincount(start.sends["link"], weights=held_ps)
    busiest = int(load_ps.argmax())
    if load_ps[busiest] <= most:
        return None
    name = problem.topology.link_name(busiest)
    return f"its order takes link {name} at least {display_time(load_ps[busiest] / PICOSECONDS)}"


def _is_nowhere_faster(problem: Problem, other: Problem) -> bool:
    """Whether every link takes a chunk at least as long as in another problem on the same links."""
    if other.topology.has_profiles or problem.topology.shared != other.topology.shared:
        return False
    slower = problem.hold_ps >= other.hold_ps
    later = problem.topology.alpha_ps >= other.topology.alpha_ps
    return bool(slower.all() and later.all())


def _difference(request: Request, problem: Problem, start: Schedule) -> str | None:
    """Say why a schedule's order is of no use for a problem on a changed fabric; None if it is.

    Raises
    ------
    ScheduleError
        If it is for other nodes, or the fabric is the same but something else was asked for.
    """
    old, new = start.problem.topology, problem.topology
    if old.nodes != new.nodes:
        raise ScheduleError(
            f"the schedule to start from is for {old.name} with {old.num_gpus} GPUs, not for "
            f"{new.name} with {new.num_gpus} and the same names; drop --from"
        )
    if replace(problem, topology=old) != start.problem:
        if old.links != new.links and problem.demand != start.problem.demand:
            return "the schedule serves other ranks"
        given = start.problem
        raise ScheduleError(
            f"the schedule to start from solves another problem: {given.demand.title} of "
            f"{format_size(given.size_bytes)} with --chunks {given.num_chunks}; ask for that, with "
            "its other options, or drop --from"
        )
    if request.grid:
        return "epochs do not carry over from one schedule to another"
    ends = [[(link.src, link.dst, link.shares) for link in t.links] for t in (old, new)]
    return None if ends[0] == ends[1] else "the fabric has other links than the schedule's"
