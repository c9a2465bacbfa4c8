"""Rule: a GPU sends a copied chunk only while it holds it."""

import numpy as np

from teccl._arrays import NEVER, BoolArray
from teccl.verification.arrivals import FirstArrivals
from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check that a GPU holds a copied chunk when it begins to send it."""
    sends, timeline = case.sends, case.timeline
    rows = np.flatnonzero(sends.from_gpu & ~sends.combines)
    arrivals = FirstArrivals.of(sends, timeline)
    received = arrivals.at(sends.keys(sends.chunk[rows], sends.src[rows]))
    is_source = sends.is_source(sends.chunk[rows], sends.src[rows])
    own = np.where(is_source, timeline.own_ready(sends, rows), NEVER)
    held_from = np.minimum(own, received)
    early = timeline.start[rows] < held_from
    never = held_from == NEVER
    unready = early & is_source & (own <= received)

    def note(kind: ViolationKind, marked: BoolArray, text: str) -> None:
        wrong, due = rows[marked], held_from[marked]

        def detail(i: int) -> str:
            return text.format(
                gpu=case.node_name(sends.src[wrong[i]]),
                start=timeline.show(timeline.start[wrong[i]]),
                due=timeline.show(due[i]),
            )

        case.note_each(kind, wrong, detail)

    if not timeline.is_grid:
        note(ViolationKind.NOT_HELD, never, "{gpu} sends it at {start} and never holds it")
    text = "{gpu} sends its own data at {start}, which is ready at {due}"
    note(ViolationKind.NOT_READY, unready, text)
    text = "{gpu} sends it at {start} but holds it from {due} on"
    note(ViolationKind.TOO_EARLY, early & ~unready & ~never, text)
