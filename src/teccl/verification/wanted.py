"""Wanted: the pairs of chunk and destination that a demand asks for, and those that lack sums."""

from collections.abc import Iterator

import numpy as np

from teccl._arrays import IntArray, expand
from teccl.schedule.columns import Sends
from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind

# Wanted pairs of chunk and node that are looked at together.
_BLOCK = 4_000_000


def wanted_pairs(sends: Sends, chunks: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield blocks of pairs (chunk, destination); a whole demand may be too large for memory."""
    sets = sends.problem.chunks.destination_set[chunks]
    size = sends.sets.size[sets]
    block = np.cumsum(size) // _BLOCK
    for number in np.unique(block):
        here = slice(*np.searchsorted(block, [number, number + 1]))
        members = expand(sends.sets.first(sets[here]), size[here])
        yield np.repeat(chunks[here], size[here]), sends.sets.members[members]


def add_unmet(
    case: Case,
    kind: ViolationKind,
    pairs: tuple[IntArray, IntArray],
    has: IntArray,
    needs: IntArray,
) -> bool:
    """Note pairs of chunk and node with too few contributions; return whether these are enough."""
    chunk, node = pairs

    def add(i: int) -> None:
        detail = f"{case.node_name(node[i])} ends with {has[i]} of {needs[i]} contributions"
        case.findings.add(kind, detail, chunk=int(chunk[i]))

    case.findings.add_each(kind, np.flatnonzero(has != needs), add)
    return case.findings.is_full(kind)
