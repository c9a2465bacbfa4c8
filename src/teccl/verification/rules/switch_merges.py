"""Rule: only a switch that reduces combines what enters it, and only sums."""

import numpy as np

from teccl.verification.case import Case
from teccl.verification.transfers import Passing
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check the passages that several sends of a transfer enter."""
    sends, transfers = case.sends, case.transfers
    reduces = np.array([node.reduce for node in case.topology.nodes], dtype=bool)
    allowed = reduces[sends.dst[transfers.entry]] & sends.is_reduce[transfers.entry]
    allowed &= transfers.passing is not Passing.HYPER_EDGE
    rows = transfers.entry[(transfers.num_in > 1) & ~allowed]

    def detail(i: int) -> str:
        switch, name = case.node_name(sends.dst[rows[i]]), sends.transfer[rows[i]]
        return f"transfer {name} enters switch {switch} more than once, which may not merge it"

    case.note_each(ViolationKind.ILLEGAL_MERGE, rows, detail)
