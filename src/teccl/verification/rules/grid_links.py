"""Rule: in no epoch does a link carry more sends, or circuits need more of it, than it can."""

from fractions import Fraction

import numpy as np

from teccl._arrays import IntArray, scaled
from teccl.schedule.columns import Sends
from teccl.verification.case import Case
from teccl.verification.epochs import Epochs
from teccl.verification.overloads import overloads
from teccl.verification.transfers import Passing
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check what every link carries in any epoch."""
    sends, epochs = case.sends, case.epochs
    if epochs is None:
        return
    begin, capacity = epochs.timeline.start, epochs.capacity
    if case.transfers.passing is Passing.CIRCUIT:
        over = _circuit_overloads(sends, epochs)
    else:
        load = np.ones(len(sends), dtype=np.int64)
        over = overloads(sends.link, begin, begin + epochs.kappa, load, capacity)

    def detail(i: int) -> str:
        row = over[i]
        return f"its link carries more than {capacity[row]} in epoch {begin[row]}"

    case.note_each(ViolationKind.GRID_CAPACITY, over, detail)


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
