r"""The general model: copy, store-and-forward and delay as a mixed-integer program.

Symbols are listed in `variables`, constraints in `rows`. A model answers whether a problem can be
solved within a number of epochs, its *horizon*; how few are enough is found by asking for several
(`horizon`). Among schedules within the horizon a goal may be stated: the paper's sum, or the
tenants' finishes.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from teccl.errors import MethodError
from teccl.linear_model import ABSENT, Columns, LinearModel, RowBlock, stack
from teccl.models.milp import rows
from teccl.models.milp.arcs import Arcs, arcs_of
from teccl.models.milp.variables import Flows, GridReach, Holding, count_flows
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# The paper's weights 1 / (k + 1) times this, rounded: whole numbers, so that all back ends agree.
WEIGHT_SCALE = 10_000


class MilpGoal(StrEnum):
    """What is minimised within the horizon.

    ``NONE`` asks for any schedule, ``PAPER`` maximises the sum over epochs of the demand met by
    then, weighted by 1 / (k + 1) and the tenant's priority, ``TENANTS`` minimises the sum of
    priority times finish.
    """

    NONE = "none"
    PAPER = "paper"
    TENANTS = "tenants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Milp:
    """A model with what its columns mean.

    Parameters
    ----------
    model
        To be solved.
    flows
        The meaning of the columns that decide everything; the others follow from them.
    """

    problem: Problem
    grid: TimeGrid
    horizon: int
    arcs: Arcs
    flows: Flows
    model: LinearModel

    def chosen(self, values: FloatArray) -> list[tuple[int, int, int]]:
        """Chunk, arc and epoch of every flow in a solution, as often as it flows."""
        f = self.flows
        count = np.round(values[f.column]).astype(np.int64)
        rows = np.repeat(np.arange(len(count)), count)
        picked = np.stack([f.chunk[rows], f.arc[rows], f.epoch[rows]], axis=1)
        return [(m, a, k) for m, a, k in picked.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpSize:
    """How large a model would be."""

    columns: int
    num_bytes: int


def build_milp(
    problem: Problem,
    grid: TimeGrid,
    horizon: int,
    *,
    goal: MilpGoal = MilpGoal.NONE,
    splits: npt.NDArray[np.bool_] | None = None,
    whole_ways: bool = False,
    backwards: bool = False,
) -> Milp:
    """State the general model of a problem that copies data.

    Parameters
    ----------
    problem, grid
        What is to be scheduled, in which epochs.
    horizon
        Number of epochs at whose end everything must be delivered.
    goal
        What to minimise.
    splits, whole_ways, backwards
        As `arcs_of` takes them.

    Examples
    --------
    >>> from teccl import Demand, Topology
    >>> demand = Demand.collective("allgather", size="100KB")
    >>> problem = Problem(topology=Topology.parse("ring:gpus=4,alpha=0"), demand=demand)
    >>> build_milp(problem, TimeGrid.build(problem), 2).model
    LinearModel(44 columns, 44 integer, 36 rows, 84 non-zeros)
    """
    check_serves(problem)
    arcs = arcs_of(problem, grid, horizon, splits, whole_ways=whole_ways, backwards=backwards)
    reach = GridReach.of(problem, arcs, ready_epochs(problem, grid))
    return _Builder(problem, grid, horizon, arcs, reach).build(goal)


def estimate_milp(
    problem: Problem, grid: TimeGrid, horizon: int, splits: npt.NDArray[np.bool_] | None = None
) -> MilpSize:
    """Count a model's variables and estimate its memory without building it."""
    check_serves(problem)
    arcs = arcs_of(problem, grid, horizon, splits)
    reach = GridReach.of(problem, arcs, ready_epochs(problem, grid))
    flows = count_flows(arcs, reach, horizon)
    columns = flows + reach.first.size * (horizon + 1)
    span = float(arcs.use_span.mean()) if arcs.use_span.size else 1.0
    dense = len(problem.chunks) * len(arcs) * horizon
    # Index arrays while building, then 12 bytes for each entry, of which a flow has a few.
    num_bytes = dense * 9 + flows * int(8 * 12 + 36 * (3 + span)) + columns * 60
    return MilpSize(columns=columns, num_bytes=num_bytes)


def check_serves(problem: Problem) -> None:
    """Refuse demands that the model does not express."""
    if problem.has_reductions:
        raise MethodError(
            f"method milp does not serve {problem.demand.title} with sums that several want; "
            "use --method auto"
        )


def ready_epochs(problem: Problem, grid: TimeGrid) -> IntArray:
    """By tenant and node, the first epoch in which own data may be sent."""
    table = np.zeros((len(problem.demand.tenants), problem.topology.num_nodes), dtype=np.int64)
    for t, tenant in enumerate(problem.demand.tenants):
        for rank, time in tenant.ready.items():
            table[t, problem.topology.gpus[rank]] = grid.ready_epoch(time)
    return table


def holding_of(problem: Problem) -> Holding:
    """How GPUs hold what they received."""
    if not problem.copy:
        return Holding.MOVING
    return Holding.UNLIMITED if problem.buffer is None else Holding.LIMITED


class _Builder:
    """Numbers columns and collects rows."""

    def __init__(
        self, problem: Problem, grid: TimeGrid, horizon: int, arcs: Arcs, reach: GridReach
    ) -> None:
        self.problem, self.grid, self.arcs, self.reach = problem, grid, arcs, reach
        self.flows = Flows.of(arcs, reach, horizon)
        self.frame = rows.Frame(
            arcs=arcs,
            reach=reach,
            flows=self.flows,
            horizon=horizon,
            upper=most_copies(problem, grid, arcs),
        )
        self.blocks: list[RowBlock] = [rows.capacity_rows(self.frame)]
        self.upper = [self.frame.upper[self.flows.arc].astype(np.float64)]
        self.lower = [np.zeros(self.flows.columns.count)]
        self.cost = [np.zeros(self.flows.columns.count)]
        self.end = self.flows.columns.count

    def build(self, goal: MilpGoal) -> Milp:
        """State all rows and stack them."""
        add = {
            Holding.UNLIMITED: self._unlimited,
            Holding.LIMITED: self._limited,
            Holding.MOVING: self._moving,
        }
        read = add[holding_of(self.problem)]()
        self._switches()
        if goal is MilpGoal.PAPER:
            self._reward(read)
        if goal is MilpGoal.TENANTS:
            self._finish_tenants(read)
        model = stack(
            self.blocks,
            cost=np.concatenate(self.cost),
            lower=np.concatenate(self.lower),
            upper=np.concatenate(self.upper),
            integer=True,
        )
        return Milp(
            problem=self.problem,
            grid=self.grid,
            horizon=self.frame.horizon,
            arcs=self.arcs,
            flows=self.flows,
            model=model,
        )

    def _columns(self, exists: npt.NDArray[np.bool_], upper: float = 1.0) -> Columns:
        """Add columns from zero to a limit."""
        columns = Columns.number(exists, first=self.end)
        self.end = columns.end
        self.lower.append(np.zeros(columns.count))
        self.upper.append(np.full(columns.count, upper))
        self.cost.append(np.zeros(columns.count))
        return columns

    def _unlimited(self) -> Columns:
        """Hold whatever arrived; what is wanted is there in the end."""
        held = self._columns(rows.at_gpus(self.frame))
        self.blocks += [
            rows.buffer_rows(self.frame, held),
            rows.conservation_rows(self.frame, held),
        ]
        self._demand(held)
        return held

    def _limited(self) -> Columns:
        """Hold for a moment, and for longer what the buffer has room for."""
        cells = rows.at_gpus(self.frame)
        present = self._columns(cells)
        waiting = None
        if self.problem.buffer:
            waiting = self._columns(_staying(cells))
            self.blocks += [
                rows.keeping_rows(present, waiting),
                rows.limit_rows(waiting, self.problem.buffer),
            ]
        self.blocks += [
            rows.presence_rows(self.frame, present, waiting),
            rows.conservation_rows(self.frame, present),
        ]
        return self._read()

    def _moving(self) -> Columns:
        """Send on what was received and is not sent on yet."""
        cells = rows.at_gpus(self.frame)
        waiting = None
        if self.problem.buffer != 0:
            most = float(max(1, int(self.reach.wanted.sum(axis=1).max(initial=1))))
            waiting = self._columns(_staying(cells), most)
            if self.problem.buffer is not None:
                self.blocks.append(rows.limit_rows(waiting, self.problem.buffer))
        self.blocks += [
            rows.stock_rows(self.frame, cells, waiting),
            rows.kept_rows(self.frame),
        ]
        return self._read()

    def _read(self) -> Columns:
        """Say when what is wanted has been received."""
        cells = rows.at_gpus(self.frame) & self.reach.wanted[:, :, None]
        read = self._columns(cells)
        self.blocks.append(rows.read_rows(self.frame, read))
        self._demand(read)
        return read

    def _demand(self, read: Columns) -> None:
        """Fix that everything wanted is there at the horizon."""
        chunk, node = np.nonzero(self.reach.wanted)
        last = read.index[chunk, node, self.frame.horizon]
        if (last == ABSENT).any():
            # Some destination is out of reach within the horizon: an empty sum that must be one.
            none = RowBlock.of(1, [], lower=1.0, upper=1.0)
            self.blocks.append(none)
            return
        lower = np.concatenate(self.lower)
        lower[last] = 1.0
        self.lower = [lower]

    def _switches(self) -> None:
        """Let switches pass on what has just arrived."""
        if self.arcs.has_trees:
            self.blocks += rows.branch_rows(self.frame)
        departs = np.zeros(self.frame.shape, dtype=bool)
        departs.ravel()[self.frame.departure_cells()[0]] = True
        copying = departs.copy()
        copying[:, ~self.arcs.splits] = False
        if copying.any():
            present = self._columns(copying)
            self.blocks += [
                rows.presence_rows(self.frame, present, None),
                rows.conservation_rows(self.frame, present),
            ]
        if (self.arcs.is_switch & ~self.arcs.splits).any():
            self.blocks.append(rows.passing_rows(self.frame))

    def _reward(self, read: Columns) -> None:
        """Count the demand met by each epoch, the earlier the more."""
        cost = np.concatenate(self.cost)
        weights = _whole([t.priority for t in self.problem.demand.tenants])
        chunk, node, moment = np.nonzero(read.exists & self.reach.wanted[:, :, None])
        reward = np.where(moment > 0, WEIGHT_SCALE // np.maximum(moment, 1), 0)
        priority = weights[self.problem.chunks.tenant[chunk]]
        cost[read.index[chunk, node, moment]] = -(reward * priority).astype(np.float64)
        self.cost = [cost]

    def _finish_tenants(self, read: Columns) -> None:
        """Count the epochs in which each tenant is not done."""
        table, tenants = self.problem.chunks, self.problem.demand.tenants
        done = self._columns(np.ones((len(tenants), self.frame.horizon + 1), dtype=bool))
        weights = _whole([t.priority for t in tenants])
        self.cost[-1] = -np.repeat(weights, self.frame.horizon + 1).astype(np.float64)
        self.blocks.append(rows.done_rows(self.reach.wanted, done, read, table.tenant))


def _staying(cells: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Cells after which there is another one to stay for."""
    staying = cells.copy()
    staying[:, :, :-1] &= cells[:, :, 1:]
    staying[:, :, -1] = False
    return staying


def _whole(weights: list[Fraction]) -> IntArray:
    """Weights times their common denominator."""
    common = lcm(*(Fraction(w).denominator for w in weights))
    return np.array([int(w * common) for w in weights], dtype=np.int64)


def most_copies(problem: Problem, grid: TimeGrid, arcs: Arcs) -> IntArray:
    """How often a chunk may start on an arc in one epoch.

    Again and again where nothing is copied, and into a switch that does not copy, once for each
    of its outputs.
    """
    ends = np.maximum(arcs.end, 0)
    again = (arcs.end >= 0) & arcs.is_switch[ends] & ~arcs.splits[ends]
    if not problem.copy:
        again[:] = True
    capacity = grid.capacity
    if problem.topology.has_profiles:
        # Links are the first places.
        capacity = np.maximum(capacity, arcs.limit[: len(capacity)].max(axis=1, initial=1))
    most = np.array([min(int(capacity[e]) for e in way) for way in arcs.ways], dtype=np.int64)
    wanted = max(1, max((len(nodes) for nodes in problem.chunks.sets), default=1))
    return np.where(again, np.minimum(most, wanted), 1)
