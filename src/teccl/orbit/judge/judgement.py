"""Judgement: whether an orbit schedule is correct, rule by rule."""

from teccl.errors import VerificationError
from teccl.orbit.judge.case import Case
from teccl.orbit.judge.rules import RULES
from teccl.orbit.schedule import OrbitSchedule
from teccl.verification.violation import Violation

# Violations that an error message names.
_SHOWN = 3


def verify_orbit(schedule: OrbitSchedule, *, strict: bool = False) -> tuple[Violation, ...]:
    """Judge an orbit schedule with all its images, without listing them.

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
    case = Case.of(schedule)
    for rule in RULES:
        rule(case)
    if strict and case.found:
        more = len(case.found) - _SHOWN
        text = "; ".join(str(each) for each in case.found[:_SHOWN])
        raise VerificationError(
            f"{text}{f' and {more} more' if more > 0 else ''}", tuple(case.found)
        )
    return tuple(case.found)
