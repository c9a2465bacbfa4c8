"""Mending: an orbit schedule patched around damaged links.

Images that use a damaged link are removed, and with them what their chunks do afterwards from
there; all others stay where they are. What is missing then is brought there over the time that
links have left.
"""

from dataclasses import replace

import numpy as np

from teccl.demand import Collective
from teccl.errors import MethodError
from teccl.orbit.damage import Damage
from teccl.orbit.patched import ADDED_DTYPE, REMOVED_DTYPE, PatchedSchedule, Rows, lengths
from teccl.orbit.plan.overlapping import MendedHalf, one_after_the_other, overlapped
from teccl.orbit.plan.patching import Calendars, Network, Removed, grafted, rerouted
from teccl.orbit.plan.removing import removed_images, transfers_of
from teccl.orbit.plan.reversal import mirrored, transposed, turned_back, turned_links
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends


def mended(schedule: OrbitSchedule, damage: Damage) -> PatchedSchedule:
    """Patch a plan of `solve_orbit` around damage.

    Raises
    ------
    MethodError
        If the schedule is not one that mending knows, or the damage leaves some GPU out of reach.
    """
    collective = schedule.problem.collective
    if schedule.problem.groups is not None:
        raise MethodError("groups of ranks are not patched around damage; plan them as tenants")
    if collective is Collective.REDUCESCATTER:
        base, removed, added = _mend_backwards(schedule.problem, schedule.sends, damage)
    elif collective is Collective.ALLREDUCE:
        base, removed, added = _mend_halves(schedule, damage)
    else:
        base = schedule.sends
        removed, added = _mend(schedule.problem, base, damage)
    plain = OrbitSchedule(problem=schedule.problem, sends=base, method=schedule.method)
    made = PatchedSchedule(
        base=plain, damage=damage, removed=removed, added=added, method="orbit-patched"
    )
    return replace(made, claimed_finish_ps=made.finish_ps)


def _finish(problem: FabricProblem, damage: Damage, base: OrbitSends, added: Rows) -> int:
    """When all sends have arrived, removed ones included."""
    last = OrbitSchedule(problem=problem, sends=base).finish_ps
    held, alpha = lengths(problem, damage, added["link"])
    return max(last, int((added["start_ps"] + held + alpha).max(initial=0)))


def _mend_backwards(
    problem: FabricProblem, sends: OrbitSends, damage: Damage
) -> tuple[OrbitSends, Rows, Rows]:
    """Mend sums as the copies that they are when time runs backwards."""
    turned = transposed(problem.fabric)
    forward = mirrored(problem)
    links = turned_links(problem.fabric, damage.links)
    rates = dict(zip(links.tolist(), damage.rates.values(), strict=True))
    harm = Damage(fabric=turned, rates=rates)
    whole = OrbitSchedule(problem=problem, sends=sends)
    copies = whole.sends.copy()
    copies["start_ps"] = whole.finish_ps - whole.arrival_ps
    copies["link"] = turned_links(problem.fabric, whole.sends["link"])
    removed, added = _mend(forward, copies, harm)
    last = _finish(forward, harm, copies, added)
    base = whole.sends.copy()
    base["start_ps"] += last - whole.finish_ps
    held, alpha = lengths(forward, harm, added["link"])
    back = added.copy()
    back["start_ps"] = last - (added["start_ps"] + held + alpha)
    back["link"] = turned_back(problem.fabric, added["link"])
    back["reduce"] = True
    return base, removed, back


def _mend_halves(schedule: OrbitSchedule, damage: Damage) -> tuple[OrbitSends, Rows, Rows]:
    """Mend a ReduceScatter and an AllGather, one after the other or overlapping."""
    sends, is_sum = schedule.sends, schedule.sends["reduce"]
    turn = int(schedule.arrival_ps[is_sum].max(initial=0))
    if (sends["start_ps"][~is_sum] < turn).any():
        raise MethodError("sums and copies of the plan overlap; plan it anew without --from")
    halves = [
        replace(schedule.problem, collective=each)
        for each in (Collective.REDUCESCATTER, Collective.ALLGATHER)
    ]
    plan, copies = sends[is_sum].copy(), sends[~is_sum].copy()
    copies["start_ps"] -= turn
    base, gone, sums = _mend_backwards(halves[0], plan, damage)
    delay = int(base["start_ps"].max()) - int(plan["start_ps"].max())
    gone_later, later = _mend(halves[1], copies, damage)
    begin = _finish(halves[0], damage, base, sums)
    first = MendedHalf(problem=halves[0], sends=plan, removed=gone, added=sums, delay=delay)
    second = MendedHalf(
        problem=halves[1], sends=copies, removed=gone_later, added=later, delay=begin
    )
    both = [one_after_the_other(first, second)]
    if len(gone) and len(gone_later):
        both.append(overlapped(first, second, damage))
    return min(both, key=lambda made: _finish(schedule.problem, damage, made[0], made[2]))


def _mend(problem: FabricProblem, sends: OrbitSends, damage: Damage) -> tuple[Rows, Rows]:
    """Return the images of copies to remove, and the sends to add."""
    sends = OrbitSchedule(problem=problem, sends=sends).sends
    transfers = transfers_of(problem, sends)
    gone = Removed(*removed_images(problem, sends, damage, transfers))
    removed = np.empty(len(gone.transfer), dtype=REMOVED_DTYPE)
    removed["transfer"], removed["element"] = transfers.number[gone.transfer], gone.element
    if not len(removed):
        return removed, np.empty(0, dtype=ADDED_DTYPE)
    network = Network.of(problem, damage)
    calendars = Calendars.of(problem, sends, damage, gone)
    serve = rerouted if problem.collective is Collective.ALLTOALL else grafted
    return removed, serve(problem, network, transfers, gone, calendars)
