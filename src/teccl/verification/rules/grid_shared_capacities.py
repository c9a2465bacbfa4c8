"""Rule: links that share a capacity begin no more sends in its kappa epochs than it can carry."""

from fractions import Fraction

import numpy as np

from teccl._arrays import ints
from teccl.verification.case import Case
from teccl.verification.epochs import capacity_of, kappa_of
from teccl.verification.overloads import overloads
from teccl.verification.uses import shared_uses
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check the starts on all links of a shared capacity within any kappa of its own rate."""
    topology, epochs = case.topology, case.epochs
    if epochs is None or not topology.shared:
        return
    holds = [_least_hold(case, name) for name in topology.shared]
    kappa = ints([kappa_of(hold, epochs.tau) for hold in holds])
    capacity = ints([capacity_of(hold, epochs.tau) for hold in holds])
    rows, shared = shared_uses(topology, case.sends.link)
    begin = epochs.timeline.start[rows]
    load = np.ones(len(rows), dtype=np.int64)
    over = overloads(shared, begin, begin + kappa[shared], load, capacity[shared])
    names = list(topology.shared)

    def detail(i: int) -> str:
        place = shared[over[i]]
        return f"{names[place]} carries more than {capacity[place]} in its epoch"

    case.note_each(ViolationKind.GRID_SHARED_CAPACITY, rows[over], detail)


def _least_hold(case: Case, name: str) -> Fraction:
    """Seconds for which a chunk holds a shared capacity: at its rate, the least overhead of all."""
    topology = case.topology
    overheads = [link.overhead for link in topology.links if name in link.shares]
    return min(overheads, default=Fraction(0)) + case.problem.chunk_bytes / topology.shared[name]
