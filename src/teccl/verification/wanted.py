"""Wanted: the pairs of chunk and destination that a demand asks for."""

from collections.abc import Iterator

import numpy as np

from teccl._arrays import IntArray, expand
from teccl.schedule.columns import Sends

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
