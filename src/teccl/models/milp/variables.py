r"""Variables of the general model: which exist, and where a chunk can be when.

======  ==============  =====================================================================
symbol  name            meaning
======  ==============  =====================================================================
F       ``flow``        how often chunk m starts on arc a in epoch k (once, where copies help)
B       ``held``        whether chunk m is at GPU n at the start of epoch t
B       ``present``     the same where buffers are limited, and for switches that copy
X       ``waiting``     received copies of m that stay at n beyond t; what is not is evicted
R       ``read``        whether n, which wants m, has got it by the start of t
Y       ``done``        whether a tenant has got everything by the start of t
======  ==============  =====================================================================

Variables that cannot matter do not exist: before a chunk can be at an arc's tail, after the arc's
head could still be of use before the horizon, and into a node that has the chunk anyway.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from teccl.linear_model import Columns
from teccl.models.milp.arcs import NEVER, Arcs
from teccl.problem import Problem

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Holding(StrEnum):
    """How GPUs hold what they received."""

    UNLIMITED = "unlimited"
    LIMITED = "limited"
    MOVING = "moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridReach:
    """Where chunks can be when, by chunk and node.

    Parameters
    ----------
    first
        Earliest epoch in which a chunk can be at a node.
    after
        Epochs from a node to the nearest that wants the chunk.
    own_from
        Epoch from which a node has the chunk without receiving it, `NEVER` for most.
    wanted
        Whether the node wants the chunk and does not have it anyway.
    """

    first: IntArray
    after: IntArray
    own_from: IntArray
    wanted: BoolArray

    @staticmethod
    def of(problem: Problem, arcs: Arcs, ready: IntArray) -> "GridReach":
        """Measure along shortest ways.

        Parameters
        ----------
        ready
            By tenant and node, epoch from which own data may be sent.
        """
        table, n = problem.chunks, problem.topology.num_nodes
        has = np.zeros((len(table.sets), n), dtype=bool)
        for number, nodes in enumerate(table.sets):
            has[number, nodes] = True
        holds, wants = has[table.source_set], has[table.destination_set]
        own_from = np.where(holds, ready[table.tenant], NEVER)
        way = arcs.distances()
        return GridReach(
            first=_least_sum(own_from, way),
            after=_least_sum(np.where(wants, 0, NEVER), way.T),
            own_from=own_from,
            wanted=wants & ~holds,
        )


def _least_sum(start: IntArray, way: IntArray) -> IntArray:
    """Least of start[m, i] + way[i, j] over i, for each m and j."""
    found = np.full(start.shape, NEVER)
    for i in range(way.shape[0]):
        rows = np.flatnonzero(start[:, i] < NEVER)
        if len(rows):
            found[rows] = np.minimum(found[rows], start[rows, i][:, None] + way[i])
    return np.minimum(found, NEVER)


def flow_windows(arcs: Arcs, reach: GridReach, horizon: int) -> tuple[IntArray, IntArray]:
    """First and last epoch in which each chunk may start on each arc; last < first for never.

    Where rates change over time, the shortest delay of the arc is used.
    """
    chunks = len(reach.first)
    first = reach.first[:, arcs.src]
    last = np.full((chunks, len(arcs)), -1, dtype=np.int64)
    ends = np.flatnonzero(arcs.end >= 0)
    delay = arcs.delay[ends].min(axis=1)
    node = arcs.end[ends]
    useful = horizon - delay - reach.after[:, node]
    # A node that has the chunk of its own by then needs no other copy of it.
    last[:, ends] = np.minimum(useful, reach.own_from[:, node] - delay - 1)
    # Arcs are listed parents first, so one pass backwards lets a parent serve its last child.
    for child in range(len(arcs) - 1, -1, -1):
        parent = arcs.parent[child]
        if parent >= 0:
            last[:, parent] = np.maximum(last[:, parent], last[:, child])
    return first, np.minimum(last, horizon - 1)


def count_flows(arcs: Arcs, reach: GridReach, horizon: int) -> int:
    """Number of flow variables, without making them."""
    first, last = flow_windows(arcs, reach, horizon)
    return int(np.maximum(0, last - first + 1).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """All flow variables, one array entry each, by rising column number.

    Parameters
    ----------
    chunk, arc, epoch, column
        What they say.
    arrival
        Epoch from which what they carry is usable at the arc's end.
    """

    columns: Columns
    chunk: IntArray
    arc: IntArray
    epoch: IntArray
    column: IntArray
    arrival: IntArray

    @staticmethod
    def of(arcs: Arcs, reach: GridReach, horizon: int) -> "Flows":
        """Number the flow variables that can matter."""
        first, last = flow_windows(arcs, reach, horizon)
        k = np.arange(horizon)
        exists = (k >= first[:, :, None]) & (k <= last[:, :, None])
        ends = np.flatnonzero(arcs.end >= 0)
        if (arcs.delay.min(axis=1) != arcs.delay.max(axis=1)).any():
            node = arcs.end[ends]
            arrives = k + arcs.delay[ends]
            exists[:, ends] &= arrives <= horizon - reach.after[:, node, None]
            exists[:, ends] &= arrives < reach.own_from[:, node, None]
        columns = Columns.number(exists, first=0)
        chunk, arc, epoch = np.nonzero(exists)
        return Flows(
            columns=columns,
            chunk=chunk,
            arc=arc,
            epoch=epoch,
            column=columns.index[exists],
            arrival=epoch + arcs.delay[arc, epoch],
        )
