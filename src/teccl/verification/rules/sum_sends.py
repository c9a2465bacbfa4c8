"""Rule: a GPU sends a partial sum only when everything in it is there."""

import numpy as np

from teccl._arrays import NEVER, BoolArray
from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check when each partial sum that is sent is made."""
    sends, timeline, sums = case.sends, case.timeline, case.sums
    if sums is None:
        return
    rows = np.flatnonzero(sends.from_gpu & (sends.carries >= 0))
    carried = sends.carries[rows]
    made = sums.made[carried]
    never = made == NEVER
    early = (timeline.start[rows] < made) & ~never
    own = sums.is_own[carried]

    def note(kind: ViolationKind, marked: BoolArray, text: str) -> None:
        wrong, due = rows[marked], made[marked]

        def detail(i: int) -> str:
            return text.format(
                gpu=case.node_name(sends.src[wrong[i]]),
                sum=sends.carries[wrong[i]],
                start=timeline.show(timeline.start[wrong[i]]),
                due=timeline.show(due[i]),
            )

        case.note_each(kind, wrong, detail)

    text = "{gpu} sends partial sum {sum} at {start} and can never make it"
    note(ViolationKind.NOT_HELD, never, text)
    text = "{gpu} sends its own contribution at {start}, which is ready at {due}"
    note(ViolationKind.NOT_READY, early & own, text)
    text = "{gpu} sends partial sum {sum} at {start}, which is complete at {due}"
    note(ViolationKind.TOO_EARLY, early & ~own, text)
