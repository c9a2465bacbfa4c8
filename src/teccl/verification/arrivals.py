"""Arrivals: when copied chunks first come to GPUs."""

from dataclasses import dataclass

import numpy as np

from teccl._arrays import NEVER, IntArray, locate, new_run
from teccl.schedule.columns import Sends
from teccl.schedule.ordering import order_by
from teccl.verification.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstArrivals:
    """The earliest arrival at each pair of chunk and GPU, by key in order."""

    keys: IntArray
    times: IntArray

    @staticmethod
    def of(sends: Sends, timeline: Timeline) -> "FirstArrivals":
        """Find them for all chunks that are copied."""
        rows = np.flatnonzero(sends.to_gpu & ~sends.combines)
        keys = sends.keys(sends.chunk[rows], sends.dst[rows])
        order = order_by(keys)
        keys, arrival = keys[order], timeline.arrival[rows][order]
        first = np.flatnonzero(new_run(keys))
        if len(first) == len(keys):
            return FirstArrivals(keys=keys, times=arrival)
        return FirstArrivals(keys=keys[first], times=np.minimum.reduceat(arrival, first))

    def at(self, wanted: IntArray) -> IntArray:
        """Times at the wanted keys, `NEVER` where nothing arrives."""
        if not len(self.keys):
            return np.full(len(wanted), NEVER)
        found = np.minimum(locate(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[found] == wanted, self.times[found], NEVER)
