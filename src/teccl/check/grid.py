"""The grid's rules: epochs, recomputed here from the epoch's duration alone.

With chunk size b, epoch tau, rate C and latency alpha of a link: a send in epoch k holds the link
for kappa = ceil(b / (C tau)) epochs and is usable from epoch k + kappa + delta on, where
delta = ceil(alpha / tau), or 0 where alpha is at most a tenth of an epoch. At most
max(1, floor(C tau / b)) sends hold a link in any epoch.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from teccl.check import lengths
from teccl.check._arrays import IntArray, ints, overloads, scaled
from teccl.check.links import shared_uses
from teccl.check.sends import Sends
from teccl.check.timeline import Timeline
from teccl.check.transfers import Passing, Transfers
from teccl.check.violation import Findings, ViolationKind

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


def _kappa(size: Fraction, rate: Fraction, tau: Fraction) -> int:
    return lengths.ceiling(size / (rate * tau))


def _capacity(size: Fraction, rate: Fraction, tau: Fraction) -> int:
    return max(1, rate * tau // size)


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
    rates = [lengths.link_rate(topology, link) for link in topology.links]
    kappa = ints([_kappa(size, rate, tau) for rate in rates])[sends.link]
    capacity = ints([_capacity(size, rate, tau) for rate in rates])[sends.link]
    profiled = [i for i in np.unique(sends.link).tolist() if topology.links[i].profile]
    for link in profiled:
        rows = np.flatnonzero(sends.link == link)
        steps = lengths.link_steps(topology, topology.links[link])
        begins = ints([lengths.ceiling(begin / tau) for begin, _ in steps])
        step = np.searchsorted(begins, epoch[rows], side="right") - 1
        kappa[rows] = ints([_kappa(size, rate, tau) for _, rate in steps])[step]
        capacity[rows] = ints([_capacity(size, rate, tau) for _, rate in steps])[step]
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


def check_capacity(sends: Sends, transfers: Transfers, epochs: Epochs, findings: Findings) -> None:
    """Check that links and shared capacities carry no more than they can in any epoch."""
    if transfers.passing is Passing.CIRCUIT:
        over = _circuit_overloads(sends, epochs)
    else:
        load = np.ones(len(sends), dtype=np.int64)
        begin = epochs.timeline.start
        over = overloads(sends.link, begin, begin + epochs.kappa, load, epochs.capacity)

    def add(row: int) -> None:
        epoch = epochs.timeline.start[row]
        detail = f"its link carries more than {epochs.capacity[row]} in epoch {epoch}"
        epochs.timeline.note(findings, sends, ViolationKind.GRID_CAPACITY, row, detail)

    findings.add_each(ViolationKind.GRID_CAPACITY, over, add)
    if sends.problem.topology.shared:
        _check_shared(sends, epochs, findings)


def _circuit_overloads(sends: Sends, epochs: Epochs) -> IntArray:
    r"""Circuits that break :math:`\sum_c 1/\kappa_c \le cap_e / \kappa_e` on a link in an epoch."""
    kappas, index = np.unique(
        np.concatenate([epochs.timeline.held, epochs.kappa]), return_inverse=True
    )
    shares = scaled([Fraction(1, int(kappa)) for kappa in kappas], len(sends))[index]
    begin = epochs.timeline.start
    load, limit = shares[: len(sends)], shares[len(sends) :]
    if load.dtype != object and epochs.capacity.max(initial=0) * limit.max(initial=0) >= 2**62:
        limit = limit.astype(object)
    end = begin + epochs.timeline.held
    return overloads(sends.link, begin, end, load, limit * epochs.capacity)


def _check_shared(sends: Sends, epochs: Epochs, findings: Findings) -> None:
    """Check the starts on all links of a shared capacity within any kappa of its own rate."""
    topology, tau = sends.problem.topology, epochs.tau
    size, rates = sends.problem.chunk_bytes, list(topology.shared.values())
    kappa = ints([_kappa(size, rate, tau) for rate in rates])
    capacity = ints([_capacity(size, rate, tau) for rate in rates])
    rows, shared = shared_uses(topology, sends.link)
    begin = epochs.timeline.start[rows]
    load = np.ones(len(rows), dtype=np.int64)
    over = overloads(shared, begin, begin + kappa[shared], load, capacity[shared])
    names = list(topology.shared)

    def add(use: int) -> None:
        detail = f"{names[shared[use]]} carries more than {capacity[shared[use]]} in its epoch"
        kind = ViolationKind.GRID_SHARED_CAPACITY
        epochs.timeline.note(findings, sends, kind, int(rows[use]), detail)

    findings.add_each(ViolationKind.GRID_SHARED_CAPACITY, over, add)
