"""Epochs of sends on a grid, recomputed here from the epoch's duration alone.

With chunk size b, epoch tau, rate C, overhead o and latency alpha of a link: a send in epoch k
holds the link for kappa = ceil((o + b / C) / tau) epochs and is usable from epoch k + kappa + delta
on, where delta = ceil(alpha / tau), or 0 where alpha is at most a tenth of an epoch. At most
max(1, floor(tau / (o + b / C))) sends hold a link in any epoch.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from teccl._arrays import IntArray, ints, scaled
from teccl.schedule.columns import Sends
from teccl.verification import durations as lengths
from teccl.verification.timeline import Timeline
from teccl.verification.transfers import Passing, Transfers

_NEGLIGIBLE = Fraction(1, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """Epochs of all sends.

    Parameters
    ----------
    timeline
        When sends begin, pass switches and are usable.
    kappa, capacity
        Per send, epochs it holds its own link if nothing slower lies on its way, and sends that
        the link carries at a time.
    tau
        Seconds of an epoch.
    """

    timeline: Timeline
    kappa: IntArray
    capacity: IntArray
    tau: Fraction


def kappa_of(seconds: Fraction, tau: Fraction) -> int:
    """Epochs for which a send that takes so many seconds holds a link."""
    return lengths.ceiling(seconds / tau)


def capacity_of(seconds: Fraction, tau: Fraction) -> int:
    """Sends of so many seconds that a link carries at a time."""
    return max(1, tau // seconds)


def _delta(alpha: Fraction, tau: Fraction) -> int:
    return 0 if alpha <= _NEGLIGIBLE * tau else lengths.ceiling(alpha / tau)


def epochs_of(sends: Sends, transfers: Transfers, epoch: IntArray, tau: Fraction) -> Epochs:
    """Lay the grid over sends that begin in given epochs."""
    topology = sends.problem.topology
    kappa, capacity = _send_epochs(sends, epoch, tau)
    delta = ints([_delta(link.alpha, tau) for link in topology.links])[sends.link]
    held = kappa
    if transfers.passing is not Passing.STORE:
        held = transfers.longest(kappa)
    usable = epoch + held + delta
    handoff = usable
    if transfers.passing is Passing.CIRCUIT:
        handoff = epoch + delta
    if transfers.passing is Passing.HYPER_EDGE:
        usable = epoch + held + _delta_of_way(sends, transfers, tau)
        handoff = epoch
    timeline = Timeline(
        start=epoch,
        held=held,
        arrival=usable,
        handoff=handoff,
        ready=lengths.ready_times(topology, sends.problem.demand.tenants, tau),
        unit=tau,
        is_grid=True,
    )
    return Epochs(timeline=timeline, kappa=kappa, capacity=capacity, tau=tau)


def _send_epochs(sends: Sends, epoch: IntArray, tau: Fraction) -> tuple[IntArray, IntArray]:
    """Kappa and capacity of each send's link in its epoch."""
    size, topology = sends.problem.chunk_bytes, sends.problem.topology
    holds = [link.overhead + size / lengths.link_rate(topology, link) for link in topology.links]
    kappa = ints([kappa_of(hold, tau) for hold in holds])[sends.link]
    capacity = ints([capacity_of(hold, tau) for hold in holds])[sends.link]
    profiled = [i for i in np.unique(sends.link).tolist() if topology.links[i].profile]
    for link in profiled:
        rows = np.flatnonzero(sends.link == link)
        steps = lengths.link_steps(topology, topology.links[link])
        begins = ints([lengths.ceiling(begin / tau) for begin, _ in steps])
        step = np.searchsorted(begins, epoch[rows], side="right") - 1
        holds = [topology.links[link].overhead + size / rate for _, rate in steps]
        kappa[rows] = ints([kappa_of(hold, tau) for hold in holds])[step]
        capacity[rows] = ints([capacity_of(hold, tau) for hold in holds])[step]
    return kappa, capacity


def _delta_of_way(sends: Sends, transfers: Transfers, tau: Fraction) -> IntArray:
    """Delta of the summed latency from the root of each send's transfer to its far end."""
    topology = sends.problem.topology
    # The epoch itself is scaled along, as the unit in which the sums are read back.
    alphas = scaled([*(link.alpha for link in topology.links), tau], topology.num_nodes)
    total = transfers.along_way(alphas[:-1][sends.link])
    sums, index = np.unique(total, return_inverse=True)
    epoch = int(alphas[-1])
    return ints([_delta(Fraction(int(s), epoch), Fraction(1)) for s in sums])[index]
