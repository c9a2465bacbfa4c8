"""Rule: a result made of partial sums has every contribution in it exactly once."""

from collections.abc import Callable
from functools import partial

import numpy as np

from teccl._arrays import NEVER
from teccl.verification.carried import Origins
from teccl.verification.case import Case
from teccl.verification.sum_origins import PartialSums
from teccl.verification.violation import ViolationKind
from teccl.verification.wanted import add_unmet, wanted_pairs


def check(case: Case) -> None:
    """Find out what every partial sum contains, and judge additions and results."""
    if case.sums is None:
        return
    content = _contents(case, case.sums)
    _check_results(case, case.sums, content)


def _contents(case: Case, sums: PartialSums) -> list[int]:
    """Return the contributions in each partial sum as the bits of an integer."""
    sends = case.sends
    origins = Origins(sends, case.transfers)
    bit = sends.source_position(sums.chunk, sums.node).tolist()
    carries, left, right = sends.carries.tolist(), sums.left.tolist(), sums.right.tolist()
    arrives_by = sums.arrives_by.tolist()
    content, chunk = [0] * len(sums), sums.chunk.tolist()

    def part(row: int, of: int) -> int:
        # Contributors are counted by chunk; what is of another one is found elsewhere.
        return content[of] if of >= 0 and chunk[of] == chunk[row] else 0

    for row in np.lexsort((np.arange(len(sums)), sums.made)).tolist():
        send = arrives_by[row]
        if left[row] >= 0:
            content[row] = _added(case, row, part(row, left[row]), part(row, right[row]))
        elif send >= 0:
            content[row] = origins.value(
                send,
                partial(_carried, part, row, carries),
                partial(_merged, case, row),
            )
        elif bit[row] >= 0 and sums.made[row] < NEVER:
            content[row] = 1 << bit[row]
    return content


def _carried(part: Callable[[int, int], int], row: int, carries: list[int], root: int) -> int:
    """Return what a send that leaves a GPU has for an arrival."""
    return part(row, carries[root])


def _merged(case: Case, row: int, _: int, entering: list[int]) -> int:
    """Return what leaves a switch that merges."""
    total = 0
    for each in entering:
        total = _added(case, row, total, each)
    return total


def _added(case: Case, row: int, one: int, other: int) -> int:
    """Return the union of two sets of contributions, which have none in common."""
    if one & other and case.sums is not None:
        chunk, gpu = int(case.sums.chunk[row]), case.node_name(case.sums.node[row])
        twice = one & other
        sources = case.problem.chunks.sources(chunk)
        whose = case.node_name(sources[(twice & -twice).bit_length() - 1])
        more = f" and {twice.bit_count() - 1} more" if twice.bit_count() > 1 else ""
        detail = f"partial sum {row} at {gpu} adds the contribution of {whose}{more} twice"
        made = case.sums.made[row]
        time_s = None if made == NEVER else case.timeline.seconds(made)
        case.findings.add(ViolationKind.DOUBLE_REDUCTION, detail, chunk=chunk, time_s=time_s)
    return one | other


def _check_results(case: Case, sums: PartialSums, content: list[int]) -> None:
    """Check that every destination has a result with all contributions."""
    sends, table = case.sends, case.problem.chunks
    rows = np.flatnonzero(sums.is_result)
    count = {
        (int(sums.chunk[row]), int(sums.node[row])): content[row].bit_count()
        for row in rows.tolist()
    }
    kind = ViolationKind.UNMET_DEMAND
    for chunk, node in wanted_pairs(sends, np.flatnonzero(table.reduce & sends.sum_chunks)):
        needs = sends.sets.size[table.source_set[chunk]]
        pairs = zip(chunk.tolist(), node.tolist(), strict=True)
        has = np.array([count.get(pair, 0) for pair in pairs], dtype=np.int64)
        if add_unmet(case, kind, (chunk, node), has, needs):
            return
