"""Programs of single ranks: what one sends and receives, without listing anybody else's part."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from teccl._arrays import BoolArray, IntArray, ints
from teccl.errors import ScheduleError
from teccl.orbit.fabric import Fabric
from teccl.orbit.patched import PatchedSchedule
from teccl.orbit.problem import FabricProblem
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


def rank_program(schedule: OrbitSchedule | PatchedSchedule, rank: int) -> Iterator[Step]:
    """Yield the messages of one rank in order of time; arrivals come before sends of one instant.

    Raises
    ------
    ScheduleError
        If there is no such rank.
    """
    fabric = schedule.fabric
    if not 0 <= rank < fabric.num_gpus:
        raise ScheduleError(f"rank {rank}: {fabric.name} has ranks 0 to {fabric.num_gpus - 1}")
    gpu = fabric.gpu_of(rank)
    if isinstance(schedule, PatchedSchedule):
        parts = [_of_images(schedule.base, gpu, schedule), _of_added(schedule, gpu)]
    else:
        parts = [_of_images(schedule, gpu)]
    whole = _Messages(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    yield from _steps(schedule.problem, whole)


class _Messages(NamedTuple):
    """Messages of one rank: of which chunk and image, when, with whom, and which way."""

    chunk: IntArray
    element: IntArray
    time: IntArray
    peer: IntArray
    is_sent: BoolArray
    is_reduce: BoolArray


def _steps(problem: FabricProblem, messages: _Messages) -> Iterator[Step]:
    """Yield messages in order."""
    fabric, rank_of = problem.fabric, problem.fabric.rank_of
    owner = rank_of[fabric.moved_nodes(problem.owner(messages.chunk), messages.element)]
    target = rank_of[fabric.moved_nodes(problem.target(messages.chunk), messages.element)]
    peer = rank_of[messages.peer]
    to_all = problem.targets_per_owner == 1
    for i in np.lexsort((messages.is_sent, messages.time)).tolist():
        arrived = "reduce" if messages.is_reduce[i] else "copy"
        yield Step(
            action="send" if messages.is_sent[i] else arrived,
            peer=int(peer[i]),
            owner=int(owner[i]),
            target=None if to_all else int(target[i]),
            piece=int(messages.chunk[i]) % problem.num_chunks,
            time_ps=int(messages.time[i]),
        )


def _of_images(
    schedule: OrbitSchedule, rank: int, patch: PatchedSchedule | None = None
) -> _Messages:
    """Images of messages with the rank at one end, but for those that a patch removes."""
    fabric, sends = schedule.fabric, schedule.sends
    root, leaf = _pairs(sends["transfer"], *_gpu_ends(fabric, sends["link"]))
    src = fabric.link_ends(sends["link"][root])[0]
    dst = fabric.link_ends(sends["link"][leaf])[1]
    come, by = _turned(schedule, dst, src, rank)
    sent, to = _turned(schedule, src, dst, rank)
    rows = np.concatenate([leaf[come], root[sent]])
    found = _Messages(
        chunk=sends["chunk"][rows],
        element=np.concatenate([by.element, to.element]),
        time=np.concatenate([schedule.arrival_ps[leaf[come]], sends["start_ps"][root[sent]]]),
        peer=np.concatenate([by.peer, to.peer]),
        is_sent=np.arange(len(rows)) >= len(come),
        is_reduce=sends["reduce"][rows],
    )
    if patch is None:
        return found
    order = fabric.group.order
    gone = patch.removed["transfer"] * order + patch.removed["element"]
    stays = ~np.isin(sends["transfer"][rows] * order + found.element, gone)
    return _Messages(*(column[stays] for column in found))  # type: ignore[arg-type]


def _of_added(schedule: PatchedSchedule, rank: int) -> _Messages:
    """Added messages with the rank at one end."""
    added, fabric = schedule.added, schedule.fabric
    root, leaf = _pairs(added["transfer"], *_gpu_ends(fabric, added["link"]))
    src = fabric.link_ends(added["link"][root])[0]
    dst = fabric.link_ends(added["link"][leaf])[1]
    come, sent = np.flatnonzero(dst == rank), np.flatnonzero(src == rank)
    rows = np.concatenate([leaf[come], root[sent]])
    return _Messages(
        chunk=added["chunk"][rows],
        element=added["element"][rows],
        time=np.concatenate([schedule.added_times[1][leaf[come]], added["start_ps"][root[sent]]]),
        peer=np.concatenate([src[come], dst[sent]]),
        is_sent=np.arange(len(rows)) >= len(come),
        is_reduce=added["reduce"][rows],
    )


def _gpu_ends(fabric: Fabric, links: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of links that leave GPUs, and of those that enter them."""
    src, dst = fabric.link_ends(links)
    return np.flatnonzero(src < fabric.num_gpus), np.flatnonzero(dst < fabric.num_gpus)


def _pairs(transfer: IntArray, roots: IntArray, leaves: IntArray) -> tuple[IntArray, IntArray]:
    """Rows at which each transfer leaves its GPU and enters another, pair by pair."""
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
