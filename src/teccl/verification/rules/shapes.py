"""Rule: every transfer is one chunk on a tree from a GPU through switches to GPUs."""

import numpy as np

from teccl._arrays import IntArray
from teccl.verification.case import Case
from teccl.verification.transfers import mixed_transfers, separate_roots
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check how the hops of each transfer hang together."""
    sends, transfers = case.sends, case.transfers

    def note(kind: ViolationKind, rows: IntArray, text: str) -> None:
        case.note_each(kind, rows, lambda i: text.format(**hop(int(rows[i]))))

    def hop(row: int) -> dict[str, object]:
        ends = {"src": case.node_name(sends.src[row]), "dst": case.node_name(sends.dst[row])}
        return {**ends, "id": sends.transfer[row]}

    text = "transfer {id} mixes chunks or ops; give each its own id"
    note(ViolationKind.MIXED_TRANSFER, mixed_transfers(sends, transfers), text)
    text = "transfer {id} leaves gpu {src} apart from its other hops"
    note(ViolationKind.SEVERAL_ROOTS, separate_roots(sends, transfers), text)
    text = "leaves switch {src}, which its transfer {id} never enters"
    unpaired = np.flatnonzero(~sends.from_gpu & (transfers.leaves < 0))
    note(ViolationKind.UNPAIRED_HOP, unpaired, text)
    text = "enters switch {dst} and its transfer {id} never leaves it; a switch holds nothing"
    note(ViolationKind.LOST_IN_SWITCH, transfers.entry[transfers.num_out == 0], text)
    text = "transfer {id} goes round in a cycle of switches"
    note(ViolationKind.CYCLE, np.flatnonzero(transfers.level < 0), text)
