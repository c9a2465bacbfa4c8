"""Rows of the general model, one function per family of constraints."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.linear_model import ABSENT, Columns, RowBlock
from teccl.models.milp.arcs import NEVER, Arcs
from teccl.models.milp.variables import Flows, GridReach

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What every family of rows needs.

    Parameters
    ----------
    upper
        How often one chunk may start on each arc in one epoch.
    """

    arcs: Arcs
    reach: GridReach
    flows: Flows
    horizon: int
    upper: IntArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Chunks, nodes and moments; moment t is the start of epoch t."""
        return (*self.reach.first.shape, self.horizon + 1)

    @property
    def moments(self) -> IntArray:
        """All starts of epochs, the end of the last one included."""
        return np.arange(self.horizon + 1)

    @property
    def arriving(self) -> IntArray:
        """Flows that end at a node of their own."""
        return np.flatnonzero(self.arcs.end[self.flows.arc] >= 0)

    @property
    def leaving(self) -> IntArray:
        """Flows that start by themselves at a node."""
        return np.flatnonzero(self.arcs.is_root[self.flows.arc])

    def cells(self, chunk: IntArray, node: IntArray, moment: IntArray) -> IntArray:
        """Number of a chunk, node and moment."""
        _, nodes, moments = self.shape
        return (chunk * nodes + node) * moments + moment

    def arrival_cells(self) -> tuple[IntArray, IntArray]:
        """Cell and column of every arrival."""
        rows = self.arriving
        f = self.flows
        return self.cells(f.chunk[rows], self.arcs.end[f.arc[rows]], f.arrival[rows]), f.column[
            rows
        ]

    def departure_cells(self) -> tuple[IntArray, IntArray]:
        """Cell and column of every departure."""
        rows = self.leaving
        f = self.flows
        return self.cells(f.chunk[rows], self.arcs.src[f.arc[rows]], f.epoch[rows]), f.column[rows]


def chosen_rows(
    cells: IntArray, columns: IntArray, row_of_cell: IntArray
) -> tuple[IntArray, IntArray]:
    """Keep the entries whose cell has a row; return rows and columns."""
    row = row_of_cell[cells]
    kept = row != ABSENT
    return row[kept], columns[kept]


def row_numbers(exists: BoolArray) -> tuple[IntArray, int]:
    """Number the cells that have a row, flat, `ABSENT` elsewhere."""
    numbered = Columns.number(exists.ravel(), first=0)
    return numbered.index, numbered.count


def capacity_rows(frame: Frame) -> RowBlock:
    r"""No place bears more than its limit in any epoch.

    .. math:: \sum_{m} \sum_{k-\kappa_e < k' \le k} F_{m,e,k'} \le \max(1, \lfloor T_e\tau \rfloor)

    TE-CCL, appendix on the fastest link, with a window of :math:`\kappa` epochs and whole chunks
    on the right; for circuits the sum of their shares.
    """
    arcs, flows = frame.arcs, frame.flows
    by_arc = np.argsort(arcs.use_arc, kind="stable")
    low = np.searchsorted(arcs.use_arc[by_arc], flows.arc, side="left")
    high = np.searchsorted(arcs.use_arc[by_arc], flows.arc, side="right")
    use = by_arc[_ranges(low, high)]
    flow = np.repeat(np.arange(len(flows.arc)), high - low)
    begin = flows.epoch[flow] + arcs.use_offset[use]
    span = arcs.use_span[use, flows.epoch[flow]]
    epoch = _ranges(begin, begin + span)
    flow, use = np.repeat(flow, span), np.repeat(use, span)
    # What is held after the horizon cannot matter any more.
    inside = epoch < frame.horizon
    epoch, flow, use = epoch[inside], flow[inside], use[inside]
    cell = arcs.use_place[use] * frame.horizon + epoch
    load = arcs.use_load[use] * frame.upper[flows.arc[flow]]
    limit = arcs.limit.ravel()
    total = np.bincount(cell, weights=load, minlength=len(limit))
    row_of_cell, count = row_numbers(total > limit)
    row = row_of_cell[cell]
    kept = row != ABSENT
    return RowBlock.of(
        count,
        [(row[kept], flows.column[flow[kept]], arcs.use_load[use[kept]])],
        lower=-np.inf,
        upper=limit[np.flatnonzero(row_of_cell != ABSENT)],
    )


def _ranges(low: IntArray, high: IntArray) -> IntArray:
    """Concatenate the integer ranges low[i]..high[i]."""
    counts = high - low
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(low - (ends - counts), counts)


def at_gpus(frame: Frame) -> BoolArray:
    """Cells of GPUs in which a chunk, received before, may be of use."""
    reach, t = frame.reach, frame.moments
    cells = (t >= reach.first[:, :, None]) & (t <= frame.horizon - reach.after[:, :, None])
    cells &= t < np.minimum(reach.own_from, NEVER)[:, :, None]
    cells[:, frame.arcs.is_switch] = False
    return cells


def buffer_rows(frame: Frame, held: Columns) -> RowBlock:
    r"""Buffers grow by what arrives, and hold at most one copy.

    .. math:: B_{m,n,t} = B_{m,n,t-1} + \sum_{a \to n} F_{m,a,t-\kappa_a-\delta_a}

    TE-CCL, buffer constraints; with :math:`B \le 1` a chunk reaches a node at most once, and
    exactly once where it is wanted.
    """
    row_of_cell, count = row_numbers(held.exists)
    here = held.index.ravel()
    before = np.roll(held.index, 1, axis=2)
    before[:, :, 0] = ABSENT
    row = np.flatnonzero(row_of_cell != ABSENT)
    cells, columns = frame.arrival_cells()
    arrive_row, arrive = chosen_rows(cells, columns, row_of_cell)
    return RowBlock.of(
        count,
        [
            (row_of_cell[row], here[row], 1.0),
            (row_of_cell[row], before.ravel()[row], -1.0),
            (arrive_row, arrive, -1.0),
        ],
        lower=0.0,
        upper=0.0,
    )


def conservation_rows(frame: Frame, held: Columns) -> RowBlock:
    r"""A node sends only what it holds: :math:`F_{m,a,k} \le u_a B_{m,n,k}` for each arc.

    TE-CCL, flow conservation; the maximum over outgoing links is one row for each of them, and
    :math:`u_a` is how often a chunk may start on an arc in one epoch.
    """
    cells, columns = frame.departure_cells()
    holder = held.index.ravel()[cells]
    rows = np.flatnonzero(holder != ABSENT)
    number = np.arange(len(rows))
    upper = frame.upper[frame.flows.arc[frame.leaving[rows]]]
    return RowBlock.of(
        len(rows),
        [(number, columns[rows], 1.0), (number, holder[rows], -upper)],
        lower=-np.inf,
        upper=0.0,
    )


def presence_rows(frame: Frame, present: Columns, waiting: Columns | None) -> RowBlock:
    r"""What is present has just arrived or has waited.

    .. math:: B_{m,n,t} \le X_{m,n,t-1} + \sum_{a \to n} F_{m,a,t-\kappa_a-\delta_a}

    For switches nothing waits. TE-CCL, limited buffers: what does not wait is removed.
    """
    row_of_cell, count = row_numbers(present.exists)
    row = np.flatnonzero(row_of_cell != ABSENT)
    cells, columns = frame.arrival_cells()
    arrive_row, arrive = chosen_rows(cells, columns, row_of_cell)
    terms = [
        (row_of_cell[row], present.index.ravel()[row], 1.0),
        (arrive_row, arrive, -1.0),
    ]
    if waiting is not None:
        before = np.roll(waiting.index, 1, axis=2)
        before[:, :, 0] = ABSENT
        terms.append((row_of_cell[row], before.ravel()[row], -1.0))
    return RowBlock.of(count, terms, lower=-np.inf, upper=0.0)


def keeping_rows(present: Columns, waiting: Columns) -> RowBlock:
    r"""Only what is present may stay: :math:`X_{m,n,t} \le B_{m,n,t}`."""
    cells = np.flatnonzero(waiting.index.ravel() != ABSENT)
    number = np.arange(len(cells))
    return RowBlock.of(
        len(cells),
        [
            (number, waiting.index.ravel()[cells], 1.0),
            (number, present.index.ravel()[cells], -1.0),
        ],
        lower=-np.inf,
        upper=0.0,
    )


def limit_rows(waiting: Columns, limit: int) -> RowBlock:
    r"""No more than the buffer's limit waits at a GPU: :math:`\sum_m X_{m,n,t} \le \mathcal{L}`."""
    chunks, nodes, moments = waiting.index.shape
    by_place = waiting.index.transpose(1, 2, 0).reshape(nodes * moments, chunks)
    some = (by_place != ABSENT).any(axis=1)
    return RowBlock.sums(by_place[some], lower=-np.inf, upper=float(limit))


def stock_rows(frame: Frame, cells: BoolArray, waiting: Columns | None) -> RowBlock:
    r"""Without copies a node sends on at most what it received and has not sent on.

    .. math:: \sum_{a \leftarrow n} F_{m,a,t} + X_{m,n,t} \le X_{m,n,t-1} + \sum_{a \to n} F
    """
    row_of_cell, count = row_numbers(cells)
    row = np.flatnonzero(row_of_cell != ABSENT)
    arrive_row, arrive = chosen_rows(*frame.arrival_cells(), row_of_cell)
    leave_row, leave = chosen_rows(*frame.departure_cells(), row_of_cell)
    terms = [(arrive_row, arrive, -1.0), (leave_row, leave, 1.0)]
    if waiting is not None:
        before = np.roll(waiting.index, 1, axis=2)
        before[:, :, 0] = ABSENT
        terms.append((row_of_cell[row], waiting.index.ravel()[row], 1.0))
        terms.append((row_of_cell[row], before.ravel()[row], -1.0))
    return RowBlock.of(count, terms, lower=-np.inf, upper=0.0)


def kept_rows(frame: Frame) -> RowBlock:
    """Without copies a node that wants a chunk keeps one of those it received."""
    wanted = frame.reach.wanted
    numbers, count = row_numbers(wanted)
    row_of_cell = np.repeat(numbers, frame.horizon + 1)
    arrive_row, arrive = chosen_rows(*frame.arrival_cells(), row_of_cell)
    leave_row, leave = chosen_rows(*frame.departure_cells(), row_of_cell)
    return RowBlock.of(
        count,
        [(arrive_row, arrive, 1.0), (leave_row, leave, -1.0)],
        lower=1.0,
        upper=np.inf,
    )


def read_rows(frame: Frame, read: Columns) -> RowBlock:
    r"""A wanted chunk has been read from its first arrival on.

    .. math:: R_{m,d,t} \le R_{m,d,t-1} + \sum_{a \to d} F_{m,a,t-\kappa_a-\delta_a}

    TE-CCL, destination constraints, where buffers do not say who has had what.
    """
    return presence_rows(frame, read, read)


def passing_rows(frame: Frame) -> RowBlock:
    """What leaves a switch that does not copy has arrived in that very epoch, one for one."""
    cells = np.zeros(frame.shape, dtype=bool)
    departures, _ = frame.departure_cells()
    cells.ravel()[departures] = True
    plain = frame.arcs.is_switch & ~frame.arcs.splits
    cells[:, ~plain] = False
    return stock_rows(frame, cells, None)


def branch_rows(frame: Frame) -> list[RowBlock]:
    """Circuits are trees: a branch needs its stem, one switch is entered once, one link is slowest.

    A switch that does not copy has one branch only.
    """
    arcs, index = frame.arcs, frame.flows.columns.index
    blocks = []
    splits = arcs.splits[arcs.last_node].tolist()
    children: dict[int, list[int]] = {}
    for arc, parent in enumerate(arcs.parent.tolist()):
        if parent >= 0:
            children.setdefault(parent, []).append(arc)
    for parent, arc_list in children.items():
        groups = [[arc] for arc in arc_list] if splits[parent] else [arc_list]
        blocks += [_at_most(index, group, [parent]) for group in groups]
    for root, members in _trees(arcs).items():
        blocks += [_at_most(index, group, [root]) for group in _same_ends(frame, members)]
        slow = [arc for arc in members if arcs.last_kappa[arc] == arcs.held[root]]
        if root not in slow:
            blocks.append(_at_most(index, [root], slow))
    return blocks


def _at_most(index: IntArray, group: list[int], holders: list[int]) -> RowBlock:
    """State for each chunk and epoch that the sum of some arcs is at most that of others.

    It is nothing where there are no others, as where no branch that is left is the slowest.
    """
    cells = index.shape[0] * index.shape[2]
    left = np.moveaxis(index[:, group, :], 1, 2).reshape(cells, len(group))
    right = np.moveaxis(index[:, holders, :], 1, 2).reshape(cells, len(holders))
    some = (left != ABSENT).any(axis=1)
    left, right = left[some], right[some]
    number = np.arange(len(left))[:, None]
    return RowBlock.of(
        len(left), [(number, left, 1.0), (number, right, -1.0)], lower=-np.inf, upper=0.0
    )


def _trees(arcs: Arcs) -> dict[int, list[int]]:
    """Arcs of each circuit's tree by its root."""
    root = np.arange(len(arcs))
    trees: dict[int, list[int]] = {}
    for arc, parent in enumerate(arcs.parent.tolist()):
        if parent >= 0:
            root[arc] = root[parent]
        trees.setdefault(int(root[arc]), []).append(arc)
    return trees


def _same_ends(frame: Frame, members: list[int]) -> list[list[int]]:
    """Groups of several arcs of a tree that lead into one node."""
    into: dict[int, list[int]] = {}
    for arc in members:
        into.setdefault(int(frame.arcs.last_node[arc]), []).append(arc)
    return [group for group in into.values() if len(group) > 1]


def done_rows(wanted: BoolArray, done: Columns, read: Columns, tenant: IntArray) -> RowBlock:
    r"""A tenant is done when all it wants has been read: :math:`Y_{i,t} \le R_{m,d,t}`.

    Parameters
    ----------
    wanted
        By chunk and node.
    tenant
        Of each chunk.
    """
    chunk, node = np.nonzero(wanted)
    left = done.index[tenant[chunk]].ravel()
    right = read.index[chunk, node].ravel()
    some = left != ABSENT
    number = np.arange(int(some.sum()))
    return RowBlock.of(
        len(number),
        [(number, left[some], 1.0), (number, right[some], -1.0)],
        lower=-np.inf,
        upper=0.0,
    )
