"""Judgement: whether an orbit schedule is correct, rule by rule."""

from dataclasses import replace

from teccl.errors import VerificationError
from teccl.orbit.judge.case import Case
from teccl.orbit.judge.patches import check_patch
from teccl.orbit.judge.rules import RULES
from teccl.orbit.patched import PatchedSchedule
from teccl.orbit.schedule import OrbitSchedule
from teccl.verification.violation import Violation

# Violations that an error message names.
_SHOWN = 3


def verify_orbit(
    schedule: OrbitSchedule | PatchedSchedule, *, strict: bool = False
) -> tuple[Violation, ...]:
    """Judge an orbit schedule with all its images, without listing them.

    A patched one is judged as the orbit schedule that it is made of first, and then, unless that
    is wrong already, by what the patch changes.

    Parameters
    ----------
    schedule
        Nothing but the schedule is used: lengths are computed anew from the fabric it carries.
    strict
        Raise instead of returning violations.

    Returns
    -------
    tuple of Violation
        Empty if and only if the schedule with every image listed is correct. Each speaks of the
        first chunk of an orbit and stands for its images.

    Raises
    ------
    VerificationError
        If `strict` and there are violations; it names the first few and holds all.
    """
    if isinstance(schedule, PatchedSchedule):
        case = _judged(replace(schedule.base, bound=None, claimed_finish_ps=None))
        case = case if case.found else check_patch(schedule, case)
    else:
        case = _judged(schedule)
    if strict and case.found:
        more = len(case.found) - _SHOWN
        text = "; ".join(str(each) for each in case.found[:_SHOWN])
        raise VerificationError(
            f"{text}{f' and {more} more' if more > 0 else ''}", tuple(case.found)
        )
    return tuple(case.found)


def _judged(schedule: OrbitSchedule) -> Case:
    """Apply all rules to the sends of first chunks."""
    case = Case.of(schedule)
    for rule in RULES:
        rule(case)
    return case
