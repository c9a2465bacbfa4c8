"""Carried: which partial sums an arrival holds, through switches that may merge them."""

from collections.abc import Callable

import numpy as np

from teccl.schedule.columns import Sends
from teccl.verification.transfers import Transfers


class Origins:
    """Where the hops that enter GPUs began."""

    def __init__(self, sends: Sends, transfers: Transfers) -> None:
        self._from_gpu = sends.from_gpu.tolist()
        self._leaves = transfers.leaves.tolist()
        self._root = transfers.root[transfers.index].tolist()
        self._merges = (transfers.num_roots[transfers.index] > 1).tolist()
        # Nothing is known of hops that leave a switch never entered or go round in a cycle.
        lost = (~sends.from_gpu & (transfers.leaves < 0)) | (transfers.level < 0)
        self._lost = (lost | (transfers.root < 0)[transfers.index]).tolist()
        self._entering: dict[int, list[int]] = {}
        rows = np.flatnonzero((transfers.enters >= 0) & (transfers.num_roots > 1)[transfers.index])
        for row, passage in zip(rows.tolist(), transfers.enters[rows].tolist(), strict=True):
            self._entering.setdefault(passage, []).append(row)

    def value(
        self,
        row: int,
        of_root: Callable[[int], int],
        merged: Callable[[int, list[int]], int],
    ) -> int:
        """Return what a hop carries.

        Parameters
        ----------
        of_root
            What a hop that leaves a GPU carries.
        merged
            What leaves a passage, given its number, into which several values go.
        """
        if self._lost[row]:
            return merged(-1, [])
        if not self._merges[row]:
            return of_root(self._root[row])
        if self._from_gpu[row]:
            return of_root(row)
        passage = self._leaves[row]
        entering = self._entering.get(passage, [])
        return merged(passage, [self.value(each, of_root, merged) for each in entering])
