"""Partial sums of a schedule: where each comes from and when it is there."""

from dataclasses import dataclass

import numpy as np

from teccl._arrays import NEVER, BoolArray, IntArray
from teccl.schedule.additions import SumArray
from teccl.schedule.columns import Sends
from teccl.verification.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSums:
    """One array entry per partial sum.

    Parameters
    ----------
    chunk, node, slot, left, right, is_result
        As in the schedule's table.
    arrives_by
        A send whose arrival it is, -1 where it does not arrive.
    num_arrivals
        Sends that say so.
    made
        When it is there, `NEVER` where its GPU has nothing to make it of.
    """

    chunk: IntArray
    node: IntArray
    slot: IntArray
    left: IntArray
    right: IntArray
    is_result: BoolArray
    arrives_by: IntArray
    num_arrivals: IntArray
    made: IntArray

    @staticmethod
    def of(table: SumArray, sends: Sends, timeline: Timeline) -> "PartialSums":
        """Find out where the partial sums of a table come from."""
        columns = {
            name: table[name].astype(np.int64)
            for name in ("chunk", "node", "slot", "left", "right")
        }
        arriving = np.flatnonzero(sends.to_gpu & (sends.becomes >= 0))
        becomes = sends.becomes[arriving]
        arrives_by = np.full(len(table), -1, dtype=np.int64)
        arrives_by[becomes] = arriving
        made = np.full(len(table), NEVER)
        chunk, node = columns["chunk"], columns["node"]
        own = (arrives_by < 0) & (columns["left"] < 0) & sends.is_source(chunk, node)
        made[own] = timeline.ready[sends.problem.chunks.tenant[chunk[own]], node[own]]
        made[becomes] = timeline.arrival[arriving]
        return PartialSums(
            **columns,
            is_result=table["result"].copy(),
            arrives_by=arrives_by,
            num_arrivals=np.bincount(becomes, minlength=len(table)),
            made=_with_additions(made, columns["left"], columns["right"]),
        )

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def is_added(self) -> BoolArray:
        """Whether each is the sum of two others."""
        return self.left >= 0

    @property
    def is_own(self) -> BoolArray:
        """Whether each is a GPU's own contribution."""
        return (self.left < 0) & (self.arrives_by < 0)

    def waiting_since(self) -> IntArray:
        """When the first thing that a GPU received for each arrived, `NEVER` where nothing did."""
        since = np.where(self.arrives_by >= 0, self.made, NEVER).tolist()
        rows = np.flatnonzero(self.is_added)
        for row, one, other in zip(
            rows.tolist(), self.left[rows].tolist(), self.right[rows].tolist(), strict=True
        ):
            since[row] = min(since[one], since[other])
        return np.array(since, dtype=np.int64)


def _with_additions(made: IntArray, left: IntArray, right: IntArray) -> IntArray:
    """Add when additions are made: as soon as both summands are there, which stand before them."""
    times: list[int] = made.tolist()
    rows = np.flatnonzero(left >= 0)
    for row, one, other in zip(
        rows.tolist(), left[rows].tolist(), right[rows].tolist(), strict=True
    ):
        times[row] = max(times[one], times[other])
    return np.array(times, dtype=np.int64)
