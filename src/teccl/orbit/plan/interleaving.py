"""Interleaving: an AllReduce piece by piece, sums of one beside copies of others.

A plan that sums everything before it copies anything completes all sums at once, so that who is
late with one contribution holds up everything. Cut into pieces, a plan completes sums evenly all
the time. A GPU with a weak link then has twice as long for its contributions, which leave while
others copy, and for what it gets, which comes while others sum.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from teccl._arrays import IntArray, ints
from teccl.errors import MethodError
from teccl.orbit.damage import Damage
from teccl.orbit.patched import lengths
from teccl.orbit.plan.bookings import LINE
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends, orbit_array


class _Transfers(NamedTuple):
    """Transfers of first chunks, over one link or over two behind each other."""

    chunk: IntArray
    link: IntArray
    second: IntArray
    sender: IntArray
    receiver: IntArray
    start: IntArray

    @staticmethod
    def of(problem: FabricProblem, sends: OrbitSends) -> "_Transfers":
        hops = sends[np.lexsort((sends["start_ps"], sends["transfer"]))]
        _, first, count = np.unique(hops["transfer"], return_index=True, return_counts=True)
        if (count > 2).any():
            raise MethodError("ways of the plan lead through several switches; plan it anew")
        last = first + count - 1
        src, dst = problem.fabric.link_ends(hops["link"])
        return _Transfers(
            chunk=hops["chunk"][first],
            link=hops["link"][first],
            second=np.where(count > 1, hops["link"][last], -1),
            sender=src[first],
            receiver=dst[last],
            start=hops["start_ps"][first],
        )


def interleaved(plan: OrbitSchedule, pieces: int, room: float) -> OrbitSchedule:
    """Cut the chunks of an AllReduce into pieces that take the trees of the plan one by one.

    Parameters
    ----------
    pieces
        Into how many each chunk is cut.
    room
        How much longer links are held than the plan needs, for what damage brings.

    Raises
    ------
    MethodError
        If ways of the plan lead through several switches.
    """
    problem = replace(plan.problem, num_chunks=plan.problem.num_chunks * pieces)
    halves = [_Transfers.of(problem, plan.sends[plan.sends["reduce"] == x]) for x in (True, False)]
    table, turn, planned = _moves(problem, halves, pieces)
    orbits = problem.fabric.link_base[:-1]
    links = np.stack(lengths(problem, Damage(fabric=problem.fabric, rates={}), orbits))
    order = np.lexsort((planned, turn))
    start = _placed(problem, table, _with_room(table, order, room), turn, links)
    sends = _sends(halves, pieces, start, links, table[2])
    return OrbitSchedule(problem=problem, sends=sends, method=plan.method)


def _placed(
    problem: FabricProblem, table: IntArray, order: IntArray, turn: IntArray, links: IntArray
) -> IntArray:
    """When each transfer begins if they are placed in the given order; repeated ones are room.

    Contributions wait for the copies of the piece before the last: sent as soon as there is time
    they would be gone before anybody can add what comes late.
    """
    from teccl.orbit.plan.retiming import retime

    is_room = np.diff(order, prepend=-1) == 0
    moves = table[:, order]
    nowhere = 2 * problem.num_chunk_orbits * problem.fabric.num_gpus
    moves[1, is_room] = nowhere
    ready = np.zeros(nowhere + 1, dtype=np.int64)
    calendars = _blank(links.shape[1], len(order))
    start = np.empty(table.shape[1], dtype=np.int64)
    begins = np.zeros(int(turn.max()) + 1, dtype=np.int64)
    cuts = np.flatnonzero(np.diff(turn[order], prepend=-1))
    for first, last in zip(cuts.tolist(), [*cuts[1:].tolist(), len(order)], strict=True):
        phase = int(turn[order[first]])
        if phase % 2 == 0 and phase >= 4:
            tails = moves[0, first:last]
            ready[tails] = np.maximum(ready[tails], begins[phase - 1])
        found = retime(moves[:, first:last], ready, False, links, calendars)
        kept = np.flatnonzero(~is_room[first:last])
        start[order[first:last][kept]] = found[kept]
        begins[phase] = found[kept].min()
    return start


def _moves(
    problem: FabricProblem, halves: list[_Transfers], pieces: int
) -> tuple[IntArray, IntArray, IntArray]:
    """All pieces' transfers as `retime` takes them, the turn of each, and when it is in the plan.

    The sums of the next piece come before the copies of each, so that nobody waits for these.
    """
    ranks, count = problem.fabric.num_gpus, problem.num_chunk_orbits
    columns, turns, starts = [], [], []
    for half, each in enumerate(halves):
        for piece in range(pieces):
            chunk = each.chunk * pieces + piece
            ends = [(half * count + chunk) * ranks + rank for rank in (each.sender, each.receiver)]
            if half:
                # Copies begin where the sum is complete.
                owner = problem.owner(chunk)
                ends[0] = np.where(each.sender == owner, chunk * ranks + owner, ends[0])
            second = np.where(each.second < 0, -1, problem.fabric.link_orbit(each.second))
            never = np.full(len(chunk), -1)
            way = problem.fabric.link_orbit(each.link), second
            columns.append(np.stack([*ends, *way, never, never]))
            turns.append(2 * (chunk % problem.num_chunks) + 3 * half)
            starts.append(each.start)
    return np.concatenate(columns, axis=1), np.concatenate(turns), np.concatenate(starts)


def _with_room(table: IntArray, order: IntArray, room: float) -> IntArray:
    """Repeat transfers over each link orbit, which leaves room for others."""
    orbit = table[2, order]
    by = np.argsort(orbit, kind="stable")
    first = np.searchsorted(orbit[by], orbit[by])
    nth = np.empty(len(by), dtype=np.int64)
    nth[by] = np.arange(len(by)) - first
    times = np.floor((nth + 1) * (1 + room)) - np.floor(nth * (1 + room))
    return np.repeat(order, times.astype(np.int64))


def _blank(orbits: int, moves: int) -> tuple[IntArray, ...]:
    """Calendars of link orbits, all of them free; see `bookings`."""
    table = np.zeros((6, orbits + 1), dtype=np.int64)
    table[LINE] = -1
    books = np.empty((2, 8 * (moves + orbits)), dtype=np.int64)
    first, images = np.zeros(orbits + 1, dtype=np.int64), np.zeros((3, 0), dtype=np.int64)
    return table, first, images, images[0], books, ints([0])


def _sends(
    halves: list[_Transfers], pieces: int, start: IntArray, links: IntArray, orbit: IntArray
) -> OrbitSends:
    """Return the sends over single links of all pieces' transfers."""
    chunk = [half.chunk * pieces + piece for half in halves for piece in range(pieces)]
    first, second = (
        np.concatenate([column for half in halves for column in [getattr(half, name)] * pieces])
        for name in ("link", "second")
    )
    passes = np.flatnonzero(second >= 0)
    rows = np.concatenate([np.arange(len(start)), passes])
    there = start + links[:, orbit].sum(axis=0)
    return orbit_array(
        chunk=np.concatenate(chunk)[rows],
        link=np.concatenate([first, second[passes]]),
        start_ps=np.concatenate([start, there[passes]]),
        transfer=rows,
        reduce=rows < pieces * len(halves[0].chunk),
    )
