"""Mending: an orbit schedule patched around damaged links.

Images that use a damaged link are removed, and with them what their chunks do afterwards from
there; all others stay where they are. What is missing then is brought there over the time that
links have left.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl.demand import Collective
from teccl.errors import MethodError
from teccl.orbit.bounds import summarise
from teccl.orbit.damage import Damage
from teccl.orbit.patched import ADDED_DTYPE, PatchedSchedule, Rows, lengths
from teccl.orbit.plan.interleaving import interleaved
from teccl.orbit.plan.patching import Calendars, Network, Removed, grafted, rerouted
from teccl.orbit.plan.piecewise import (
    backwards_in_time,
    forwards,
    piecewise,
    removed_rows,
    turned_damage,
)
from teccl.orbit.plan.removing import removed_images, transfers_of
from teccl.orbit.plan.reversal import mirrored
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends

# Pieces that an AllReduce is cut into around damage, and sends that may be listed then. A weak GPU
# is late by about a piece at either end, which costs that much where everybody waits for it: there
# are twice as many then.
_PIECES = 16
_LISTED = 2**20
# How much longer than the plan links are held, for what damage brings; the best is taken. Where
# everybody waits for a weak GPU there is more room than that anyway.
_ROOMS = (1 / 64, 1 / 16)


def mended(schedule: OrbitSchedule, damage: Damage, *, cut: bool = True) -> PatchedSchedule:
    """Patch a plan of `solve_orbit` around damage.

    Parameters
    ----------
    cut
        Whether chunks of an AllReduce may be cut into pieces.

    Raises
    ------
    MethodError
        If the schedule is not one that mending knows, or the damage leaves some GPU out of reach.
    """
    collective = schedule.problem.collective
    if schedule.problem.groups is not None:
        raise MethodError("groups of ranks are not patched around damage; plan them as tenants")
    if collective is Collective.ALLREDUCE:
        made = list(_both_halves(schedule, damage, cut=cut))
        return min(made, key=lambda each: each.finish_ps)
    if collective is Collective.REDUCESCATTER:
        return _made(schedule, damage, *_mend_backwards(schedule, damage))
    removed, added = _mend(schedule.problem, schedule.sends, damage)
    return _made(schedule, damage, schedule.sends, removed, added)


def _made(
    schedule: OrbitSchedule, damage: Damage, base: OrbitSends, removed: Rows, added: Rows
) -> PatchedSchedule:
    """Return the schedule of a patch."""
    plain = OrbitSchedule(problem=schedule.problem, sends=base, method=schedule.method)
    made = PatchedSchedule(
        base=plain, damage=damage, removed=removed, added=added, method="orbit-patched"
    )
    return replace(made, claimed_finish_ps=made.finish_ps)


def _both_halves(
    schedule: OrbitSchedule, damage: Damage, *, cut: bool
) -> Iterator[PatchedSchedule]:
    """Yield mended AllReduces: one half after the other, and piece by piece."""
    sends, is_sum = schedule.sends, schedule.sends["reduce"]
    turn = int(schedule.arrival_ps[is_sum].max(initial=0))
    if (sends["start_ps"][~is_sum] >= turn).all():
        yield _made(schedule, damage, *_mend_halves(schedule, damage, turn))
    weak, whole = (summarise(schedule.problem, x).physical_ps for x in (damage, None))
    pieces, rooms = (2 * _PIECES, _ROOMS[:1]) if weak > whole else (_PIECES, _ROOMS)
    most = min(pieces // schedule.problem.num_chunks, _LISTED // len(sends))
    for room in rooms:
        # What takes longer for a weak GPU takes longer for all, evenly.
        plan = interleaved(schedule, max(1, most) if cut else 1, weak / whole - 1 + room)
        yield _made(plan, damage, *piecewise(plan, damage))


def _mend_halves(
    schedule: OrbitSchedule, damage: Damage, turn: int
) -> tuple[OrbitSends, Rows, Rows]:
    """Mend a ReduceScatter, and an AllGather that begins after it."""
    problem, is_sum = schedule.problem, schedule.sends["reduce"]
    half = replace(problem, collective=Collective.REDUCESCATTER)
    sums = OrbitSchedule(problem=half, sends=schedule.sends[is_sum])
    base, removed, added = _mend_backwards(sums, damage)
    begin = _finish(half, damage, base, added)
    copies = schedule.sends[~is_sum].copy()
    copies["start_ps"] -= turn
    lost, later = _mend(replace(problem, collective=Collective.ALLGATHER), copies, damage)
    for rows in (copies, later):
        rows["start_ps"] += begin
    later["transfer"] += added["transfer"].max(initial=-1) + 1
    return tuple(np.concatenate(x) for x in ((base, copies), (removed, lost), (added, later)))


def _finish(problem: FabricProblem, damage: Damage, base: OrbitSends, added: Rows) -> int:
    """When all sends have arrived, removed ones included."""
    last = OrbitSchedule(problem=problem, sends=base).finish_ps
    held, alpha = lengths(problem, damage, added["link"])
    return max(last, int((added["start_ps"] + held + alpha).max(initial=0)))


def _mend_backwards(schedule: OrbitSchedule, damage: Damage) -> tuple[OrbitSends, Rows, Rows]:
    """Mend sums as the copies that they are when time runs backwards."""
    forward, harm = mirrored(schedule.problem), turned_damage(damage)
    copies = backwards_in_time(schedule, forward)
    removed, added = _mend(forward, copies, harm)
    last = _finish(forward, harm, copies, added)
    base = schedule.sends.copy()
    base["start_ps"] += last - schedule.finish_ps
    return base, removed, forwards(schedule.problem, added, damage, last)


def _mend(problem: FabricProblem, sends: OrbitSends, damage: Damage) -> tuple[Rows, Rows]:
    """Return the images of copies to remove, and the sends to add."""
    sends = OrbitSchedule(problem=problem, sends=sends).sends
    transfers = transfers_of(problem, sends)
    nobody = np.empty(0, dtype=np.int64)
    gone = Removed(*removed_images(problem, sends, damage, transfers, nobody))
    removed = removed_rows(transfers, gone)
    if not len(removed):
        return removed, np.empty(0, dtype=ADDED_DTYPE)
    network = Network.of(problem, damage)
    calendars = Calendars.of(problem, sends, damage, gone)
    if problem.collective is Collective.ALLTOALL:
        return removed, rerouted(problem, network, transfers, gone, calendars)
    since = np.zeros(problem.num_chunk_orbits, dtype=np.int64)
    opened = calendars.opened(2 * len(removed))
    return removed, grafted(problem, network, transfers, gone, opened, since=since)
