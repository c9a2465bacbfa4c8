"""Rule: every partial sum is a GPU's own contribution, one arrival or one addition there."""

import numpy as np

from teccl._arrays import BoolArray, IntArray, new_run
from teccl.verification.case import Case
from teccl.verification.sum_origins import PartialSums
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check what sends and partial sums say of each other."""
    if case.sums is None:
        return
    _check_sends(case, case.sums)
    _check_rows(case, case.sums)
    _check_single(case, case.sums)


def _check_sends(case: Case, sums: PartialSums) -> None:
    """Check what sends say that they carry and become."""
    sends = case.sends
    sides = (
        ("carries", sends.carries, sends.src, sends.from_gpu),
        ("becomes", sends.becomes, sends.dst, sends.to_gpu),
    )
    for verb, row, node, at_gpu in sides:
        named = row >= 0
        silent = np.flatnonzero(~named & at_gpu & sends.in_sums)
        _note(case, silent, f"does not say which partial sum it {verb}")
        _note(case, np.flatnonzero(named & ~at_gpu), f"{verb} a partial sum at a switch")
        here = np.flatnonzero(named & at_gpu)
        differs = (sums.chunk[row[here]] != sends.chunk[here]) | (
            sums.node[row[here]] != node[here]
        )
        _note(case, here[differs], f"{verb} a partial sum of another chunk or gpu")
    merges = case.transfers.num_roots[case.transfers.index] > 1
    wrong = np.flatnonzero(sends.in_sums & sends.is_reduce & ~merges)
    text = "op reduce on a partial sum that no switch merges; use op copy and an addition"
    case.note_each(ViolationKind.WRONG_OP, wrong, lambda _: text)


def _check_rows(case: Case, sums: PartialSums) -> None:
    """Check that each partial sum can come from where it says."""
    sends = case.sends
    _note_rows(case, ~case.problem.chunks.reduce[sums.chunk], "belongs to a chunk that is no sum")
    _note_rows(case, sums.num_arrivals > 1, "is what several sends become")
    _note_rows(case, (sums.num_arrivals > 0) & sums.is_added, "arrives and is added as well")
    is_source = sends.is_source(sums.chunk, sums.node)
    text = "is neither added nor received, and its gpu contributes nothing"
    _note_rows(case, sums.is_own & ~is_source, text)
    _note_rows(case, sums.is_own & (sums.slot > 0), "is its gpu's own; keep it in slot 0")
    foreign = np.zeros(len(sums), dtype=bool)
    for side in (sums.left, sums.right):
        foreign |= sums.is_added & (sums.chunk[side] != sums.chunk)
        foreign |= sums.is_added & (sums.node[side] != sums.node)
    _note_rows(case, foreign, "adds partial sums of another chunk or gpu")
    unwanted = sums.is_result & ~sends.is_wanted(sums.chunk, sums.node)
    _note_rows(case, unwanted, "is the result for a gpu that wants none")


def _check_single(case: Case, sums: PartialSums) -> None:
    """Check that a GPU has one own contribution and one result of a chunk."""
    for marked, text in (
        (sums.is_own, "is a second own contribution of its gpu"),
        (sums.is_result, "is a second result at its gpu"),
    ):
        rows = np.flatnonzero(marked)
        rows = rows[np.lexsort((rows, sums.node[rows], sums.chunk[rows]))]
        again = np.zeros(len(sums), dtype=bool)
        again[rows[~new_run(sums.chunk[rows], sums.node[rows])]] = True
        _note_rows(case, again, text)


def _note(case: Case, rows: IntArray, text: str) -> None:
    case.note_each(ViolationKind.WRONG_SUM, rows, lambda _: text)


def _note_rows(case: Case, marked: BoolArray, text: str) -> None:
    """Note partial sums by their rows."""
    sums = case.sums

    def add(row: int) -> None:
        if sums is not None:
            detail = f"partial sum {row} at {case.node_name(sums.node[row])} {text}"
            case.findings.add(ViolationKind.WRONG_SUM, detail, chunk=int(sums.chunk[row]))

    case.findings.add_each(ViolationKind.WRONG_SUM, np.flatnonzero(marked), add)
