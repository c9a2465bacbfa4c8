"""Rule: a switch holds nothing, so what enters it leaves at the moment the transit mode says."""

import numpy as np

from teccl._arrays import NEVER
from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check when the sends of each passage leave."""
    sends, transfers, timeline = case.sends, case.transfers, case.timeline
    count = len(transfers.num_in)
    if not count:
        return
    into = np.flatnonzero(transfers.enters >= 0)
    earliest, latest = np.full(count, NEVER), np.full(count, -1)
    np.minimum.at(earliest, transfers.enters[into], timeline.handoff[into])
    np.maximum.at(latest, transfers.enters[into], timeline.handoff[into])
    out = np.flatnonzero(transfers.leaves >= 0)
    passage, start = transfers.leaves[out], timeline.start[out]
    wrong = out[(start != earliest[passage]) | (start != latest[passage])]

    def detail(i: int) -> str:
        row = wrong[i]
        early, late = earliest[transfers.leaves[row]], latest[transfers.leaves[row]]
        due = timeline.show(early)
        if late != early:
            due += f" to {timeline.show(late)}, where all must come at one instant"
        switch, at = case.node_name(sends.src[row]), timeline.show(timeline.start[row])
        return f"leaves switch {switch} at {at}; due at {due}"

    case.note_each(ViolationKind.SWITCH_TIMING, wrong, detail)
