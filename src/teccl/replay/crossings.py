"""Passages: how the hops of each transfer meet in switches, and what a replay refuses of them."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from teccl._arrays import BoolArray, IntArray, new_run
from teccl.errors import ScheduleError
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.schedule.columns import Sends
from teccl.schedule.ordering import order_by


class Crossing(StrEnum):
    """How a transfer goes through switches."""

    STORE = "store-and-forward"
    CIRCUIT = "cut-through"
    HYPER_EDGE = "hyper-edge"

    @staticmethod
    def of(problem: Problem) -> "Crossing":
        """How switches are passed in a problem; without switches every mode means the same."""
        if problem.topology.num_switches == 0:
            return Crossing.STORE
        if problem.switch is SwitchMode.HYPER_EDGE:
            return Crossing.HYPER_EDGE
        return Crossing.CIRCUIT if problem.transit is Transit.CUT_THROUGH else Crossing.STORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """Where hops enter and leave switches: a passage is one transfer in one switch.

    Parameters
    ----------
    passing
        How switches are passed.
    index
        Number of each send's transfer, counted without gaps.
    enters, leaves
        Passage that a send enters or leaves, -1 where it does not.
    entry
        One send that enters each passage.
    root, num_roots
        Per transfer, one send that leaves a GPU, -1 where none does, and how many do.
    """

    passing: Crossing
    index: IntArray
    enters: IntArray
    leaves: IntArray
    entry: IntArray
    root: IntArray
    num_roots: IntArray

    @staticmethod
    def of(sends: Sends) -> "Passages":
        """Find the passages of all sends."""
        index, num_transfers = _without_gaps(sends.transfer)
        roots = np.flatnonzero(sends.from_gpu)
        root = np.full(num_transfers, -1, dtype=np.int64)
        root[index[roots[::-1]]] = roots[::-1]
        enters, leaves = np.full((2, len(sends)), -1, dtype=np.int64)
        place = index * sends.problem.topology.num_nodes
        into, out = np.flatnonzero(~sends.to_gpu), np.flatnonzero(~sends.from_gpu)
        entered, left = place[into] + sends.dst[into], place[out] + sends.src[out]
        order = order_by(entered)
        into, entered = into[order], entered[order]
        is_first = new_run(entered)
        enters[into] = np.cumsum(is_first) - 1
        known = entered[is_first]
        if len(known):
            order = order_by(left)
            found = np.minimum(np.searchsorted(known, left[order]), len(known) - 1)
            leaves[out[order]] = np.where(known[found] == left[order], found, -1)
        return Passages(
            passing=Crossing.of(sends.problem),
            index=index,
            enters=enters,
            leaves=leaves,
            entry=into[is_first],
            root=root,
            num_roots=np.bincount(index[roots], minlength=num_transfers),
        )

    def refuse_broken(self, sends: Sends, start: IntArray, handoff: IntArray) -> None:
        """Refuse transfers of which a replay could not keep the hops together.

        Parameters
        ----------
        start, handoff
            When each send begins, and when one that enters a switch must leave it.

        Raises
        ------
        ScheduleError
            If there is any; the message names a send and what is wrong.
        """
        problem = sends.problem
        num_in = np.bincount(self.enters[self.enters >= 0], minlength=len(self.entry))
        num_out = np.bincount(self.leaves[self.leaves >= 0], minlength=len(self.entry))
        if not (problem.switch is SwitchMode.COPY and problem.copy):
            _refuse(sends, self.entry[num_out > 1], "is copied in a switch that does not copy")
        _refuse(sends, self._mixed(sends), "has another chunk or op than its transfer")
        merges = self.entry[(num_in > 1) & ~self._may_merge(sends)]
        _refuse(sends, merges, "meets its own transfer in a switch that may not merge")
        _refuse(sends, self.entry[num_out == 0], "ends in a switch")
        astray = np.flatnonzero(~sends.from_gpu & (self.leaves < 0))
        _refuse(sends, astray, "leaves a switch that its transfer never enters")
        _refuse(sends, self._loose(), "does not hang together with its transfer")
        due = handoff[self.entry]
        into, out = np.flatnonzero(self.enters >= 0), np.flatnonzero(self.leaves >= 0)
        late = [
            into[handoff[into] != due[self.enters[into]]],
            out[start[out] != due[self.leaves[out]]],
        ]
        _refuse(sends, np.concatenate(late), "does not leave a switch when it is due")

    def _loose(self) -> IntArray:
        """One send of each transfer that is no tree: hops joined by passages, one edge fewer."""
        count = np.bincount(self.index, minlength=len(self.root))
        count += np.bincount(self.index[self.entry], minlength=len(self.root))
        for side in (self.enters, self.leaves):
            count -= np.bincount(self.index[side >= 0], minlength=len(self.root))
        one = np.zeros(len(self.root), dtype=np.int64)
        one[self.index] = np.arange(len(self.index))
        return one[count != 1]

    def _mixed(self, sends: Sends) -> IntArray:
        """Sends of another chunk or op than a send of their transfer."""
        if len(self.root) == len(sends):
            return np.zeros(0, dtype=np.int64)
        one = np.zeros(len(self.root), dtype=np.int64)
        one[self.index] = np.arange(len(sends))
        other = one[self.index]
        differs = sends.chunk != sends.chunk[other]
        differs |= sends.is_reduce != sends.is_reduce[other]
        return np.flatnonzero(differs)

    def _may_merge(self, sends: Sends) -> BoolArray:
        """Whether each passage may combine the sends that enter it."""
        reduces = np.array([node.reduce for node in sends.problem.topology.nodes], dtype=bool)
        sums = reduces[sends.dst[self.entry]] & sends.is_reduce[self.entry]
        return sums & (self.passing is not Crossing.HYPER_EDGE)


def _without_gaps(names: IntArray) -> tuple[IntArray, int]:
    """Number names in their own order, and say how many there are."""
    most = int(names.max(initial=-1)) + 1
    if most > 8 * len(names):
        distinct, index = np.unique(names, return_inverse=True)
        return index, len(distinct)
    # Names that lie densely are counted, which is quicker than sorting them.
    number = np.cumsum(np.bincount(names, minlength=most) > 0)
    return number[names] - 1, int(number[-1]) if most else 0


def _refuse(sends: Sends, rows: IntArray, what: str) -> None:
    if not len(rows):
        return
    row, problem = int(rows[0]), sends.problem
    name = f"{problem.chunk_name(int(sends.chunk[row]))}, transfer {sends.transfer[row]}"
    where = problem.topology.link_name(int(sends.link[row]))
    raise ScheduleError(f"{name} on {where} {what}; verify the schedule first")
