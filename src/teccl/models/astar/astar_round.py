r"""One round of A*: the general model over a few epochs, which rewards whatever comes closer.

======  ===========  ========================================================================
symbol  name         meaning
======  ===========  ========================================================================
F       ``flows``    whether chunk m starts on arc a in epoch k of the round
B, Q    ``held``     whether chunk m is at GPU n at moment t, in the round or in the look-ahead
P       ``near``     chunks that d wants and that are at s when the look-ahead ends
FW      ``way``      epochs from node to node: weights of the logical clique
======  ===========  ========================================================================

GPUs start sends in the round only; what they started may still pass switches and arrive in the
look-ahead, so that every passage is decided as a whole. The state that rounds hand on is the
moment from which each GPU has each chunk, which may lie in the next round (late arrivals), and
what links still carry.
"""

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from teccl.linear_model import ABSENT, Columns, LinearModel, RowBlock, stack
from teccl.models.milp import rows
from teccl.models.milp.arcs import NEVER, Arcs
from teccl.models.milp.variables import Flows, GridReach

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

# Rewards times this, rounded: whole numbers, so that all back ends agree.
WEIGHT_SCALE = 10_000
# Reward of a chunk on its way against that of a chunk that is there, the paper's gamma.
GAMMA = 0.5


@dataclass(slots=True, kw_only=True)
class AstarState:
    """What rounds hand on; epochs count from the start of the schedule.

    Parameters
    ----------
    has_from
        By chunk and node, epoch from which the node has the chunk, `NEVER` if nothing is under way.
    wants
        By chunk and node, whether it is to have the chunk in the end.
    flows
        What was started: chunk, arc and epoch.
    """

    has_from: IntArray
    wants: BoolArray
    flows: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def missing(self) -> BoolArray:
        """By chunk and node, what is wanted and not under way."""
        return self.wants & (self.has_from >= NEVER)

    @property
    def is_done(self) -> bool:
        """Whether all demand is met or under way."""
        return not self.missing.any()

    @property
    def finish(self) -> int:
        """Epoch from which everyone has what he wants."""
        return int(self.has_from[self.wants].max(initial=0))

    def after(self, arcs: Arcs, flows: list[tuple[int, int, int]], begin: int) -> "AstarState":
        """Return the state after some flows on arcs seen from an epoch on."""
        has_from = self.has_from.copy()
        for m, a, k in flows:
            node = int(arcs.end[a])
            if node >= 0 and not arcs.is_switch[node]:
                has_from[m, node] = min(int(has_from[m, node]), k + int(arcs.delay[a, k - begin]))
        return AstarState(has_from=has_from, wants=self.wants, flows=self.flows + flows)

    def progress(self, way: IntArray) -> tuple[int, int]:
        """What must shrink: deliveries still to be made, and epochs from holders to those."""
        missing = self.missing
        holds = self.has_from < NEVER
        left = 0
        for chunk in np.flatnonzero(missing.any(axis=1)):
            nearest = way[holds[chunk]].min(axis=0)
            left += int(nearest[missing[chunk]].sum())
        return int(missing.sum()), left


@dataclass(frozen=True, slots=True, kw_only=True)
class AstarRound:
    """The model of one round.

    Parameters
    ----------
    begin, length, ahead
        First epoch of the round, epochs in which GPUs may start, and epochs of look-ahead.
    """

    begin: int
    length: int
    ahead: int
    arcs: Arcs
    flows: Flows
    model: LinearModel

    @property
    def horizon(self) -> int:
        """Epochs of the round and its look-ahead."""
        return self.length + self.ahead

    def chosen(self, values: FloatArray) -> list[tuple[int, int, int]]:
        """Chunk, arc and epoch of every flow in a solution, epochs counted from the beginning."""
        f = self.flows
        count = np.round(values[f.column]).astype(np.int64)
        rows = np.repeat(np.arange(len(count)), count)
        picked = np.stack([f.chunk[rows], f.arc[rows], f.epoch[rows] + self.begin], axis=1)
        return [(m, a, k) for m, a, k in picked.tolist()]


def look_ahead(arcs: Arcs) -> int:
    """Epochs until the last thing that was started in a round can have arrived at a GPU."""
    longest = arcs.delay.max(axis=1)
    n = len(arcs.is_switch)
    # Longest of the shortest ways on from each switch to GPUs.
    way = np.full((n, n), NEVER)
    np.fill_diagonal(way, 0)
    inner = np.flatnonzero((arcs.end >= 0) & arcs.is_switch[arcs.src])
    np.minimum.at(way, (arcs.src[inner], arcs.end[inner]), longest[inner])
    for i in np.flatnonzero(arcs.is_switch):
        way = np.minimum(way, way[:, i, None] + way[i])
    reached = np.where((way < NEVER) & ~arcs.is_switch, way, 0).max(axis=1)
    starts = np.flatnonzero((arcs.end >= 0) & ~arcs.is_switch[arcs.src])
    return int((longest[starts] + reached[arcs.end[starts]]).max(initial=1))


def window(arcs: Arcs, flows: list[tuple[int, int, int]], begin: int, horizon: int) -> Arcs:
    """Arcs as seen from an epoch on, places less what earlier flows still hold."""
    limit = arcs.limit.copy()
    by_arc: dict[int, list[int]] = {}
    for use, arc in enumerate(arcs.use_arc.tolist()):
        by_arc.setdefault(arc, []).append(use)
    for _, arc, epoch in flows:
        for use in by_arc.get(arc, ()):
            first = epoch + int(arcs.use_offset[use])
            last = first + int(arcs.use_span[use, epoch])
            limit[arcs.use_place[use], max(first, 0) : last] -= arcs.use_load[use]
    part = slice(begin, begin + horizon)
    return replace(
        arcs,
        delay=arcs.delay[:, part],
        use_span=arcs.use_span[:, part],
        limit=np.maximum(limit[:, part], 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """How a round is stated.

    Parameters
    ----------
    gamma
        Reward for coming closer, below one.
    complete
        Ask for all that is missing within the look-ahead, and for nothing better.
    """

    gamma: float = GAMMA
    complete: bool = False


def build_round(
    arcs: Arcs,
    state: AstarState,
    way: IntArray,
    *,
    begin: int,
    length: int,
    ahead: int,
    upper: IntArray,
    options: RoundOptions,
) -> AstarRound:
    """State the model of the round that begins in an epoch.

    Parameters
    ----------
    arcs
        Of all epochs up to the end of the look-ahead.
    state
        Who has what, and what is under way.
    way
        Epochs from node to node.
    upper
        How often a chunk may start on each arc in one epoch.
    """
    horizon = length + ahead
    near = window(arcs, state.flows, begin, horizon)
    reach = _reach(near, state, way, begin)
    useful = _useful(state, way)
    flows = _flows(near, reach, useful, length=length, horizon=horizon)
    frame = rows.Frame(arcs=near, reach=reach, flows=flows, horizon=horizon, upper=upper)
    builder = _RoundBuilder(frame, useful, way, options)
    return AstarRound(
        begin=begin,
        length=length,
        ahead=ahead,
        arcs=near,
        flows=flows,
        model=builder.build(),
    )


def _reach(arcs: Arcs, state: AstarState, way: IntArray, begin: int) -> GridReach:
    """Where chunks can be when, from what is there and under way."""
    own = np.where(state.has_from < NEVER, np.maximum(state.has_from - begin, 0), NEVER)
    first = np.full(own.shape, NEVER)
    for i in range(own.shape[1]):
        first = np.minimum(first, own[:, i, None] + way[i])
    # A switch passes on at once, so that it must still get somewhere; GPUs may keep.
    onward = np.where(arcs.is_switch, way[:, ~arcs.is_switch].min(axis=1), 0)
    return GridReach(
        first=np.minimum(first, NEVER),
        after=np.broadcast_to(onward, own.shape),
        own_from=own,
        wanted=state.missing,
    )


def _useful(state: AstarState, way: IntArray) -> BoolArray:
    """By chunk and node, where getting the chunk serves someone who still wants it.

    A node that does not want it must be nearer to someone who does than all that have it.
    """
    missing = state.missing
    holds = state.has_from < NEVER
    useful = missing.copy()
    for chunk in np.flatnonzero(missing.any(axis=1)):
        targets = missing[chunk]
        nearest = way[holds[chunk]].min(axis=0)[targets]
        useful[chunk] |= (way[:, targets] < nearest).any(axis=1)
    return useful & ~holds


def _flows(arcs: Arcs, reach: GridReach, useful: BoolArray, *, length: int, horizon: int) -> Flows:
    """Number the flows of GPUs in the round, and those of switches up to the horizon."""
    k = np.arange(horizon)
    # Who has a chunk or will have it sends it from then on; others once they can have got it.
    own = reach.own_from < NEVER
    since = np.where(own, reach.own_from, np.where(useful | arcs.is_switch, reach.first, NEVER))
    exists = k >= since[:, arcs.src][:, :, None]
    ends = np.flatnonzero(arcs.end >= 0)
    node = arcs.end[ends]
    arrives = k + arcs.delay[ends]
    exists[:, ends] &= arrives <= horizon - reach.after[:, node, None]
    into_gpu = ~arcs.is_switch[node]
    exists[:, ends[into_gpu]] &= useful[:, node[into_gpu], None]
    exists[~useful.any(axis=1)] = False
    exists[:, ~arcs.is_switch[arcs.src], length:] = False
    # A branch of a circuit starts with its stem; a stem is of use if one of its branches is.
    for child in range(len(arcs) - 1, -1, -1):
        parent = int(arcs.parent[child])
        if parent >= 0 and arcs.end[parent] < 0:
            exists[:, parent] |= exists[:, child]
    for child in range(len(arcs)):
        parent = int(arcs.parent[child])
        if parent >= 0:
            exists[:, child] &= exists[:, parent]
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


class _RoundBuilder:
    """Collects the columns and rows of a round."""

    def __init__(
        self, frame: rows.Frame, useful: BoolArray, way: IntArray, options: RoundOptions
    ) -> None:
        self.frame, self.useful, self.way, self.options = frame, useful, way, options
        self.farthest = int(way[way < NEVER].max(initial=0))
        self.unit = max(1, WEIGHT_SCALE // (frame.horizon + self.farthest + 1))
        self.blocks: list[RowBlock] = [rows.capacity_rows(frame)]
        self.lower = [np.zeros(frame.flows.columns.count)]
        self.upper = [frame.upper[frame.flows.arc].astype(np.float64)]
        self.cost = [np.zeros(frame.flows.columns.count)]
        self.end = frame.flows.columns.count

    def build(self) -> LinearModel:
        """State all rows and stack them."""
        held = self._columns(rows.at_gpus(self.frame) & self.useful[:, :, None])
        self.blocks += [
            rows.buffer_rows(self.frame, held),
            rows.conservation_rows(self.frame, held),
        ]
        self._switches()
        if self.options.complete:
            self._complete(held)
        else:
            self._reward_arrivals()
            self._reward_nearness(held)
        return stack(
            self.blocks,
            cost=np.concatenate(self.cost),
            lower=np.concatenate(self.lower),
            upper=np.concatenate(self.upper),
            integer=True,
        )

    def _columns(self, exists: BoolArray, upper: npt.ArrayLike = 1.0) -> Columns:
        columns = Columns.number(exists, first=self.end)
        self.end = columns.end
        self.lower.append(np.zeros(columns.count))
        self.upper.append(np.broadcast_to(np.asarray(upper, dtype=np.float64), columns.count))
        self.cost.append(np.zeros(columns.count))
        return columns

    def _switches(self) -> None:
        arcs = self.frame.arcs
        if arcs.has_trees:
            self.blocks += rows.branch_rows(self.frame)
        departs = np.zeros(self.frame.shape, dtype=bool)
        departs.ravel()[self.frame.departure_cells()[0]] = True
        copying = departs.copy()
        copying[:, ~arcs.splits] = False
        if copying.any():
            present = self._columns(copying)
            self.blocks += [
                rows.presence_rows(self.frame, present, None),
                rows.conservation_rows(self.frame, present),
            ]
        if (arcs.is_switch & ~arcs.splits).any():
            self.blocks.append(rows.passing_rows(self.frame))

    def _complete(self, held: Columns) -> None:
        """Fix that everything that is missing is there in the end."""
        chunk, node = np.nonzero(self.frame.reach.wanted)
        last = held.index[chunk, node, self.frame.horizon]
        if (last == ABSENT).any():
            self.blocks.append(RowBlock.of(1, [], lower=1.0, upper=1.0))
            return
        lower = np.concatenate(self.lower)
        lower[last] = 1.0
        self.lower = [lower]

    def _reward_arrivals(self) -> None:
        r"""Reward wanted chunks by the epochs they are there early.

        :math:`\sum_k R_{m,d,k}` over the round, its look-ahead and the longest way: what has still
        that way to go when the look-ahead ends would be there when the sum ends.

        The paper's weights 1 / (k + 1) are for a whole schedule: in a round they would make what
        arrives in the look-ahead worth next to nothing, and measured schedules longer.
        """
        frame, f = self.frame, self.frame.flows
        node = frame.arcs.end[f.arc]
        served = (node >= 0) & frame.reach.wanted[f.chunk, np.maximum(node, 0)]
        early = frame.horizon + self.farthest + 1 - f.arrival[served]
        self.cost[0][f.column[served]] = -self.unit * early

    def _reward_nearness(self, held: Columns) -> None:
        r"""Reward chunks that are nearer to who wants them when the look-ahead ends.

        .. math:: P_{m,d,w} \le \sum_{s : FW_{s,d} \le w} Q_{m,s}

        where w is any distance below the present one, and the reward of coming from one to the
        next is :math:`\gamma` times the epochs between them.

        TE-CCL, appendix on A*, at the end of the look-ahead, with our change: P is kept for each
        chunk. The paper's sum over chunks counts one that is at two places for another that is
        at none, so that rounds end with everyone receiving the same.
        """
        frame, gamma = self.frame, self.options.gamma
        final = held.index[:, :, frame.horizon]
        chunk, node, step, gain = self._steps()
        near = self._columns(np.ones(len(chunk), dtype=bool))
        self.cost[-1] = -np.floor(gamma * self.unit * gain)
        closer = step[:, None] >= self.way[:, node].T
        at, place = np.nonzero(closer)
        holder = final[chunk[at], place]
        self.blocks.append(
            RowBlock.of(
                len(chunk),
                [(np.arange(len(chunk)), near.index, 1.0), (at, holder, -1.0)],
                lower=-np.inf,
                upper=0.0,
            )
        )

    def _steps(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Chunk, destination, distance and epochs gained of each step closer, from the far end."""
        wanted = self.frame.reach.wanted
        holds = self.frame.reach.own_from < NEVER
        gpus = ~self.frame.arcs.is_switch
        levels = [np.unique(self.way[gpus, d]) for d in range(len(gpus))]
        found = []
        for m in np.flatnonzero(wanted.any(axis=1)).tolist():
            nearest = self.way[holds[m]].min(axis=0)
            for d in np.flatnonzero(wanted[m]).tolist():
                steps = levels[d][(levels[d] > 0) & (levels[d] <= nearest[d])].tolist()
                found += [(m, d, a, b - a) for a, b in itertools.pairwise(steps)]
        table = np.array(found, dtype=np.int64).reshape(-1, 4)
        return table[:, 0], table[:, 1], table[:, 2], table[:, 3]
