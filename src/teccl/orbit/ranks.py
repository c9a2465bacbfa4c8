"""Programs of single ranks: what one sends and receives, without listing anybody else's part."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from teccl._arrays import IntArray, ints
from teccl.errors import ScheduleError
from teccl.orbit.schedule import OrbitSchedule


class Step(NamedTuple):
    """One message of a rank, in the order of time.

    Parameters
    ----------
    action
        ``send``, or ``copy`` or ``reduce`` for what is done with an arrival.
    peer
        The rank at the other end, behind switches where there are some.
    owner, target, piece
        Of the chunk: the rank it belongs to, in an AllToAll the rank it goes to, and the piece.
    time_ps
        When a send begins, or when an arrival is complete.
    """

    action: str
    peer: int
    owner: int
    target: int | None
    piece: int
    time_ps: int


def rank_program(schedule: OrbitSchedule, rank: int) -> Iterator[Step]:
    """Yield the messages of one rank in order of time; arrivals come before sends of one instant.

    Raises
    ------
    ScheduleError
        If there is no such rank.
    """
    fabric, problem = schedule.fabric, schedule.problem
    if not 0 <= rank < fabric.num_gpus:
        raise ScheduleError(f"rank {rank}: {fabric.name} has ranks 0 to {fabric.num_gpus - 1}")
    root, leaf = _messages(schedule)
    src = fabric.link_ends(schedule.sends["link"][root])[0]
    dst = fabric.link_ends(schedule.sends["link"][leaf])[1]
    sent, to = _turned(schedule, src, dst, rank)
    come, by = _turned(schedule, dst, src, rank)
    rows = np.concatenate([leaf[come], root[sent]])
    element = np.concatenate([by.element, to.element])
    time = np.concatenate([schedule.arrival_ps[leaf[come]], schedule.sends["start_ps"][root[sent]]])
    chunk = schedule.sends["chunk"][rows]
    owner = fabric.moved_nodes(problem.owner(chunk), element)
    target = fabric.moved_nodes(problem.target(chunk), element)
    peer = np.concatenate([by.peer, to.peer])
    to_all = problem.targets_per_owner == 1
    for i in np.argsort(time, kind="stable").tolist():
        arrived = "reduce" if schedule.sends["reduce"][rows[i]] else "copy"
        yield Step(
            action=arrived if i < len(come) else "send",
            peer=int(peer[i]),
            owner=int(owner[i]),
            target=None if to_all else int(target[i]),
            piece=int(chunk[i]) % problem.num_chunks,
            time_ps=int(time[i]),
        )


def _messages(schedule: OrbitSchedule) -> tuple[IntArray, IntArray]:
    """Rows at which each transfer leaves its GPU and enters another, pair by pair."""
    fabric, transfer = schedule.fabric, schedule.sends["transfer"]
    src, dst = fabric.link_ends(schedule.sends["link"])
    roots, leaves = np.flatnonzero(src < fabric.num_gpus), np.flatnonzero(dst < fabric.num_gpus)
    roots = roots[np.argsort(transfer[roots], kind="stable")]
    return roots[np.searchsorted(transfer[roots], transfer[leaves])], leaves


class _Images(NamedTuple):
    """Elements that bring messages to a rank, and who is at the other end then."""

    element: IntArray
    peer: IntArray


def _turned(
    schedule: OrbitSchedule, here: IntArray, there: IntArray, rank: int
) -> tuple[IntArray, _Images]:
    """Messages of which an image has the rank at one end, and that image."""
    fabric, per_place = schedule.fabric, len(schedule.fabric.gpu_orbits)
    own = np.flatnonzero(here % per_place == rank % per_place)
    place = fabric.group.digits(ints([rank // per_place]))
    element = fabric.group.number(place - fabric.group.digits(here[own] // per_place))
    return own, _Images(element, fabric.moved_nodes(there[own], element))
