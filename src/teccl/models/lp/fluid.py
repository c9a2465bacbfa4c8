r"""The paper's linear program: rates for demands that no copy can serve twice.

======  ============  =======================================================================
symbol  name          meaning
======  ============  =======================================================================
s       commodity     data of one tenant that starts at one set of holders
F       ``flow``      chunks of s that start on arc a during a slot of time
B       ``kept``      chunks of s that node n keeps beyond an interval of time
R       ``read``      chunks of s that n takes for itself, where buffers are limited
U       ``short``     chunks that do not arrive by the horizon, which are to be none
======  ============  =======================================================================

Commodities are aggregated by source, which is exact: any way to split a source's flow into paths
brings every destination its amount. What is sent in epoch k is usable from k + 1 + delta on,
whatever its amount; there is no kappa, because fractions of chunks move on by themselves.

Time is cut into *slots* within which a rate does not change. With slots of one epoch the program
is the paper's; with longer slots in the middle of a long horizon it is a restriction of that,
much smaller and nearly always as good.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from teccl.linear_model import ABSENT, Columns, LinearModel, RowBlock, stack
from teccl.models.lp.fluid_network import FluidNetwork

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Rows, columns and values of entries, each broadcast to one shape.
_Term = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]

# Cost of one chunk on one arc against that of a chunk that does not arrive: small enough that all
# arrives if it can, and there because without it the program has countless optima.
HOP_COST = 1e-3
# Slots of one epoch at either end of a horizon, beyond the delays on the way.
FINE_SLOTS = 4
# The longest slot is at most this fraction of the horizon.
LONGEST_SLOT = 8


def coarse_slots(horizon: int, fine: int) -> IntArray:
    """Bounds of slots that are one epoch long at both ends and grow towards the middle.

    Examples
    --------
    >>> coarse_slots(24, 2).tolist()
    [0, 1, 2, 4, 6, 10, 14, 18, 20, 22, 23, 24]
    """
    side = [1] * min(fine, horizon // 2)
    length = 1
    while 2 * length * LONGEST_SLOT <= horizon and 2 * (sum(side) + 4 * length) <= horizon:
        length *= 2
        side += [length, length]
    middle = horizon - 2 * sum(side)
    parts = -(-middle // (2 * length))
    inner = [middle // parts + (i < middle % parts) for i in range(parts)]
    return np.cumsum([0, *side, *inner, *side[::-1]], dtype=np.int64)


def most_slots(network: FluidNetwork, horizon: int) -> int:
    """Return how many coarse slots a horizon has at most, without laying them."""
    return 2 * _fine_slots(network) + LONGEST_SLOT * max(1, horizon.bit_length())


def _fine_slots(network: FluidNetwork) -> int:
    """Slots of one epoch at either end: as many as the longest way through a switch takes."""
    assert network.shift is not None
    return FINE_SLOTS + int((network.shift + network.delay).max(initial=0))


def unit_slots(horizon: int) -> IntArray:
    """Bounds of slots of one epoch each."""
    return np.arange(horizon + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Slots of the arcs, and the intervals between the moments at which anything changes.

    Parameters
    ----------
    bounds
        Slots of arcs that leave a GPU. Arcs that leave a switch are shifted by `shift`, so that
        what changes on the way in changes on the way out just when it gets there.
    moments
        Bounds of the intervals, zero and the horizon among them.
    leaving, arriving
        By arc and interval, the slot in which what leaves (or becomes usable) was sent, -1 if none.
    """

    horizon: int
    bounds: IntArray
    shift: IntArray
    moments: IntArray
    leaving: IntArray
    arriving: IntArray

    @staticmethod
    def of(network: FluidNetwork, horizon: int, *, coarse: bool) -> "Clock":
        """Lay slots over a horizon; one epoch each unless longer ones are wanted and possible."""
        shift = network.shift
        if coarse and shift is not None:
            bounds = coarse_slots(horizon, _fine_slots(network))
        else:
            bounds, shift = unit_slots(horizon), np.zeros(len(network), dtype=np.int64)
        lags = np.unique(np.concatenate([[0], shift, shift + network.delay]))
        moments = np.concatenate([*(bounds + lag for lag in lags), network.starts])
        moments = np.unique(moments[moments <= horizon])
        begin = moments[:-1]
        return Clock(
            horizon=horizon,
            bounds=bounds,
            shift=shift,
            moments=moments,
            leaving=_slot_at(bounds, begin - shift[:, None]),
            arriving=_slot_at(bounds, begin - (shift + network.delay)[:, None]),
        )

    @property
    def is_exact(self) -> bool:
        """Whether every slot is one epoch."""
        return len(self.bounds) == self.horizon + 1

    @property
    def num_slots(self) -> int:
        """Slots of each arc."""
        return len(self.bounds) - 1

    @property
    def lengths(self) -> IntArray:
        """Epochs of each slot."""
        return np.diff(self.bounds)

    def first_epochs(self) -> IntArray:
        """By arc and slot, the epoch in which it begins."""
        return self.bounds[:-1] + self.shift[:, None]


def _slot_at(bounds: IntArray, begin: IntArray) -> IntArray:
    slot = np.searchsorted(bounds, begin, side="right") - 1
    return np.where(begin < bounds[-1], slot, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidModel:
    """The linear program of a network at a horizon, and where its columns and rows are.

    Parameters
    ----------
    flow
        By commodity, arc and slot.
    kept
        By commodity, node and interval.
    short
        By commodity and node that wants it.
    capacity_row, capacity_cell
        Rows that limit places, and the (place, slot) of each, flat.
    """

    network: FluidNetwork
    clock: Clock
    program: LinearModel = field(repr=False)
    flow: Columns = field(repr=False)
    kept: Columns = field(repr=False)
    short: Columns = field(repr=False)
    read: Columns | None = field(repr=False)
    capacity_row: IntArray = field(repr=False)
    capacity_cell: IntArray = field(repr=False)

    @staticmethod
    def build(
        network: FluidNetwork, horizon: int, *, coarse: bool = False, paper: bool = False
    ) -> "FluidModel":
        """State the program.

        Parameters
        ----------
        network
            What flows where.
        horizon
            Epochs after which all is to have arrived.
        coarse
            Use longer slots in the middle of the horizon.
        paper
            Reward early reading by 1 / (k + 1), the paper's objective, all demand being met.
        """
        clock = Clock.of(network, horizon, coarse=coarse and not paper)
        columns = _Numbering(network, clock, reads=paper or network.buffer is not None)
        blocks = [_balance_rows(network, clock, columns)]
        if network.buffer is not None:
            blocks.append(_buffer_rows(network, columns))
        places, cells = _capacity_rows(network, clock, columns)
        first = sum(len(block) for block in blocks)
        cost = columns.cost(paper=paper)
        upper = np.full(len(cost), np.inf)
        if paper:
            upper[columns.short.index[columns.short.exists]] = 0.0
        return FluidModel(
            network=network,
            clock=clock,
            program=stack([*blocks, places], cost=cost, lower=0.0, upper=upper, integer=False),
            flow=columns.flow,
            kept=columns.kept,
            short=columns.short,
            read=columns.read,
            capacity_row=first + np.arange(len(places)),
            capacity_cell=cells,
        )

    def missing(self, values: FloatArray) -> float:
        """Chunks that do not arrive by the horizon."""
        return float(values[self.short.index[self.short.exists]].sum())

    def rates(self, values: FloatArray) -> "Rates":
        """Chunks of each commodity on each arc in each epoch, where there are any."""
        flow = np.where(self.flow.exists, values[self.flow.index], 0.0)
        commodity, arc, slot = np.nonzero(flow > 0)
        length = self.clock.lengths[slot]
        entry = np.repeat(np.arange(len(slot)), length)
        within = np.arange(len(entry)) - np.repeat(np.cumsum(length) - length, length)
        begin = self.clock.first_epochs()[arc, slot]
        return Rates(
            commodity=commodity[entry],
            arc=arc[entry],
            epoch=begin[entry] + within,
            amount=(flow[commodity, arc, slot] / length)[entry],
        )

    def last_read(self, values: FloatArray, tolerance: float) -> int:
        """First epoch at whose start all that is read has been read."""
        if self.read is None:
            return self.clock.horizon
        amount = np.where(self.read.exists, values[self.read.index], 0.0)
        late = np.flatnonzero((amount > tolerance).any(axis=(0, 1)))
        return int(self.clock.moments[late[-1]]) if len(late) else 0

    def prices(self, duals: FloatArray) -> FloatArray:
        """By place and epoch, what the program would pay for one more chunk of capacity."""
        table = np.zeros((self.network.num_places, self.clock.num_slots))
        table.ravel()[self.capacity_cell] = np.maximum(0.0, -duals[self.capacity_row])
        epochs = np.arange(self.clock.horizon) - self.network.place_shift(self.clock.shift)[:, None]
        slot = np.searchsorted(self.clock.bounds, epochs, side="right") - 1
        return np.where(slot >= 0, np.take_along_axis(table, np.maximum(slot, 0), axis=1), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a solution sends: chunks of a commodity on an arc in an epoch, one entry each."""

    commodity: IntArray
    arc: IntArray
    epoch: IntArray
    amount: FloatArray


class _Numbering:
    """Numbers the columns that can matter."""

    def __init__(self, network: FluidNetwork, clock: Clock, *, reads: bool) -> None:
        self.network, self.clock = network, clock
        begin = clock.first_epochs()
        end = begin + clock.lengths
        # In time at the tail, and what is sent last still of use at the head.
        usable = begin[None] >= network.first[:, network.src][:, :, None]
        useful = (end - 1 + network.delay[:, None])[None] + network.after[:, network.dst][
            :, :, None
        ] <= clock.horizon
        exists = usable & useful & network.worthwhile[:, :, None]
        self.flow = Columns.number(exists, first=0)
        moments = clock.moments
        kept = moments[:-1] >= network.first[:, :, None]
        kept &= moments[1:] + network.after[:, :, None] <= clock.horizon
        kept[:, network.is_switch] = False
        self.kept = Columns.number(kept, first=self.flow.end)
        wanted = network.demand > 0
        self.short = Columns.number(wanted, first=self.kept.end)
        self.spare = Columns.number(network.holds, first=self.short.end)
        self.read: Columns | None = None
        self.end = self.spare.end
        if reads:
            within = wanted[:, :, None] & (moments >= network.first[:, :, None])
            self.read = Columns.number(within, first=self.spare.end)
            self.end = self.read.end

    def cost(self, *, paper: bool) -> FloatArray:
        """What is minimised: chunks that do not arrive, then hops."""
        cost = np.zeros(self.end)
        flow = self.flow.exists
        lengths = self.network.num_links.astype(np.float64)
        cost[: self.flow.count] = (
            HOP_COST * np.broadcast_to(lengths[:, None], flow.shape[1:])[np.nonzero(flow)[1:]]
        )
        cost[self.short.first : self.short.end] = 1.0
        if paper:
            assert self.read is not None
            cost[: self.flow.count] = 0.0
            # Read at moment t is read in epoch t - 1, which the paper rewards by 1 / t.
            moment = self.clock.moments[np.nonzero(self.read.exists)[2]]
            weight = self.network.priority[np.nonzero(self.read.exists)[0]]
            cost[self.read.first : self.read.end] = -weight / np.maximum(1, moment)
        return cost


def _balance_rows(network: FluidNetwork, clock: Clock, columns: _Numbering) -> RowBlock:
    r"""Whatever is at a node is kept, sent on or read.

    .. math:: B_{s,n,k-1} + \sum_{a \to n} F_{s,a,k-1-\lceil\delta_a\rceil}
       = B_{s,n,k} + R_{s,n,k} + \sum_{a \leftarrow n} F_{s,a,k}

    TE-CCL, section on the linear program, with the first and last epoch of the appendix: supply
    appears when a holder's data is ready, and what is at a node that wants it at the horizon is
    read then. Switches neither keep nor read. An interval takes its share of each slot.
    """
    shape = (len(network.demand), network.num_nodes, len(clock.moments))
    cell = np.arange(int(np.prod(shape))).reshape(shape)
    width = np.diff(clock.moments)
    lengths, flow = clock.lengths, columns.flow.index
    arcs = np.arange(len(network))[:, None]
    terms: list[_Term] = []
    for node, slot, sign in (
        (network.src, clock.leaving, 1.0),
        (network.dst, clock.arriving, -1.0),
    ):
        column = np.where(slot >= 0, flow[:, arcs, np.maximum(slot, 0)], ABSENT)
        share = sign * width / lengths[np.maximum(slot, 0)]
        terms.append((cell[:, node, :-1], column, share[None]))
    terms += _final_terms(network, clock, flow, cell)
    terms += [
        (cell[:, :, :-1], columns.kept.index, 1.0),
        (cell[:, :, 1:], columns.kept.index, -1.0),
    ]
    ready = np.searchsorted(clock.moments, np.minimum(network.ready, clock.horizon))
    spare = np.take_along_axis(cell, ready[:, :, None], axis=2)[:, :, 0]
    terms.append((spare, columns.spare.index, 1.0))
    side = np.zeros(shape)
    holds = np.nonzero(network.holds)
    side[(*holds, ready[holds])] += network.demand.sum(axis=1)[holds[0]]
    if columns.read is None:
        terms.append((cell[:, :, -1], columns.short.index, -1.0))
        side[:, :, -1] -= network.demand
        return _with_entries(RowBlock.of(side.size, terms, lower=side.ravel(), upper=side.ravel()))
    terms.append((cell, columns.read.index, 1.0))
    balance = RowBlock.of(side.size, terms, lower=side.ravel(), upper=side.ravel())
    return _joined(_with_entries(balance), _demand_rows(network, columns))


def _final_terms(
    network: FluidNetwork, clock: Clock, flow: IntArray, cell: IntArray
) -> list[_Term]:
    """What becomes usable at the horizon itself, by arc in the slots that reach that far."""
    end = clock.first_epochs() + clock.lengths
    late = np.maximum(0, end + network.delay[:, None] - clock.horizon)
    arc, slot = np.nonzero(late)
    share = -np.minimum(late[arc, slot], clock.lengths[slot]) / clock.lengths[slot]
    return [(cell[:, network.dst[arc], -1], flow[:, arc, slot], share[None])]


def _demand_rows(network: FluidNetwork, columns: _Numbering) -> RowBlock:
    r"""Each destination reads its amount: :math:`\sum_k R_{s,d,k} + U_{s,d} = \sum_c D_{s,d,c}`."""
    assert columns.read is not None
    commodity, node = np.nonzero(network.demand)
    index = np.concatenate(
        [columns.read.index[commodity, node], columns.short.index[commodity, node][:, None]], axis=1
    )
    amount = network.demand[commodity, node]
    return RowBlock.sums(index, lower=amount, upper=amount)


def _buffer_rows(network: FluidNetwork, columns: _Numbering) -> RowBlock:
    r"""What was received and waits is limited: :math:`\sum_s B_{s,n,k} \le \mathcal{L}`.

    TE-CCL, appendix on limited buffers; own data does not count.
    """
    received = np.where(network.holds[:, :, None], ABSENT, columns.kept.index)
    by_place = received.transpose(1, 2, 0).reshape(-1, len(received))
    some = (by_place != ABSENT).any(axis=1)
    assert network.buffer is not None
    return RowBlock.sums(by_place[some], lower=-np.inf, upper=float(network.buffer))


def _capacity_rows(
    network: FluidNetwork, clock: Clock, columns: _Numbering
) -> tuple[RowBlock, IntArray]:
    r"""A place carries no more than its rate: :math:`\sum_s F_{s,a,k} \le T_a \tau`.

    TE-CCL, capacity constraints, with the rate at the start of each epoch; places are links,
    ports of hyper-edges and shared capacities. Returns the rows and their (place, slot).
    """
    slots = clock.num_slots
    row = network.use_place[:, None] * slots + np.arange(slots)
    weight = network.use_weight[:, None]
    limit = network.slot_limits(clock.bounds, clock.shift)
    block = RowBlock.of(
        network.num_places * slots,
        [(row[None], columns.flow.index[:, network.use_arc], weight[None])],
        lower=-np.inf,
        upper=limit.ravel(),
    )
    used = np.flatnonzero(np.bincount(block.row, minlength=len(block)))
    return _with_entries(block), used


def _with_entries(block: RowBlock) -> RowBlock:
    """Leave out rows without entries that hold anyway."""
    filled = np.bincount(block.row, minlength=len(block)) > 0
    needed = filled | (block.lower > 0) | (block.upper < 0)
    number = np.cumsum(needed) - 1
    return RowBlock(
        row=number[block.row],
        column=block.column,
        value=block.value,
        lower=block.lower[needed],
        upper=block.upper[needed],
    )


def _joined(first: RowBlock, second: RowBlock) -> RowBlock:
    return RowBlock(
        row=np.concatenate([first.row, second.row + len(first)]),
        column=np.concatenate([first.column, second.column]),
        value=np.concatenate([first.value, second.value]),
        lower=np.concatenate([first.lower, second.lower]),
        upper=np.concatenate([first.upper, second.upper]),
    )
