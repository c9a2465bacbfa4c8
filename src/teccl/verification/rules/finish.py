"""Rule: the finish that a schedule states is its last arrival."""

from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Compare the stated finish with the last arrival."""
    claimed, timeline = case.schedule.claimed_finish_ps, case.timeline
    finish = int(timeline.arrival.max(initial=0))
    if claimed is not None and claimed != finish:
        detail = f"states a finish of {timeline.show(claimed)}; it is {timeline.show(finish)}"
        time_s = timeline.seconds(finish)
        case.findings.add(ViolationKind.WRONG_FINISH, f"the schedule {detail}", time_s=time_s)
