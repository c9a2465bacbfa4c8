"""Rule: a link carries one send at a time or, where sends are circuits, no more than its rate."""

import numpy as np

from teccl._arrays import scaled
from teccl.verification import durations as lengths
from teccl.verification.case import Case
from teccl.verification.overloads import overloads
from teccl.verification.transfers import Passing
from teccl.verification.uses import Uses
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check what every link carries at any time."""
    if case.transfers.passing is Passing.CIRCUIT:
        _check_circuits(case)
    else:
        _check_alone(case)


def _check_alone(case: Case) -> None:
    """Check that the sends on each link follow one another."""
    sends, timeline = case.sends, case.timeline
    clashes = Uses(np.arange(len(sends)), sends.link).clashes(timeline)

    def detail(i: int) -> str:
        other = clashes.earlier[i]
        until = timeline.show(int(timeline.start[other] + timeline.held[other]))
        begins = timeline.show(int(timeline.start[clashes.later[i]]))
        holder = f"by chunk {sends.chunk[other]} until {until}"
        return f"begins at {begins} while the link is held {holder}"

    case.note_each(ViolationKind.OVERLAP, clashes.later, detail)


def _check_circuits(case: Case) -> None:
    """Check that the rates of the circuits on each link sum to at most its bandwidth."""
    sends, transfers, timeline = case.sends, case.transfers, case.timeline
    rates = [lengths.link_rate(case.topology, link) for link in case.topology.links]
    rate = scaled(rates, len(sends))[sends.link]
    slowest = np.full(len(transfers.root), rate.max(initial=0), dtype=rate.dtype)
    np.minimum.at(slowest, transfers.index, rate)
    end = timeline.start + timeline.held
    over = overloads(sends.link, timeline.start, end, slowest[transfers.index], rate)
    detail = "the circuits on the link from here on need more than its bandwidth"
    case.note_each(ViolationKind.OVERLOAD, over, lambda _: detail)
