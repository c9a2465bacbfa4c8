"""Transfers: how the hops with one transfer id hang together.

A *passage* is one transfer crossing one switch: the hops that enter it and the hops that leave it.
A transfer is a tree of hops joined at passages. Its roots leave GPUs, its leaves enter GPUs.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from teccl._arrays import IntArray, NumberArray, expand, new_run
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.schedule.columns import Sends
from teccl.schedule.ordering import order_by

# Numbers are many if they are more than one in so many.
_MANY = 16


class Passing(StrEnum):
    """How a transfer goes through switches."""

    STORE = "store-and-forward"
    CIRCUIT = "cut-through"
    HYPER_EDGE = "hyper-edge"


def passing_of(problem: Problem) -> Passing:
    """How switches are passed in a problem; without switches every mode means the same."""
    if problem.topology.num_switches == 0:
        return Passing.STORE
    if problem.switch is SwitchMode.HYPER_EDGE:
        return Passing.HYPER_EDGE
    return Passing.CIRCUIT if problem.transit is Transit.CUT_THROUGH else Passing.STORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """The shape of all transfers of a schedule.

    Parameters
    ----------
    passing
        How switches are passed.
    index
        Number of each send's transfer, counted without gaps.
    enters, leaves
        Passage that a send enters or leaves, -1 where it does not.
    level
        Switches between a send and the GPU its way began at, -1 on a cycle.
    num_in, num_out
        Sends that enter and leave each passage.
    entry
        One send that enters each passage.
    num_roots, root
        Per transfer, sends that leave a GPU and one of them, -1 where there is none.
    """

    passing: Passing
    index: IntArray
    enters: IntArray
    leaves: IntArray
    level: IntArray
    num_in: IntArray
    num_out: IntArray
    entry: IntArray
    num_roots: IntArray
    root: IntArray

    @staticmethod
    def of(sends: Sends) -> "Transfers":
        """Tie the hops of each transfer together."""
        index, num_transfers = _numbered(sends.transfer)
        enters, leaves, num_passages = _passages(sends, index)
        roots = np.flatnonzero(sends.from_gpu)
        root = np.full(num_transfers, -1, dtype=np.int64)
        root[index[roots[::-1]]] = roots[::-1]
        entry = np.full(num_passages, -1, dtype=np.int64)
        entering = np.flatnonzero(enters >= 0)
        entry[enters[entering]] = entering
        num_in = np.bincount(enters[entering], minlength=num_passages)
        return Transfers(
            passing=passing_of(sends.problem),
            index=index,
            enters=enters,
            leaves=leaves,
            level=_levels(enters, leaves, num_in),
            num_in=num_in,
            num_out=np.bincount(leaves[leaves >= 0], minlength=num_passages),
            entry=entry,
            num_roots=np.bincount(index[roots], minlength=num_transfers),
            root=root,
        )

    def longest(self, length: IntArray) -> IntArray:
        """Return for each send the largest length among all sends of its transfer."""
        largest = np.zeros(len(self.root), dtype=np.int64)
        np.maximum.at(largest, self.index, length)
        return largest[self.index]

    def along_way(self, values: NumberArray) -> NumberArray:
        """Return for each send the sum of values over the hops from its root to itself."""
        total = values.copy()
        order = np.argsort(self.level, kind="stable")
        cuts = np.searchsorted(self.level[order], np.arange(1, self.level.max(initial=0) + 2))
        for begin, end in pairwise(cuts):
            rows = order[begin:end]
            total[rows] += total[self.entry[self.leaves[rows]]]
        return total


def _numbered(names: IntArray) -> tuple[IntArray, int]:
    """Number names without gaps in their own order, and say how many there are."""
    most = int(names.max(initial=-1)) + 1
    if most > 8 * len(names):
        distinct, index = np.unique(names, return_inverse=True)
        return index, len(distinct)
    # Names that lie densely are counted, which is quicker than sorting them.
    number = np.cumsum(np.bincount(names, minlength=most) > 0)
    return number[names] - 1, int(number[-1]) if most else 0


def _passages(sends: Sends, index: IntArray) -> tuple[IntArray, IntArray, int]:
    """Passage that each send enters and leaves, and their number."""
    enters = np.full(len(sends), -1, dtype=np.int64)
    leaves = enters.copy()
    num_nodes = sends.problem.topology.num_nodes
    into = np.flatnonzero(~sends.to_gpu)
    out = np.flatnonzero(~sends.from_gpu)
    into = into[order_by(index[into], sends.dst[into])]
    # Looking up millions in order is several times quicker than as they come.
    out = out[order_by(index[out], sends.src[out])]
    entered = index[into] * num_nodes + sends.dst[into]
    is_new = new_run(entered)
    enters[into] = np.cumsum(is_new) - 1
    passages = entered[is_new]
    if len(passages):
        left = index[out] * num_nodes + sends.src[out]
        found = np.minimum(np.searchsorted(passages, left), len(passages) - 1)
        leaves[out] = np.where(passages[found] == left, found, -1)
    return enters, leaves, len(passages)


def _levels(enters: IntArray, leaves: IntArray, num_in: IntArray) -> IntArray:
    """Depth of each send below its root; a passage is left only after all sends that enter it."""
    level = np.where(leaves < 0, 0, -1)
    by_passage = order_by(leaves)
    first = np.searchsorted(leaves[by_passage], np.arange(len(num_in) + 1))
    waiting = num_in.copy()
    frontier = np.flatnonzero((level == 0) & (enters >= 0))
    depth = 0
    while len(frontier):
        depth += 1
        reached = enters[frontier]
        np.subtract.at(waiting, reached, 1)
        done = _distinct(reached[waiting[reached] == 0], len(waiting))
        rows = by_passage[expand(first[done], first[done + 1] - first[done])]
        level[rows] = depth
        frontier = rows[enters[rows] >= 0]
    return level


def _distinct(numbers: IntArray, count: int) -> IntArray:
    """Return numbers below a count once each, in order; many are marked, few are sorted."""
    if len(numbers) * _MANY < count:
        return np.unique(numbers)
    is_there = np.zeros(count, dtype=bool)
    is_there[numbers] = True
    return np.flatnonzero(is_there)


def mixed_transfers(sends: Sends, transfers: Transfers) -> IntArray:
    """Sends whose chunk or op differs from another send of their transfer."""
    if len(transfers.root) == len(sends):
        return np.zeros(0, dtype=np.int64)
    order = order_by(transfers.index)
    same = ~new_run(transfers.index[order])
    differs = new_run(sends.chunk[order], sends.is_reduce[order])
    return order[same & differs]


def separate_roots(sends: Sends, transfers: Transfers) -> IntArray:
    """Roots that no chain of passages joins with the first root of their transfer."""
    rows = np.flatnonzero(transfers.num_roots[transfers.index] > 1)
    label = np.arange(len(sends))
    passage = np.full(len(transfers.num_in), len(sends), dtype=np.int64)
    sides = [(rows[side[rows] >= 0], side) for side in (transfers.enters, transfers.leaves)]
    changed = len(rows) > 0
    while changed:
        changed = False
        for joined, side in sides:
            np.minimum.at(passage, side[joined], label[joined])
        for joined, side in sides:
            lower = passage[side[joined]]
            changed |= bool((lower < label[joined]).any())
            label[joined] = np.minimum(label[joined], lower)
    first = transfers.root[transfers.index[rows]]
    apart: IntArray = rows[(label[rows] != label[first]) & sends.from_gpu[rows]]
    return apart
