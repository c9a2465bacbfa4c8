"""Piecewise: an AllReduce whose sums and copies have links at the same time, patched around damage.

Sums are mended first, backwards in time: the copies of each chunk keep the moment at which they
begin, and what damage makes longer is sent sooner, before the plan begins if need be. Copies are
mended beside that and come later. Chunks of ranks around the damage grow anew altogether, so that
these send and add up less for others.
"""

from dataclasses import replace

import numpy as np

from teccl._arrays import IntArray, distinct
from teccl.demand import Collective
from teccl.orbit.damage import Damage
from teccl.orbit.patched import REMOVED_DTYPE, Rows, lengths
from teccl.orbit.plan.growing import parts
from teccl.orbit.plan.patching import Calendars, DamagedWays, Removed, grafted
from teccl.orbit.plan.removing import Deliveries, removed_images, transfers_of
from teccl.orbit.plan.reversal import mirrored, transposed, turned_back, turned_links
from teccl.orbit.plan.ways import Ways
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends

# What holding a damaged link costs beside another: whoever can do without it has to.
_WEIGHT = 64


def piecewise(
    plan: OrbitSchedule, damage: Damage, owners: IntArray
) -> tuple[OrbitSends, Rows, Rows]:
    """Return the plan's sends, the images to remove and the sends to add.

    Parameters
    ----------
    owners
        Ranks whose chunks grow anew altogether, see `around`.

    Raises
    ------
    MethodError
        If some rank gets a chunk twice in the plan, or the damage leaves one out of reach.
    """
    problem, total, sends = plan.problem, plan.finish_ps, plan.sends
    back = mirrored(replace(problem, collective=Collective.REDUCESCATTER))
    ahead = replace(problem, collective=Collective.ALLGATHER)
    harm, backward = turned_damage(damage), backwards_in_time(plan, back)
    is_copy = ~sends["reduce"]
    begin = np.full(problem.num_chunk_orbits, total)
    np.minimum.at(begin, sends["chunk"][is_copy], sends["start_ps"][is_copy])

    sums, copies = backward[backward["reduce"]], sends[is_copy]
    summed, copied = transfers_of(back, sums), transfers_of(ahead, copies)
    fewer = Removed(*removed_images(back, sums, harm, summed, owners))
    later = Removed(*removed_images(ahead, copies, damage, copied, owners))
    removed = np.concatenate([removed_rows(summed, fewer), removed_rows(copied, later)])
    place = np.searchsorted(np.unique(sends["transfer"]), removed["transfer"])
    gone, room = Removed(place, removed["element"].copy()), 2 * len(removed)

    here = Calendars.of(back, backward, harm, gone).opened(room)
    network = DamagedWays.of(back, harm, _WEIGHT)
    first = grafted(back, network, summed, fewer, here, since=total - begin)
    first = forwards(problem, first, damage, total)
    second = _copied(ahead, sends, damage, (copied, later, gone), (first, begin))
    added = np.concatenate([first, second])
    shift = max(0, -int(added["start_ps"].min(initial=0)))
    added["start_ps"] += shift
    base = sends.copy()
    base["start_ps"] += shift
    return base, removed, added


def _copied(
    problem: FabricProblem,
    sends: OrbitSends,
    damage: Damage,
    lost: tuple[Deliveries, Removed, Removed],
    before: tuple[Rows, IntArray],
) -> Rows:
    """Bring copies again to who lacks them, beside the sums that were added and after them."""
    from teccl.orbit.plan.retiming import hold_all

    (transfers, removed, gone), (sums, begin) = lost, before
    network = DamagedWays.of(problem, damage, _WEIGHT)
    room = 2 * len(gone.transfer) + len(sums)
    here = Calendars.of(problem, sends, damage, gone).opened(room)
    hold_all(sums["link"], sums["start_ps"], network.lengths, here)
    added = grafted(problem, network, transfers, removed, here, since=begin)
    added["transfer"] += sums["transfer"].max(initial=-1) + 1
    return added


def around(problem: FabricProblem, damage: Damage, *, joined: bool) -> IntArray:
    """Ranks with damaged links, and those that cheaper ways than these join to them.

    Parameters
    ----------
    joined
        Whether to look for others: a chassis that has lost a link has less for all of its GPUs.
        Where everybody waits for a weak GPU the others have time enough.
    """
    fabric, ways = problem.fabric, Ways.of(problem)
    orbit, ends = fabric.link_orbit(damage.links), fabric.link_ends(damage.links)
    gpus = np.unique(ends)
    found = [gpus[gpus < fabric.num_gpus]]
    for number, *pair in zip(orbit.tolist(), *(end.tolist() for end in ends), strict=True):
        for way in np.flatnonzero((ways.steps == number).any(axis=1) & joined).tolist():
            part = parts(ways, way, ways.holds < ways.holds[way])
            found += [np.flatnonzero(part == part[x]) for x in pair if x < fabric.num_gpus]
    return distinct(np.concatenate(found))


def turned_damage(damage: Damage) -> Damage:
    """Return the damage of the fabric with all links turned round."""
    links = turned_links(damage.fabric, damage.links)
    rates = dict(zip(links.tolist(), damage.rates.values(), strict=True))
    return Damage(fabric=transposed(damage.fabric), rates=rates)


def backwards_in_time(plan: OrbitSchedule, problem: FabricProblem) -> OrbitSends:
    """Return the sends of a plan on the fabric turned round, from its end on backwards."""
    sends = plan.sends.copy()
    sends["start_ps"] = plan.finish_ps - plan.arrival_ps
    sends["link"] = turned_links(plan.fabric, plan.sends["link"])
    return OrbitSchedule(problem=problem, sends=sends).sends


def forwards(problem: FabricProblem, added: Rows, damage: Damage, total: int) -> Rows:
    """Return sums that were added backwards in time, which ran from some moment on."""
    back = added.copy()
    back["link"] = turned_back(problem.fabric, added["link"])
    held, alpha = lengths(problem, damage, back["link"])
    back["start_ps"] = total - (added["start_ps"] + held + alpha)
    back["reduce"] = True
    return back


def removed_rows(transfers: Deliveries, gone: Removed) -> Rows:
    """Removed images by the numbers of their transfers."""
    removed = np.empty(len(gone.transfer), dtype=REMOVED_DTYPE)
    removed["transfer"], removed["element"] = transfers.number[gone.transfer], gone.element
    return removed
