"""Removing: which images of a plan have to go where links are damaged."""

from typing import NamedTuple

import numpy as np

from teccl._arrays import IntArray, distinct, expand, ints, is_among
from teccl.errors import MethodError
from teccl.orbit.damage import Damage
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends


class Deliveries(NamedTuple):
    """Transfers of first chunks: number, chunk, ends, arrival and the one that brought the chunk.

    `before` is -1 where the sender is the chunk's owner.
    """

    number: IntArray
    chunk: IntArray
    sender: IntArray
    receiver: IntArray
    start: IntArray
    arrival: IntArray
    before: IntArray


def transfers_of(problem: FabricProblem, sends: OrbitSends) -> Deliveries:
    """Take a plan apart, sorted as schedules are, whose ranks get each chunk once.

    Raises
    ------
    MethodError
        If a switch copies, or some rank gets a chunk twice.
    """
    fabric = problem.fabric
    src, dst = fabric.link_ends(sends["link"])
    number, transfer = np.unique(sends["transfer"], return_inverse=True)
    roots, leaves = np.flatnonzero(src < fabric.num_gpus), np.flatnonzero(dst < fabric.num_gpus)
    if len(roots) != len(number) or len(leaves) != len(number):
        raise MethodError("a transfer of the plan is no way from one gpu to another; plan it anew")
    root, leaf = np.empty(len(number), dtype=np.int64), np.empty(len(number), dtype=np.int64)
    root[transfer[roots]], leaf[transfer[leaves]] = roots, leaves
    chunk = sends["chunk"][root]
    received = chunk * fabric.num_gpus + dst[leaf]
    order = np.argsort(received)
    if (np.diff(received[order]) == 0).any():
        raise MethodError("some gpu gets a chunk twice in the plan; plan it anew without --from")
    wanted = chunk * fabric.num_gpus + src[root]
    at = np.minimum(np.searchsorted(received[order], wanted), len(order) - 1)
    before = np.where(received[order][at] == wanted, order[at], -1)
    return Deliveries(
        number=number,
        chunk=chunk,
        sender=src[root],
        receiver=dst[leaf],
        start=sends["start_ps"][root],
        arrival=OrbitSchedule(problem=problem, sends=sends).arrival_ps[leaf],
        before=before,
    )


def removed_images(
    problem: FabricProblem,
    sends: OrbitSends,
    damage: Damage,
    transfers: Deliveries,
    owners: IntArray,
) -> tuple[IntArray, IntArray]:
    """Transfers and elements of images on damaged links, and of all that follows from them.

    Parameters
    ----------
    owners
        Ranks whose chunks are to grow anew altogether.
    """
    fabric = problem.fabric
    orbit, order = fabric.link_orbit(sends["link"]), fabric.group.order
    position = np.searchsorted(transfers.number, sends["transfer"])
    keys = [np.empty(0, dtype=np.int64)]
    for link in damage.links.tolist():
        number = int(fabric.link_orbit(ints([link]))[0])
        rows = np.flatnonzero(orbit == number)
        keys.append(position[rows] * order + _elements(problem, sends["link"][rows], link))
    roots = np.flatnonzero(transfers.before < 0)
    position, place = owners % len(fabric.gpu_orbits), owners // len(fabric.gpu_orbits)
    for first, element in zip(position.tolist(), place.tolist(), strict=True):
        keys.append(roots[transfers.sender[roots] == first] * order + element)
    by = np.argsort(transfers.before, kind="stable")
    low, high = (
        np.searchsorted(transfers.before[by], np.arange(len(by)), side=side)
        for side in ("left", "right")
    )
    found = frontier = distinct(np.concatenate(keys))
    while len(frontier):
        parent, element = frontier // order, frontier % order
        count = high[parent] - low[parent]
        child = by[expand(low[parent], count)]
        frontier = distinct(child * order + np.repeat(element, count))
        frontier = frontier[~is_among(frontier, found)]
        found = np.sort(np.concatenate([found, frontier]))
    return found // order, found % order


def _elements(problem: FabricProblem, links: IntArray, onto: int) -> IntArray:
    """Elements that take links, which move with the whole group, to one of their orbit."""
    fabric = problem.fabric
    number = int(fabric.link_orbit(ints([onto]))[0])
    lattice, base = fabric.link_lattices[number], fabric.link_base[number]
    place = lattice.digits(ints([onto]) - base)
    return lattice.number(place - lattice.digits(links - base))
