"""Rule: where a schedule claims it, all destinations evaluate one tree of additions.

Trees that differ by commutation only are one: floating-point addition is commutative, so that the
results have the same bits.
"""

from collections.abc import Iterator

import numpy as np

from teccl._arrays import NEVER
from teccl.verification.addition_trees import Trees
from teccl.verification.carried import Origins
from teccl.verification.case import Case
from teccl.verification.rules.reductions import accumulated_trees
from teccl.verification.sum_origins import PartialSums
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Compare the trees of all destinations of each chunk."""
    if not case.schedule.same_order:
        return
    kind = ViolationKind.UNEQUAL_ORDER
    for chunk, (one, other) in differing_chunks(case).items():
        names = f"{case.node_name(one)} and {case.node_name(other)}"
        case.findings.add(kind, f"{names} add in different orders", chunk=chunk)


def differing_chunks(case: Case) -> dict[int, tuple[int, int]]:
    """Return the chunks whose destinations add in different orders, with two such nodes each."""
    first: dict[int, tuple[int, int]] = {}
    differing: dict[int, tuple[int, int]] = {}
    for chunk, node, tree in _results(case):
        other, known = first.setdefault(chunk, (node, tree))
        if tree != known:
            differing.setdefault(chunk, (other, node))
    return differing


def _results(case: Case) -> Iterator[tuple[int, int, int]]:
    """Yield chunk, destination and tree of each result of a sum."""
    trees = Trees()
    yield from accumulated_trees(case, trees)
    sums = case.sums
    if sums is None:
        return
    numbers = _sum_trees(case, sums, trees)
    rows = np.flatnonzero(sums.is_result)
    yield from zip(
        sums.chunk[rows].tolist(),
        sums.node[rows].tolist(),
        [numbers[row] for row in rows.tolist()],
        strict=True,
    )


def _sum_trees(case: Case, sums: PartialSums, trees: Trees) -> list[int]:
    """Return the tree of each partial sum."""
    sends = case.sends
    origins = Origins(sends, case.transfers)
    bit = sends.source_position(sums.chunk, sums.node).tolist()
    carries, arrives_by = sends.carries.tolist(), sums.arrives_by.tolist()
    left, right = sums.left.tolist(), sums.right.tolist()
    tree = [0] * len(sums)

    def merged(passage: int, entering: list[int]) -> int:
        # A switch adds more than two in an order of its own, the same for all that leave it.
        if len(entering) > 2:
            return trees.unknown("switch", passage)
        return trees.joined(*entering) if len(entering) == 2 else sum(entering)

    for row in np.lexsort((np.arange(len(sums)), sums.made)).tolist():
        if left[row] >= 0:
            tree[row] = trees.joined(tree[left[row]], tree[right[row]])
        elif arrives_by[row] >= 0:
            tree[row] = origins.value(
                arrives_by[row],
                lambda root: tree[carries[root]] if carries[root] >= 0 else 0,
                merged,
            )
        elif bit[row] >= 0 and sums.made[row] < NEVER:
            tree[row] = trees.own(bit[row])
    return tree
