"""Contributions: whose data is in each partial sum, and what to call it."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from teccl.schedule.folding import ends_of_messages
from teccl.schedule.sends import Schedule
from teccl.schedule.timing import send_times

# Contributors that a name lists before it counts the rest.
_LISTED = 4


def contributions(schedule: Schedule) -> list[frozenset[int]]:
    """Return the nodes whose contributions are in each partial sum of a correct schedule."""
    sums, sends = schedule.sums, schedule.sends
    if sums is None:
        return []
    left, right = sums["left"].tolist(), sums["right"].tolist()
    arrival, made = send_times(schedule).arrival_ps, [-1] * len(sums)
    brought: dict[int, list[int]] = {}
    for root, leaf in zip(*ends_of_messages(schedule), strict=True):
        row = int(sends["becomes"][leaf])
        if row >= 0 and sends["carries"][root] >= 0:
            brought.setdefault(row, []).append(int(sends["carries"][root]))
            made[row] = int(arrival[leaf])
    for row, pair in enumerate(zip(left, right, strict=True)):
        if pair[0] >= 0:
            made[row] = max(made[pair[0]], made[pair[1]])
    found = [frozenset([node]) for node in sums["node"].tolist()]
    # What a row is made of is there before it, or stands before it in the table.
    for row in sorted(range(len(sums)), key=lambda row: (made[row], row)):
        parts = brought.get(row, [each for each in (left[row], right[row]) if each >= 0])
        if parts:
            found[row] = frozenset().union(*(found[part] for part in parts))
    return found


def carried_by(schedule: Schedule) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return names of what sends carry, and which of them each send does, -1 for none."""
    contents = contributions(schedule)
    names: dict[str, int] = {}
    carried = np.full(len(schedule), -1, dtype=np.int32)
    if schedule.sums is None:
        return [], carried
    for row, (carries, becomes) in enumerate(
        zip(schedule.sends["carries"].tolist(), schedule.sends["becomes"].tolist(), strict=True)
    ):
        number = carries if carries >= 0 else becomes
        if number >= 0:
            name = _name(schedule, contents[number])
            carried[row] = names.setdefault(name, len(names))
    return list(names), carried


def _name(schedule: Schedule, nodes: Collection[int]) -> str:
    listed = [schedule.problem.topology.nodes[node].name for node in sorted(nodes)]
    if len(listed) == 1:
        return f"the contribution of {listed[0]}"
    more = len(listed) - _LISTED
    tail = f" and {more} more" if more > 0 else ""
    return f"the sum of {', '.join(listed[:_LISTED])}{tail}"
