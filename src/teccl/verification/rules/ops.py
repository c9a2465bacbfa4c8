"""Rule: nothing is reduced into a chunk that is not a reduction."""

import numpy as np

from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check the ops of sends of copied chunks."""
    wrong = np.flatnonzero(case.sends.is_reduce & ~case.sends.combines)
    detail = "op reduce on a chunk that is copied; use op copy"
    case.note_each(ViolationKind.WRONG_OP, wrong, lambda _: detail)
