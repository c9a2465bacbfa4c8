"""Rule: a schedule does not finish earlier than it says that any schedule can."""

from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Compare the stated bound with the last arrival."""
    if case.schedule.bound is None:
        return
    timeline, bound = case.timeline, case.schedule.bound.physical_ps
    finish = int(timeline.arrival.max(initial=0))
    # Every send may be rounded by a picosecond.
    if bound > finish + len(case.sends):
        detail = f"nothing ends before {timeline.show(bound)}; it ends at {timeline.show(finish)}"
        time_s = timeline.seconds(finish)
        text = f"the schedule states that {detail}"
        case.findings.add(ViolationKind.WRONG_BOUND, text, time_s=time_s)
