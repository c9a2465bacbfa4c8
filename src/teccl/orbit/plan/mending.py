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
from teccl.orbit.plan.overlapping import MendedHalf, one_after_the_other, overlapped
from teccl.orbit.plan.patching import Calendars, DamagedWays, Removed, grafted, rerouted
from teccl.orbit.plan.piecewise import (
    around,
    backwards_in_time,
    forwards,
    piecewise,
    removed_rows,
    turned_damage,
)
from teccl.orbit.plan.removing import removed_images, transfers_of
from teccl.orbit.plan.reversal import mirrored
from teccl.orbit.plan.ways import Ways
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends

# Pieces that an AllReduce is cut into around damage, and sends that may be listed then. A weak GPU
# is late by about a piece at either end, which costs that much where everybody waits for it: there
# are more then.
_PIECES, _MORE_PIECES = 16, 64
_LISTED = 2**20
# Ranks that are looked at for what is served again, all together; about a minute.
_WORK = 2**27
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
    """Yield mended AllReduces: half by half, and piece by piece."""
    sends, is_sum = schedule.sends, schedule.sends["reduce"]
    turn = int(schedule.arrival_ps[is_sum].max(initial=0))
    halves_apart = bool((sends["start_ps"][~is_sum] >= turn).all())
    if halves_apart:
        for patch in _mend_halves(schedule, damage, turn):
            yield _made(schedule, damage, *patch)
    weak, whole = (summarise(schedule.problem, x).physical_ps for x in (damage, None))
    is_bound = weak > whole
    pieces, rooms = (_MORE_PIECES, _ROOMS[:1]) if is_bound else (_PIECES, _ROOMS)
    owners = around(schedule.problem, damage, joined=not is_bound)
    count = schedule.problem.num_chunks
    work = _work(schedule.problem, damage, len(owners)) * count * len(rooms)
    most = min(pieces // count, _LISTED // len(sends), _WORK // work)
    if work > _WORK and halves_apart:
        return
    for room in rooms:
        # What takes longer for a weak GPU takes longer for all, evenly.
        plan = interleaved(schedule, max(1, most) if cut else 1, weak / whole - 1 + room)
        yield _made(plan, damage, *piecewise(plan, damage, owners))


def _work(problem: FabricProblem, damage: Damage, owners: int) -> int:
    """Ranks that are looked at for each piece: all that a switch joins for every rank served.

    About all ranks are served for each damaged link and each owner, in both halves.
    """
    joined = Ways.of(problem).left
    widest = int(np.bincount(joined[joined >= 0], minlength=1).max())
    return 2 * problem.fabric.num_gpus * (owners + len(damage.rates)) * max(1, widest)


def _mend_halves(
    schedule: OrbitSchedule, damage: Damage, turn: int
) -> Iterator[tuple[OrbitSends, Rows, Rows]]:
    """Mend a ReduceScatter and an AllGather, one after the other and overlapping."""
    halves = [
        replace(schedule.problem, collective=each)
        for each in (Collective.REDUCESCATTER, Collective.ALLGATHER)
    ]
    is_sum = schedule.sends["reduce"]
    plan, copies = (schedule.sends[x].copy() for x in (is_sum, ~is_sum))
    copies["start_ps"] -= turn
    base, gone, sums = _mend_backwards(OrbitSchedule(problem=halves[0], sends=plan), damage)
    delay = int(base["start_ps"].max()) - int(plan["start_ps"].max())
    gone_later, later = _mend(halves[1], copies, damage)
    begin = _finish(halves[0], damage, base, sums)
    first = MendedHalf(problem=halves[0], sends=plan, removed=gone, added=sums, delay=delay)
    second = MendedHalf(
        problem=halves[1], sends=copies, removed=gone_later, added=later, delay=begin
    )
    yield one_after_the_other(first, second)
    if len(gone) and len(gone_later):
        yield overlapped(first, second, damage)


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
    network = DamagedWays.of(problem, damage)
    calendars = Calendars.of(problem, sends, damage, gone)
    if problem.collective is Collective.ALLTOALL:
        return removed, rerouted(problem, network, transfers, gone, calendars)
    since = np.zeros(problem.num_chunk_orbits, dtype=np.int64)
    opened = calendars.opened(2 * len(removed))
    return removed, grafted(problem, network, transfers, gone, opened, since=since)
