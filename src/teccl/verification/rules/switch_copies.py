"""Rule: a switch sends an arrival on several outputs only where switches copy."""

from teccl.keywords import SwitchMode
from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check the passages that several sends of a transfer leave."""
    if case.problem.switch is SwitchMode.COPY and case.problem.copy:
        return
    rows = case.transfers.entry[case.transfers.num_out > 1]

    def detail(i: int) -> str:
        switch, name = case.node_name(case.sends.dst[rows[i]]), case.sends.transfer[rows[i]]
        return f"transfer {name} leaves switch {switch} more than once; switches do not copy here"

    case.note_each(ViolationKind.SWITCH_COPY, rows, detail)
